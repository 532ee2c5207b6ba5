#include "core/kernels/packed/packed_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/packed/packed_float32_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

using kernels::PackedTile;

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<float>()));
constexpr int kVectors = static_cast<int>(kPanel / kLanes);  // of a panel
// As many rows as leave registers for a vector of x and, with AVX-512, one of a panel.
constexpr int kMost = kVectors == 2 ? 14 : kVectors == 4 ? 3 : 1;

// The sums of a panel to a row of y.
HWY_INLINE void deliver(const PackedTile& tile, int64_t row, int64_t panel, const float* sums) {
  const int64_t first = panel * kPanel;
  float* const y = tile.y + row * tile.ldy + first;
  const float* const bias = tile.bias != nullptr ? tile.bias + first : nullptr;
  each_vector(Tag<float>(), tile.columns(panel), [&](auto io, int64_t i) HWY_ATTR {
    const Tag<float> d;
    auto sum = hn::Load(d, sums + i);
    if (bias != nullptr) sum = hn::Add(sum, io.load(d, bias + i));
    io.store(d, sum, y + i);
  });
}

// Rows [row, row + kHeight) by panels [panel, panel + kPanels).
template <int kHeight, int kPanels>
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
  const float* w = tile.weight.float_panel(panel);
  for (int64_t k = 0; k < cols; ++k, w += kPanel) {
    V factors[kWidth];
#pragma GCC unroll 32
    for (int v = 0; v < kWidth; ++v) {
      factors[v] = hn::Load(d, w + v / kVectors * panel_size + v % kVectors * kLanes);
    }
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
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      HWY_ALIGN float block[kPanel];
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) {
        hn::Store(sums[r][p * kVectors + v], d, block + v * kLanes);
      }
      deliver(tile, row + r, panel + p, block);
    }
  }
}

void multiply_tile(const PackedTile& tile) {
  static constexpr auto kStrips = kernels::strips_of<kMost, kVectors, kernels::kEnoughSums>(
      []<int kHeight, int kPanels>() { return multiply<kHeight, kPanels>; });
  kernels::run_strips(tile, kStrips);
}
kernels::PackedTileFunction float32_tile() { return multiply_tile; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(float32_tile);

}  // namespace

kernels::PackedTileFunction kernels::packed_float32_tile() {
  return HWY_DYNAMIC_DISPATCH(float32_tile)();
}

}  // namespace tapestry
#endif
