// Products of 16 bits (PMADDWD), which cannot overflow, for processors without VNNI; and the choice
// among the kernels of int8.
#include <cstring>

#include "core/cpu/bfloat16_kernel.h"
#include "core/cpu/cpu_traits.h"
#include "core/kernels/packed/packed_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/packed/packed_int8_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

using kernels::PackedTile;
using kernels::Range;

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kGroup = PackedMatrix::kGroup;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<int32_t>()));
constexpr int kVectors = static_cast<int>(kPanel / kLanes);  // of a panel
constexpr int kMost = kVectors == 2 ? 8 : kVectors == 4 ? 2 : 1;

// The four signed bytes of each lane, in the form in which add_products() takes them.
struct Bytes {
  using V = hn::Vec<Tag<int32_t>>;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  // The even and the odd ones as two numbers of 16 bits each.
  using V16 = hn::Vec<Tag<int16_t>>;
  V16 even, odd;

  HWY_INLINE explicit Bytes(V v) {
    const Tag<int16_t> d;
    const V16 both = hn::BitCast(d, v);
    even = hn::ShiftRight<8>(hn::ShiftLeft<8>(both));
    odd = hn::ShiftRight<8>(both);
  }
#else
  V all;

  HWY_INLINE explicit Bytes(V v) : all(v) {}
  template <int kByte>
  HWY_INLINE V byte() const {
    return hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * kByte>(all));
  }
#endif
};

// sum + a[0] b[0] + ... + a[3] b[3], in each lane.
HWY_INLINE hn::Vec<Tag<int32_t>> add_products(hn::Vec<Tag<int32_t>> sum, const Bytes& a,
                                              const Bytes& b) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const Tag<int32_t> d;
  auto unused = hn::Zero(d);  // on these targets the sums of neighbours are all in the first
  sum = hn::ReorderWidenMulAccumulate(d, a.even, b.even, sum, unused);
  return hn::ReorderWidenMulAccumulate(d, a.odd, b.odd, sum, unused);
#else
  sum = hn::Add(sum, hn::Mul(a.byte<0>(), b.byte<0>()));
  sum = hn::Add(sum, hn::Mul(a.byte<1>(), b.byte<1>()));
  sum = hn::Add(sum, hn::Mul(a.byte<2>(), b.byte<2>()));
  return hn::Add(sum, hn::Mul(a.byte<3>(), b.byte<3>()));
#endif
}

void deliver(const PackedTile& tile, Range rows, int64_t panel, const int32_t* sums, uint8_t flip) {
  const int64_t first = panel * kPanel;
  const float* const bias = tile.bias != nullptr ? tile.bias + first : nullptr;
  const float* const scales = tile.weight.scales() + first;
  const int32_t* const too_much = tile.weight.sums() + first;
  const Tag<float> d;
  const Tag<int32_t> di;
  const auto flips = hn::Set(di, flip);
  each_vector(d, tile.columns(panel), [&](auto io, int64_t i) HWY_ATTR {
    const auto surplus = hn::Mul(flips, hn::Load(di, too_much + i));
    const auto scale = hn::Load(d, scales + i);
    const auto added = bias != nullptr ? io.load(d, bias + i) : hn::Zero(d);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const auto sum = hn::Sub(hn::Load(di, sums + (row - rows.begin) * kPanel + i), surplus);
      auto v = hn::Mul(hn::Mul(hn::ConvertTo(d, sum), hn::Set(d, tile.scales[row])), scale);
      if (bias != nullptr) v = hn::Add(v, added);
      io.store(d, v, tile.y + row * tile.ldy + first + i);
    }
  });
}
kernels::DeliverFunction deliver_function() { return deliver; }

template <int kHeight>
void multiply(const PackedTile& tile, int64_t row, int64_t panel) {
  const Tag<int32_t> d;
  using V = hn::Vec<Tag<int32_t>>;
  V sums[kHeight][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 32
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const uint8_t* const q = tile.q + row * tile.ldx;
  const int8_t* w = tile.weight.int8_panel(panel);
  for (int64_t k = 0; k < tile.weight.cols(); k += kGroup, w += kGroup * kPanel) {
    V fours[kHeight];
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
      int32_t four = 0;
      std::memcpy(&four, q + r * tile.ldx + k, sizeof four);
      fours[r] = hn::Set(d, four);
    }
#pragma GCC unroll 32
    for (int v = 0; v < kVectors; ++v) {
      const Bytes weights(hn::Load(d, reinterpret_cast<const int32_t*>(w) + v * kLanes));
#pragma GCC unroll 8
      for (int r = 0; r < kHeight; ++r) {
        sums[r][v] = add_products(sums[r][v], Bytes(fours[r]), weights);
      }
    }
  }
  HWY_ALIGN int32_t block[kHeight * kPanel];
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 32
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, block + r * kPanel + v * kLanes);
  }
  deliver(tile, {row, row + kHeight}, panel, block, 0);
}

void multiply_tile(const PackedTile& tile) {
  // The product is slower than its addition: no strip needs to be wide.
  static constexpr auto kStrips =
      kernels::strips_of<kMost, kVectors, 1>([]<int kHeight, int>() { return multiply<kHeight>; });
  kernels::run_strips(tile, kStrips);
}
kernels::PackedTileFunction int8_tile() { return multiply_tile; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(int8_tile);
HWY_EXPORT(deliver_function);

}  // namespace

namespace kernels {

PackedTileFunction packed_int8_plain_tile() { return HWY_DYNAMIC_DISPATCH(int8_tile)(); }

DeliverFunction packed_int8_deliver() { return HWY_DYNAMIC_DISPATCH(deliver_function)(); }

bool can_run(Int8Kernel kernel) {
  const CpuTraits& cpu = cpu_traits();
  switch (kernel) {
    case Int8Kernel::kAvxVnni:
      return cpu.avx_vnni;
    case Int8Kernel::kAvx512Vnni:
      return cpu.avx512_vnni;
    case Int8Kernel::kAmx:
      return cpu.amx_int8 && cpu.avx512_vnni && tiles_allowed();
    case Int8Kernel::kPlain:
    case Int8Kernel::kAmxEmulated:
      return true;
  }
  return false;
}

Int8Kernel int8_kernel() {
  static const Int8Kernel fastest = [] {
    for (const auto kernel : {Int8Kernel::kAmx, Int8Kernel::kAvx512Vnni, Int8Kernel::kAvxVnni}) {
      if (can_run(kernel)) return kernel;
    }
    return Int8Kernel::kPlain;
  }();
  return fastest;
}

Int8Tile packed_int8_tile(Int8Kernel kernel) {
  constexpr uint8_t kUnsigned = 0x80;
  switch (kernel) {
    case Int8Kernel::kPlain:
      break;
    case Int8Kernel::kAvxVnni:
      return {packed_int8_avx_vnni_tile(), kUnsigned};
    case Int8Kernel::kAvx512Vnni:
      return {packed_int8_avx512_vnni_tile(), kUnsigned};
    case Int8Kernel::kAmx:
      return {packed_int8_amx_tile(), kUnsigned};
    case Int8Kernel::kAmxEmulated:
      return {packed_int8_emulated_tile(), kUnsigned};
  }
  return {packed_int8_plain_tile(), 0};
}

}  // namespace kernels
}  // namespace tapestry
#endif
