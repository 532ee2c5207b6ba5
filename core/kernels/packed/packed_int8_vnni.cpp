// VPDPBUSD multiplies four unsigned bytes by four signed ones in each lane and adds the products to
// it, without overflow. The unsigned bytes are q + 128, so a sum is 128 times the sum of its
// weights too large: it starts that much below 0.
#if defined(__GNUC__) && !defined(__clang__)
// False positive in GCC 12's own intrinsics (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstring>

#include "core/kernels/packed/packed_tile.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni")
namespace tapestry::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kGroup = PackedMatrix::kGroup;
constexpr int64_t kLanes = 16;
constexpr int kVectors = 2;  // of a panel
constexpr int kMost = 14;    // rows: 28 of the 32 registers hold sums

template <int kHeight, int kPanels>
void multiply(const PackedTile& tile, int64_t row, int64_t panel) {
  constexpr int kWidth = kPanels * kVectors;
  __m512i sums[kHeight][kWidth];
#pragma GCC unroll 8
  for (int v = 0; v < kWidth; ++v) {
    const int32_t* const all = tile.weight.sums() + panel * kPanel + v * kLanes;
    const __m512i start =
        _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(_mm512_load_si512(all), 7));
#pragma GCC unroll 14
    for (int r = 0; r < kHeight; ++r) sums[r][v] = start;
  }
  const int64_t groups = (tile.weight.cols() + kGroup - 1) / kGroup;
  const int64_t ldx = tile.ldx, panel_size = groups * kGroup * kPanel;
  const uint8_t* q = tile.q + row * ldx;
  const int8_t* w = tile.weight.int8_panel(panel);
  for (int64_t g = 0; g < groups; ++g, q += kGroup, w += kGroup * kPanel) {
    __m512i factors[kWidth];
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) {
      factors[v] =
          _mm512_load_si512(w + v / kVectors * panel_size + v % kVectors * kGroup * kLanes);
    }
#pragma GCC unroll 14
    for (int r = 0; r < kHeight; ++r) {
      int32_t four = 0;
      std::memcpy(&four, q + r * ldx, sizeof four);
      const __m512i everywhere = _mm512_set1_epi32(four);
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; ++v) {
        sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], everywhere, factors[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kWidth; ++v) {
    const int64_t first = panel * kPanel + v * kLanes;
    const int64_t left = std::min(kLanes, tile.weight.rows() - first);
    if (left <= 0) break;
    const auto mask = static_cast<__mmask16>((1U << left) - 1);
    const __m512 scales = _mm512_load_ps(tile.weight.scales() + first);
#pragma GCC unroll 14
    for (int r = 0; r < kHeight; ++r) {
      const __m512 sum = _mm512_cvtepi32_ps(sums[r][v]);
      __m512 y = _mm512_mul_ps(_mm512_mul_ps(sum, _mm512_set1_ps(tile.scales[row + r])), scales);
      if (tile.bias != nullptr) {
        y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, tile.bias + first));
      }
      _mm512_mask_storeu_ps(tile.y + (row + r) * tile.ldy + first, mask, y);
    }
  }
}

void multiply_tile(const PackedTile& tile) {
  static constexpr auto kStrips = strips_of<kMost, kVectors, kEnoughSums>(
      []<int kHeight, int kPanels>() { return multiply<kHeight, kPanels>; });
  run_strips(tile, kStrips);
}

}  // namespace

PackedTileFunction packed_int8_vnni_tile() { return multiply_tile; }

}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES
