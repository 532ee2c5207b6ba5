// Pairs of bfloat16 in AVX-512 registers, for the packers of products. A "pair" is two neighbours
// along the inner size k, at 2p and 2p + 1, in 32 bits. Floats are rounded to nearest, ties to
// even, subnormal numbers to 0. Include it in sources that call it only on processors with
// AVX512-BF16.
#pragma once

#ifdef __x86_64__

#if defined(__GNUC__) && !defined(__clang__)
// False positive in GCC 12's own intrinsics (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

#include "core/bfloat16.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")
namespace tapestry::kernels::pairs {

inline constexpr int64_t kLanes = 16;

/// The first n of 16 lanes.
inline __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>(n >= kLanes ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}
/// The first n of 32 lanes.
inline __mmask32 first_halves(int64_t n) {
  return n >= 2 * kLanes ? ~__mmask32{0} : n <= 0 ? 0 : (__mmask32{1} << n) - 1;
}

inline __m512i round_two(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

/// Conversion of a float: rounding, or one part of a split operand (tile_operand.h).
struct Rounded {
  static __m512i two(__m512 low, __m512 high) { return round_two(low, high); }
};

struct HighPart {
  /// The number to round.
  static __m512 of(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x), sign = _mm512_set1_epi32(INT32_MIN);
    const __m512i infinity = _mm512_set1_epi32(0x7f800000), one = _mm512_set1_epi32(0x3f800000);
    const __m512 largest = _mm512_castsi512_ps(_mm512_set1_epi32(0x7f7f0000));
    const __m512 smallest = _mm512_castsi512_ps(_mm512_set1_epi32(INT32_MIN | 0x7f7f0000));
    // Both instructions return their second argument if one is NaN.
    const __m512 finite = _mm512_max_ps(smallest, _mm512_min_ps(largest, x));
    const __mmask16 is_infinite =
        _mm512_cmpeq_epi32_mask(_mm512_andnot_si512(sign, bits), infinity);
    const __m512i signed_one = _mm512_or_si512(_mm512_and_si512(sign, bits), one);
    return _mm512_mask_mov_ps(finite, is_infinite, _mm512_castsi512_ps(signed_one));
  }
  static __m512i two(__m512 low, __m512 high) { return round_two(of(low), of(high)); }
};

struct LowPart {
  static __m512 of(__m512 x) {
    const auto high = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(HighPart::of(x)));
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16);
    return _mm512_sub_ps(x, _mm512_castsi512_ps(bits));
  }
  static __m512i two(__m512 low, __m512 high) { return round_two(of(low), of(high)); }
};

/// 32 elements, of which the first n exist and the others count as 0.
template <class Part = Rounded>
inline __m512i load_pairs(const float* x, int64_t n) {
  return Part::two(_mm512_maskz_loadu_ps(first_lanes(n), x),
                   _mm512_maskz_loadu_ps(first_lanes(n - kLanes), x + kLanes));
}
template <class Part = Rounded>
inline __m512i load_pairs(const BFloat16* x, int64_t n) {
  return _mm512_maskz_loadu_epi16(first_halves(n), x);
}

/// The pairs of two rows, column by column; lanes outside the masks are 0.
class RowPairs {
 public:
  RowPairs() {
    alignas(64) uint16_t order[32];
    for (uint16_t i = 0; i < 16; ++i) {
      order[2 * i] = i;
      order[2 * i + 1] = static_cast<uint16_t>(16 + i);
    }
    order_ = _mm512_load_si512(order);
  }
  template <class Part = Rounded>
  __m512i interleave(const float* even, __mmask16 even_mask, const float* odd,
                     __mmask16 odd_mask) const {
    return _mm512_permutexvar_epi16(order_, Part::two(_mm512_maskz_loadu_ps(even_mask, even),
                                                      _mm512_maskz_loadu_ps(odd_mask, odd)));
  }
  template <class Part = Rounded>
  __m512i interleave(const BFloat16* even, __mmask16 even_mask, const BFloat16* odd,
                     __mmask16 odd_mask) const {
    const __m512i low = _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(even_mask, even));
    const __m256i high = _mm256_maskz_loadu_epi16(odd_mask, odd);
    return _mm512_permutexvar_epi16(order_, _mm512_inserti64x4(low, high, 1));
  }

 private:
  __m512i order_;
};

/// rows[i][j] <-> rows[j][i], 32 bits each: within quarters of the registers, then of the quarters.
inline void transpose(__m512i (&rows)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512i ab_low = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    const __m512i ab_high = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    const __m512i cd_low = _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]);
    const __m512i cd_high = _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]);
    t[i] = _mm512_unpacklo_epi64(ab_low, cd_low);
    t[i + 1] = _mm512_unpackhi_epi64(ab_low, cd_low);
    t[i + 2] = _mm512_unpacklo_epi64(ab_high, cd_high);
    t[i + 3] = _mm512_unpackhi_epi64(ab_high, cd_high);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i even_low = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
    rows[i] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[i + 4] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    rows[i + 12] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

}  // namespace tapestry::kernels::pairs
HWY_POP_ATTRIBUTES
#endif  // __x86_64__
