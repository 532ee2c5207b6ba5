// Instructions that multiply four bytes by four others in each lane and add the products to it,
// without overflow: VPDPBUSD of x86-64, whose first bytes are unsigned, and SDOT of ARM64, where
// all are signed.
//
// Included once by the source of each instruction set, which defines Isa: V, its vectors of int32,
// and F, of float32, and
//   kLanes
//   kMost, kMostInt4: rows of a strip whose sums fit the registers; kSums: of strips_of()
//   load(memory), everywhere(int32 or float)
//   dot(sum, bytes of x or weights of int4, the other bytes)
//   start(v): of a sum, v those of its weights. Where bytes of x are q + 128: -128 v, else 0
//   low_halves(v), high_halves(v): of each byte
//   lower(v), upper(v): the bfloat16 of each lane, widened
//   to_floats(v), times(a, b), fused(a, b, c): a b + c
//   store(v, bias or null, y, count): v + bias
#include <cstring>

#include "core/kernels/packed/packed_tile.h"

namespace tapestry::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kGroup = PackedMatrix::kGroup;
constexpr int64_t kLanes = Isa::kLanes;
constexpr int kVectors = static_cast<int>(kPanel / kLanes);  // of a panel

// Vector v of a row of y.
void deliver(const PackedTile& tile, int64_t row, int64_t panel, int v, Isa::F sums) {
  const int64_t first = panel * kPanel + v * kLanes;
  const int64_t count = std::min(kLanes, tile.weight.rows() - first);
  if (count <= 0) return;
  Isa::store(sums, tile.bias != nullptr ? tile.bias + first : nullptr,
             tile.y + row * tile.ldy + first, count);
}

template <int kHeight, int kPanels>
void multiply(const PackedTile& tile, int64_t row, int64_t panel) {
  constexpr int kWidth = kPanels * kVectors;
  Isa::V sums[kHeight][kWidth];
#pragma GCC unroll 8
  for (int v = 0; v < kWidth; ++v) {
    const Isa::V start = Isa::start(Isa::load(tile.weight.sums() + panel * kPanel + v * kLanes));
#pragma GCC unroll 14
    for (int r = 0; r < kHeight; ++r) sums[r][v] = start;
  }
  const int64_t groups = (tile.weight.cols() + kGroup - 1) / kGroup;
  const int64_t ldx = tile.ldx, panel_size = groups * kGroup * kPanel;
  const uint8_t* q = tile.q + row * ldx;
  const int8_t* w = tile.weight.panel<int8_t>(panel);
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
#pragma GCC unroll 14
  for (int r = 0; r < kHeight; ++r) {
    const Isa::F scale = Isa::everywhere(tile.scales[row + r]);
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) {
      const Isa::F scales = Isa::load(tile.weight.scales() + panel * kPanel + v * kLanes);
      deliver(tile, row + r, panel, v,
              Isa::times(Isa::times(Isa::to_floats(sums[r][v]), scale), scales));
    }
  }
}

void multiply_tile(const PackedTile& tile) {
  static constexpr auto kStrips = strips_of<Isa::kMost, kVectors, Isa::kSums>(
      []<int kHeight, int kPanels>() { return multiply<kHeight, kPanels>; });
  run_strips(tile, kStrips);
}

// The bytes of weights are 8 too large. A group has sums of its own, which start at -8 times
// those of x.
template <int kHeight>
void multiply_int4(const PackedTile& tile, int64_t row, int64_t panel) {
  Isa::F totals[kHeight][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) totals[r][v] = Isa::everywhere(0.0F);
  }
  const int64_t groups = tile.groups();
  const uint8_t* group = tile.weight.panel<uint8_t>(panel);
  const uint8_t* q = tile.q + row * tile.ldx;
  for (int64_t g = 0; g < groups;
       ++g, group += PackedMatrix::kInt4Group, q += PackedMatrix::kInt4Columns) {
    Isa::V sums[kHeight][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
      const Isa::V start = Isa::everywhere(tile.starts[(row + r) * groups + g]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = start;
    }
#pragma GCC unroll 4
    for (int64_t p = 0; p < PackedMatrix::kInt4Columns / 8; ++p) {
      Isa::V low[kVectors], high[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Isa::V both =
            Isa::load(group + PackedMatrix::kInt4Scales + (p * kPanel + v * kLanes) * kGroup);
        low[v] = Isa::low_halves(both), high[v] = Isa::high_halves(both);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kHeight; ++r) {
        int32_t fours[2];
        std::memcpy(fours, q + r * tile.ldx + 2 * kGroup * p, sizeof fours);
        const Isa::V first = Isa::everywhere(fours[0]), second = Isa::everywhere(fours[1]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = Isa::dot(Isa::dot(sums[r][v], low[v], first), high[v], second);
        }
      }
    }
    Isa::F scales[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors / 2; ++v) {
      const Isa::V both = Isa::load(group + v * kLanes * kGroup);
      scales[v] = Isa::lower(both), scales[v + kVectors / 2] = Isa::upper(both);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
      const Isa::F scale = Isa::everywhere(tile.scales[(row + r) * groups + g]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        totals[r][v] =
            Isa::fused(Isa::to_floats(sums[r][v]), Isa::times(scale, scales[v]), totals[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) deliver(tile, row + r, panel, v, totals[r][v]);
  }
}

void multiply_int4_tile(const PackedTile& tile) {
  static constexpr auto kStrips = strips_of<Isa::kMostInt4, kVectors, 1>(
      []<int kHeight, int>() { return multiply_int4<kHeight>; });
  run_strips(tile, kStrips);
}

}  // namespace
}  // namespace tapestry::kernels
