// VPDPBUSD multiplies four unsigned bytes by four signed ones in each lane and adds the products to
// it, without overflow. The unsigned bytes are q + 128, so a sum is 128 times the sum of its
// weights too large: it starts that much below 0.
//
// Included once by the source of each width, which defines Isa: its vectors of int32, and
//   kLanes
//   kMost: rows of a strip whose sums fit the registers
//   load(memory), start(sums of weights): -128 times them
//   everywhere(int32), dot(sum, a, b)
//   deliver(sum, scale of x, scales, bias or null, y, count)
#include <cstring>

#include "core/kernels/packed/packed_tile.h"

namespace tapestry::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kGroup = PackedMatrix::kGroup;
constexpr int kVectors = static_cast<int>(kPanel / Isa::kLanes);  // of a panel

template <int kHeight, int kPanels>
void multiply(const PackedTile& tile, int64_t row, int64_t panel) {
  constexpr int64_t kLanes = Isa::kLanes;
  constexpr int kWidth = kPanels * kVectors;
  Isa::V sums[kHeight][kWidth];
#pragma GCC unroll 8
  for (int v = 0; v < kWidth; ++v) {
    const Isa::V start = Isa::start(tile.weight.sums() + panel * kPanel + v * kLanes);
#pragma GCC unroll 14
    for (int r = 0; r < kHeight; ++r) sums[r][v] = start;
  }
  const int64_t groups = (tile.weight.cols() + kGroup - 1) / kGroup;
  const int64_t ldx = tile.ldx, panel_size = groups * kGroup * kPanel;
  const uint8_t* q = tile.q + row * ldx;
  const int8_t* w = tile.weight.int8_panel(panel);
  for (int64_t g = 0; g < groups; ++g, q += kGroup, w += kGroup * kPanel) {
    Isa::V factors[kWidth];
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) {
      factors[v] = Isa::load(w + v / kVectors * panel_size + v % kVectors * kGroup * kLanes);
    }
#pragma GCC unroll 14
    for (int r = 0; r < kHeight; ++r) {
      int32_t four = 0;
      std::memcpy(&four, q + r * ldx, sizeof four);
      const Isa::V everywhere = Isa::everywhere(four);
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; ++v) {
        sums[r][v] = Isa::dot(sums[r][v], everywhere, factors[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kWidth; ++v) {
    const int64_t first = panel * kPanel + v * kLanes;
    const int64_t left = std::min(kLanes, tile.weight.rows() - first);
    if (left <= 0) break;
#pragma GCC unroll 14
    for (int r = 0; r < kHeight; ++r) {
      Isa::deliver(sums[r][v], tile.scales[row + r], tile.weight.scales() + first,
                   tile.bias != nullptr ? tile.bias + first : nullptr,
                   tile.y + (row + r) * tile.ldy + first, left);
    }
  }
}

void multiply_tile(const PackedTile& tile) {
  static constexpr auto kStrips = strips_of<Isa::kMost, kVectors, Isa::kSums>(
      []<int kHeight, int kPanels>() { return multiply<kHeight, kPanels>; });
  run_strips(tile, kStrips);
}

}  // namespace
}  // namespace tapestry::kernels
