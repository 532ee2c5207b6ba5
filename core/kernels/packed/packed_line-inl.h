// A line of a panel, the numbers of its 32 rows, in vectors of float32; and the way out.
#if defined(TAPESTRY_KERNELS_PACKED_LINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_PACKED_LINE_INL_H_
#undef TAPESTRY_KERNELS_PACKED_LINE_INL_H_
#else
#define TAPESTRY_KERNELS_PACKED_LINE_INL_H_
#endif

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/packed/packed_tile.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<float>()));
constexpr int kVectors = static_cast<int>(kPanel / kLanes);  // of a line

HWY_INLINE void load_line(const float* w, hn::Vec<Tag<float>>* line) {
#pragma GCC unroll 32
  for (int v = 0; v < kVectors; ++v) line[v] = hn::Load(Tag<float>(), w + v * kLanes);
}
HWY_INLINE void load_line(const BFloat16* w, hn::Vec<Tag<float>>* line) {
  const Tag<float> d;
  const hn::RebindToUnsigned<Tag<float>> bits;
  const auto* const words = reinterpret_cast<const uint32_t*>(w);
#pragma GCC unroll 32
  for (int v = 0; v < kVectors / 2; ++v) {
    const auto both = hn::Load(bits, words + v * kLanes);
    line[v] = hn::BitCast(d, hn::ShiftLeft<16>(both));
    line[v + kVectors / 2] = hn::BitCast(d, hn::And(both, hn::Set(bits, 0xffff0000U)));
  }
}

// The sums of a panel to a row of y.
HWY_INLINE void deliver(const kernels::PackedTile& tile, int64_t row, int64_t panel,
                        const hn::Vec<Tag<float>>* sums) {
  const Tag<float> d;
  HWY_ALIGN float block[kPanel];
#pragma GCC unroll 32
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], d, block + v * kLanes);
  const int64_t first = panel * kPanel;
  float* const y = tile.y + row * tile.ldy + first;
  const float* const bias = tile.bias != nullptr ? tile.bias + first : nullptr;
  each_vector(d, tile.columns(panel), [&](auto io, int64_t i) HWY_ATTR {
    auto sum = hn::Load(d, block + i);
    if (bias != nullptr) sum = hn::Add(sum, io.load(d, bias + i));
    io.store(d, sum, y + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#endif
