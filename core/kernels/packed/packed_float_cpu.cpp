// Weights of float32 and bfloat16, which are widened: sums are those of float32 for both.
#include "core/kernels/packed/packed_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/packed/packed_float_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/packed/packed_line-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

using kernels::PackedTile;

// As many rows as leave registers for a vector of x and for those of a panel that are not read
// from memory.
template <class T>
constexpr int kMost = kVectors == 2                               ? 14
                      : kVectors == 4 && std::is_same_v<T, float> ? 3
                      : kVectors == 4                             ? 2
                                                                  : 1;

// Rows [row, row + kHeight) by panels [panel, panel + kPanels).
template <class T, int kHeight, int kPanels>
void multiply(const PackedTile& tile, int64_t row, int64_t panel) {
  constexpr int kWidth = kPanels * kVectors;
  const Tag<float> d;
  using V = hn::Vec<Tag<float>>;
  V sums[kHeight][kWidth];
#pragma GCC unroll 14
  for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 32
    for (int v = 0; v < kWidth; ++v) sums[r][v] = hn::Zero(d);
  }
  const int64_t cols = tile.weight.cols(), ldx = tile.ldx, panel_size = cols * kPanel;
  const float* const x = tile.x + row * ldx;
  const T* w = tile.weight.panel<T>(panel);
  for (int64_t k = 0; k < cols; ++k, w += kPanel) {
    V factors[kWidth];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) load_line(w + p * panel_size, factors + p * kVectors);
#pragma GCC unroll 14
    for (int r = 0; r < kHeight; ++r) {
      const V everywhere = hn::Set(d, x[r * ldx + k]);
#pragma GCC unroll 32
      for (int v = 0; v < kWidth; ++v) {
        sums[r][v] = hn::MulAdd(everywhere, factors[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 14
  for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      deliver(tile, row + r, panel + p, sums[r] + p * kVectors);
    }
  }
}

template <class T>
void multiply_tile(const PackedTile& tile) {
  static constexpr auto kStrips = kernels::strips_of<kMost<T>, kVectors, kernels::kEnoughSums>(
      []<int kHeight, int kPanels>() { return multiply<T, kHeight, kPanels>; });
  kernels::run_strips(tile, kStrips);
}
kernels::PackedTileFunction float32_tile() { return multiply_tile<float>; }
kernels::PackedTileFunction bfloat16_tile() { return multiply_tile<BFloat16>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(float32_tile);
HWY_EXPORT(bfloat16_tile);

}  // namespace

kernels::PackedTileFunction kernels::packed_float32_tile() {
  return HWY_DYNAMIC_DISPATCH(float32_tile)();
}
kernels::PackedTileFunction kernels::packed_bfloat16_tile() {
  return HWY_DYNAMIC_DISPATCH(bfloat16_tile)();
}

}  // namespace tapestry
#endif
