// VDPBF16PS adds, in each of its 16 lanes, the products of two neighbours along k: a row of a right
// tile holds such pairs of 16 columns, and a pair of a row of a left tile is broadcast to all
// lanes. Eight rows against two strips of columns keep 16 sums in registers, enough to hide the
// latency; ten loads feed 16 products. Sums are added in ascending pairs, so that only k decides
// their order.
#ifdef __x86_64__
#include <cstdint>
#include <cstring>

#include "core/kernels/cpu/bfloat16_pairs.h"
#include "core/kernels/cpu/tile_units.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")
namespace tapestry::kernels {
namespace {

constexpr int64_t kRows = 8;

template <int kStrips>
using Sums = __m512[kRows][kStrips];

// sums += the product of kRows rows of a left tile and one tile of each strip of columns.
template <int kStrips>
HWY_INLINE void add_tile(const BFloat16* a, const BFloat16* b, int64_t b_strip,
                         Sums<kStrips>& sums) {
#pragma GCC unroll 4
  for (int64_t p = 0; p < kTileDepth / 2; ++p) {
    __m512bh right[kStrips];
#pragma GCC unroll 2
    for (int s = 0; s < kStrips; ++s) {
      right[s] =
          reinterpret_cast<__m512bh>(_mm512_load_si512(b + s * b_strip + 2 * p * kTileStrip));
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, a + r * kTileDepth + 2 * p, sizeof(pair));
      const auto left = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 2
      for (int s = 0; s < kStrips; ++s) {
        sums[r][s] = _mm512_dpbf16_ps(sums[r][s], left, right[s]);
      }
    }
  }
}

// c (kRows, 16 kStrips) (=|+=) a block whose a begins with the rows.
template <int kStrips, TileForm kForm>
void multiply_rows(const TileBlock& block, const BFloat16* a, float* c, int64_t ldc, bool add) {
  Sums<kStrips> sums;
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int s = 0; s < kStrips; ++s) {
      sums[r][s] = add ? _mm512_loadu_ps(c + r * ldc + s * kTileStrip) : _mm512_setzero_ps();
    }
  }
  const BFloat16* b = block.b;
  for (int64_t t = 0; t < block.tiles; ++t) {
    if constexpr (kForm == TileForm::kSplit) {
      constexpr int64_t kLow = kElementsPerTile;
      add_tile<kStrips>(a + kLow, b, block.b_strip, sums);
      add_tile<kStrips>(a, b, block.b_strip, sums);
      add_tile<kStrips>(a, b + kLow, block.b_strip, sums);
    } else {
      add_tile<kStrips>(a, b, block.b_strip, sums);
    }
    a += stored_elements(kForm), b += stored_elements(kForm);
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int s = 0; s < kStrips; ++s) _mm512_storeu_ps(c + r * ldc + s * kTileStrip, sums[r][s]);
  }
}

}  // namespace

void PairProducts::multiply_block(const TileBlock& block, float* c, int64_t ldc, bool add) {
  const bool both = block.cols > kTileStrip;
  const auto multiply =
      block.form == TileForm::kSplit
          ? (both ? multiply_rows<2, TileForm::kSplit> : multiply_rows<1, TileForm::kSplit>)
          : (both ? multiply_rows<2, TileForm::kRounded> : multiply_rows<1, TileForm::kRounded>);
  for (int64_t r = 0; r < block.rows; r += kRows) {
    const BFloat16* const a =
        block.a + r / kTileStrip * block.a_strip + r % kTileStrip * kTileDepth;
    multiply(block, a, c + r * ldc, ldc, add);
  }
}

}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES
#else
#include "core/base/error.h"
#include "core/kernels/cpu/tile_units.h"

namespace tapestry::kernels {
void PairProducts::multiply_block(const TileBlock&, float*, int64_t, bool) {
  check(false, "products", "this processor has no AVX512-BF16.");
}
}  // namespace tapestry::kernels
#endif
