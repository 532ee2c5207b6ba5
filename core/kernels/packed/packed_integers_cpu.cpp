// Products of 16 bits (PMADDWD), which cannot overflow, for processors without VNNI or SDOT; and
// the choice among the kernels of int8 and int4.
#include <cstring>

#include "core/kernels/packed/packed_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/packed/packed_integers_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/packed/packed_line-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

using kernels::PackedTile;
using kernels::Range;

constexpr int64_t kGroup = PackedMatrix::kGroup;
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
  const int8_t* w = tile.weight.panel<int8_t>(panel);
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

// A group has sums of its own, which start at -8 times those of x.
template <int kHeight>
void multiply_int4(const PackedTile& tile, int64_t row, int64_t panel) {
  const Tag<float> d;
  const Tag<int32_t> di;
  using V = hn::Vec<Tag<int32_t>>;
  hn::Vec<Tag<float>> totals[kHeight][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 32
    for (int v = 0; v < kVectors; ++v) totals[r][v] = hn::Zero(d);
  }
  const V low_halves = hn::Set(di, 0x0f0f0f0f);
  const uint8_t* group = tile.weight.panel<uint8_t>(panel);
  for (int64_t g = 0; g < tile.groups(); ++g, group += PackedMatrix::kInt4Group) {
    V sums[kHeight][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
      const V start = hn::Set(di, tile.starts[(row + r) * tile.groups() + g]);
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) sums[r][v] = start;
    }
    for (int64_t p = 0; p < PackedMatrix::kInt4Columns / 8; ++p) {
      const auto* const words =
          reinterpret_cast<const int32_t*>(group + PackedMatrix::kInt4Scales) + p * kPanel;
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) {
        const V both = hn::Load(di, words + v * kLanes);
        const Bytes low(hn::And(both, low_halves));
        const Bytes high(hn::And(hn::ShiftRight<4>(both), low_halves));
#pragma GCC unroll 8
        for (int r = 0; r < kHeight; ++r) {
          int32_t fours[2];
          std::memcpy(fours, tile.q + (row + r) * tile.ldx + g * PackedMatrix::kInt4Columns + 8 * p,
                      sizeof fours);
          sums[r][v] = add_products(sums[r][v], Bytes(hn::Set(di, fours[0])), low);
          sums[r][v] = add_products(sums[r][v], Bytes(hn::Set(di, fours[1])), high);
        }
      }
    }
    hn::Vec<Tag<float>> scales[kVectors];
    load_line(reinterpret_cast<const BFloat16*>(group), scales);
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
      const auto scale = hn::Set(d, tile.scales[(row + r) * tile.groups() + g]);
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) {
        totals[r][v] =
            hn::MulAdd(hn::ConvertTo(d, sums[r][v]), hn::Mul(scale, scales[v]), totals[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; ++r) deliver(tile, row + r, panel, totals[r]);
}

void multiply_int4_tile(const PackedTile& tile) {
  constexpr int kRows = kVectors == 2 ? 4 : 1;
  static constexpr auto kStrips = kernels::strips_of<kRows, kVectors, 1>(
      []<int kHeight, int>() { return multiply_int4<kHeight>; });
  kernels::run_strips(tile, kStrips);
}
kernels::PackedTileFunction int4_tile() { return multiply_int4_tile; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(int8_tile);
HWY_EXPORT(int4_tile);
HWY_EXPORT(deliver_function);

}  // namespace

namespace kernels {

PackedTileFunction packed_int8_plain_tile() { return HWY_DYNAMIC_DISPATCH(int8_tile)(); }

PackedTileFunction packed_int4_plain_tile() { return HWY_DYNAMIC_DISPATCH(int4_tile)(); }

DeliverFunction packed_int8_deliver() { return HWY_DYNAMIC_DISPATCH(deliver_function)(); }

IntegerTiles packed_integer_tiles(Int8Kernel kernel) {
  constexpr uint8_t kUnsigned = 0x80;
  switch (kernel) {
    case Int8Kernel::kAmx:
      return {kUnsigned, packed_int8_amx_tile(), packed_int4_avx512_vnni_tile()};
    case Int8Kernel::kAvx512Vnni:
      return {kUnsigned, packed_int8_avx512_vnni_tile(), packed_int4_avx512_vnni_tile()};
    case Int8Kernel::kAvxVnni:
      return {kUnsigned, packed_int8_avx_vnni_tile(), packed_int4_avx_vnni_tile()};
    case Int8Kernel::kI8mm:
      return {0, packed_int8_i8mm_tile(), packed_int4_dotprod_tile()};
    case Int8Kernel::kDotProd:
      return {0, packed_int8_dotprod_tile(), packed_int4_dotprod_tile()};
    case Int8Kernel::kPlain:
      break;
    case Int8Kernel::kAmxEmulated:
      return {kUnsigned, packed_int8_emulated_tile(), packed_int4_plain_tile()};
    case Int8Kernel::kI8mmEmulated:
      return {0, packed_int8_i8mm_emulated_tile(), packed_int4_plain_tile()};
  }
  return {0, packed_int8_plain_tile(), packed_int4_plain_tile()};
}

PackedTileFunction packed_tile(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return packed_float32_tile();
    case WeightFormat::kBFloat16:
      return packed_bfloat16_tile();
    case WeightFormat::kInt8:
      return packed_integer_tiles(int8_kernel()).int8;
    case WeightFormat::kInt4:
      return packed_integer_tiles(int8_kernel()).int4;
  }
  return nullptr;
}

}  // namespace kernels
}  // namespace tapestry
#endif
