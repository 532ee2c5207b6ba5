// Tiles of bfloat16 on tensor cores, for attention with head sizes 32, 64 and 128.
//
// A tile of weights is divided by rows among four warps: each owns 16 * kStrips rows with all
// kColumns columns, and never needs another warp's weights. A product with float accumulators gives
// a lane the elements (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1) of each 16 x 8 piece (g =
// lane / 4, q = lane % 4). Two such pieces, rounded to bfloat16, have the layout of the next
// product's left operand, so weights never leave the registers.
#pragma once

#include <fast_math.h>
#include <warp_mma.h>

#include "core/kernels/attention/attention_cuda.cuh"

namespace tapestry {

inline constexpr int kMmaWarps = 4;
inline constexpr int kMmaThreads = kMmaWarps * kWarp;
inline constexpr int kColumns = 64;           ///< of a tile of weights: rows that pass at a time
inline constexpr int kPieces = kColumns / 8;  ///< 8 columns wide

/// A warp's tile of weights, 16 rows a strip.
template <int kStrips>
using MmaWeights = float[kStrips][kPieces][4];
/// A warp's rows of the head size.
template <int kStrips, int kSize>
using MmaSums = float[kStrips][kSize / 8][4];

__device__ inline int lane_group() { return static_cast<int>(threadIdx.x) % kWarp / 4; }
__device__ inline int lane_in_group() { return static_cast<int>(threadIdx.x) % 4; }
/// Row and column of accumulator element e within its piece.
__device__ inline int piece_row(int e) { return lane_group() + e / 2 * 8; }
__device__ inline int piece_column(int e) { return lane_in_group() * 2 + e % 2; }

/// Rows of kSize bfloat16 in shared memory. The 16-byte chunks of a row are permuted so that eight
/// rows of one chunk, as well as eight chunks of one row, lie in different banks.
template <int kSize>
struct MmaTile {
  static constexpr int kChunks = kSize / 8;
  static constexpr int64_t bytes(int rows) { return int64_t{rows} * kSize * 2; }

  __device__ static int offset(int row, int chunk) {
    const int permutation = kChunks >= 8 ? row % 8 : row / 2 % 4;
    return (row * kChunks + (chunk ^ permutation)) * 8;
  }

  /// Starts to fill kRows rows: `count` from global memory, then zeros.
  template <int kRows>
  __device__ static void copy_async_rows(BFloat16* tile, const BFloat16* rows, int64_t stride,
                                         int64_t count) {
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kMmaThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const bool valid = row < count;
      copy_async<16>(tile + offset(row, chunk), valid ? rows + row * stride + chunk * 8 : rows,
                     valid);
    }
  }

  /// The left operand: rows [row, row + 16), elements [16 k, 16 k + 16).
  __device__ static void load_left(uint32_t (&words)[4], const BFloat16* tile, int row, int k) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    warp_load_matrices(words, tile + offset(row + lane % 16, 2 * k + lane / 16));
  }

  /// products (16 kStrips x kColumns) = own rows from `own_row` on times the passing rows.
  template <int kStrips>
  __device__ static void multiply_rows(const BFloat16* own, int own_row, const BFloat16* passing,
                                       MmaWeights<kStrips>& products) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (auto& strip : products) {
#pragma unroll
      for (auto& piece : strip) piece[0] = piece[1] = piece[2] = piece[3] = 0;
    }
    // Fully unrolled, head size 128 spills twice as many registers.
#pragma unroll(2)
    for (int k = 0; k < kSize / 16; ++k) {
      uint32_t left[kStrips][4];
#pragma unroll
      for (int s = 0; s < kStrips; ++s) load_left(left[s], own, own_row + 16 * s, k);
#pragma unroll
      for (int n = 0; n < kPieces; n += 2) {
        // Passing rows are columns of the right operand: two pieces, each with both halves of 16
        // elements.
        uint32_t right[4];
        warp_load_matrices(
            right, passing + offset(8 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
        for (int s = 0; s < kStrips; ++s) {
          warp_mma(products[s][n], left[s], right[0], right[1]);
          warp_mma(products[s][n + 1], left[s], right[2], right[3]);
        }
      }
    }
  }

  /// sums (16 kStrips x kSize) += weights, rounded to bfloat16, times the passing rows.
  template <int kStrips>
  __device__ static void add_weighted_rows(const MmaWeights<kStrips>& weights,
                                           const BFloat16* passing, MmaSums<kStrips, kSize>& sums) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int n = 0; n < kPieces; n += 2) {
      uint32_t left[kStrips][4];
#pragma unroll
      for (int s = 0; s < kStrips; ++s) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const float* const pair = &weights[s][n + word / 2][word % 2 * 2];
          left[s][word] = pack_bfloat16(pair[0], pair[1]);
        }
      }
#pragma unroll
      for (int c = 0; c < kChunks; c += 2) {
        uint32_t right[4];
        warp_load_transposed(right, passing + offset(8 * n + lane % 16, c + lane / 16));
#pragma unroll
        for (int s = 0; s < kStrips; ++s) {
          warp_mma(sums[s][c], left[s], right[0], right[1]);
          warp_mma(sums[s][c + 1], left[s], right[2], right[3]);
        }
      }
    }
  }

  /// y (=|+=) factor * a strip of sums: its first `count` rows. A piece's row is 16 bytes; the next
  /// piece fills the other half of a 32-byte sector.
  __device__ static void deliver_strip(const float (&sums)[kSize / 8][4], const float (&factor)[2],
                                       BFloat16* y, int64_t stride, int64_t count, Write write) {
    using Pair = Pack<BFloat16, 2>;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = piece_row(2 * half);
      if (row >= count) continue;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        auto* const to = reinterpret_cast<Pair*>(y + row * stride + 8 * c + piece_column(0));
        Pair pair = write == Write::kAdd ? *to : Pair{};
        for (int e = 0; e < 2; ++e) {
          deliver(&pair.v[e], sums[c][2 * half + e] * factor[half], write);
        }
        *to = pair;
      }
    }
  }
};

/// The mask of a tile with `t_count` queries from `first_t` on and `key_count` keys from
/// `first_key` on, in indices relative to those.
struct TileMask {
  bool all;
  int queries, keys;
  int low, high;  ///< query t sees the keys before `keys` from t + low up to t + high

  __device__ TileMask(const AttentionShape& shape, int64_t b, int64_t first_t, int t_count,
                      int64_t first_key, int key_count) {
    const int64_t diagonal = first_t + shape.keys - shape.queries - first_key;
    const int64_t far = shape.window > 0 ? shape.window - 1 : int64_t{1} << 40;
    const int64_t length = shape.key_lengths == nullptr ? shape.keys : shape.key_lengths[b];
    queries = bounded(shape.queries - first_t);
    keys = bounded((length < shape.keys ? length : shape.keys) - first_key);
    low = bounded(diagonal - far);
    high = bounded(diagonal + (shape.causal ? 0 : far));
    all =
        queries >= t_count && keys >= key_count && t_count - 1 + low <= 0 && high >= key_count - 1;
  }
  __device__ bool sees(int t, int key) const {
    return t < queries && key < keys && key >= t + low && key <= t + high;
  }

 private:
  static constexpr int kBound = 1024;  // more than any tile has
  __device__ static int bounded(int64_t n) {
    return n < -kBound ? -kBound : n > kBound ? kBound : static_cast<int>(n);
  }
};

/// Dropout's factors for one piece of the weights: element (row, column) has draw
/// `first + row * keys + column`, or, where rows are keys, `first + column * keys + row`. With
/// `aligned`, no block of four draws crosses the end of a row; then each lane calls the generator
/// once and the lanes exchange the draws.
template <bool kRowsAreKeys>
__device__ void piece_factors(const DropoutFactors<BFloat16>& dropout, int64_t first, int64_t keys,
                              bool aligned, float (&factors)[4]) {
  const int g = lane_group(), q = lane_in_group();
  const auto factor_of = [&](uint32_t bits) {
    return bits > dropout.last_dropped ? dropout.factor : 0.0f;
  };
  const auto swap = [](uint32_t& word, int lanes) {
    word = __shfl_xor_sync(0xffffffffu, word, lanes);
  };
  if (!aligned) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int64_t row = piece_row(e), column = piece_column(e);
      factors[e] = dropout.at(static_cast<uint64_t>(
          first + (kRowsAreKeys ? column * keys + row : row * keys + column)));
    }
  } else if constexpr (kRowsAreKeys) {
    // Four lanes with neighbouring g need the same four blocks, one for each element: lane m of
    // them draws block m, and the 4 x 4 words are transposed.
    const int m = g % 4;
    const int64_t draw = first + (2 * q + m % 2) * keys + g / 4 * 4 + m / 2 * 8;
    Philox4 bits = philox(dropout.key, static_cast<uint64_t>(draw) / 4);
    uint32_t(&w)[4] = bits.v;
#pragma unroll
    for (int step = 1; step <= 2; ++step) {
      const bool upper = (m & step) != 0;
#pragma unroll
      for (int i = 0; i < 4; i += step == 1 ? 2 : 1) {
        if ((i & step) != 0) continue;
        uint32_t sent = upper ? w[i] : w[i + step];
        swap(sent, 4 * step);
        (upper ? w[i] : w[i + step]) = sent;
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) factors[e] = factor_of(w[e]);
  } else {
    // Two neighbouring lanes need the halves of two blocks: the even one draws for row g, the odd
    // one for row g + 8.
    const bool odd = q % 2 != 0;
    const int64_t draw = first + (g + (odd ? 8 : 0)) * keys + q / 2 * 4;
    const Philox4 bits = philox(dropout.key, static_cast<uint64_t>(draw) / 4);
    uint32_t sent[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      sent[e] = odd ? bits.v[e] : bits.v[e + 2];
      swap(sent[e], 1);
      factors[e] = factor_of(odd ? sent[e] : bits.v[e]);
      factors[e + 2] = factor_of(odd ? bits.v[e + 2] : sent[e]);
    }
  }
}

/// A log-sum-exp in units of log2. Any value will do for a row that sees no key: its weights are
/// masked.
__device__ inline float shift_of(float log_sum_exp) {
  return log_sum_exp == -INFINITY ? 0.0f : log_sum_exp * static_cast<float>(kLog2E);
}

/// A warp's tile of weights in the backward pass: 16 own rows, 8 kPieces passing rows as columns.
/// kOfKeys: own rows are keys, and the statistics those of the columns; else those of the lane's
/// two rows.
template <bool kOfKeys>
struct GradientWeights {
  /// Scores become weights.
  template <int kPieces>
  __device__ static void weigh(float (&p)[kPieces][4], const TileMask& mask, float scale,
                               const float* shifts) {
    if (!mask.all) hide(mask, p, -INFINITY);
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      const Pair shift = of_columns(shifts, n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        p[n][e] = fast_exp2(fmaf(p[n][e], scale, -(kOfKeys ? shift.v[e % 2] : shifts[e / 2])));
      }
    }
  }

  /// ds: gradients of the dropped weights, which become those of the scores; and the weights are
  /// dropped. first_draw: of the tile's first query and key. Without kDropout the three are not
  /// read.
  template <bool kDropout, int kPieces>
  __device__ static void differentiate(float (&p)[kPieces][4], float (&ds)[kPieces][4],
                                       const TileMask& mask,
                                       const DropoutFactors<BFloat16>* dropout, int64_t first_draw,
                                       int64_t keys, const float* deltas) {
    if (!mask.all) hide(mask, ds, 0);
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      float factors[4] = {1, 1, 1, 1};
      if constexpr (kDropout) {
        piece_factors<kOfKeys>(*dropout, first_draw + 8 * n * (kOfKeys ? keys : 1), keys,
                               keys % 4 == 0, factors);
      }
      const Pair delta = of_columns(deltas, n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float subtracted = kOfKeys ? delta.v[e % 2] : deltas[e / 2];
        ds[n][e] = p[n][e] * fmaf(factors[e], ds[n][e], -subtracted);
        p[n][e] *= factors[e];
      }
    }
  }

 private:
  using Pair = Pack<float, 2>;

  __device__ static Pair of_columns(const float* statistics, int n) {
    if constexpr (!kOfKeys) return {};
    return *reinterpret_cast<const Pair*>(statistics + 8 * n + piece_column(0));
  }
  template <int kPieces>
  __device__ static void hide(const TileMask& mask, float (&x)[kPieces][4], float hidden) {
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = piece_row(e), column = 8 * n + piece_column(e);
        if (!(kOfKeys ? mask.sees(column, row) : mask.sees(row, column))) x[n][e] = hidden;
      }
    }
  }
};

/// Calls f(integral constant) for a head size that has tensor-core kernels.
template <class F>
void with_mma_size(int64_t head_size, F f) {
  if (head_size == 32) return f(std::integral_constant<int, 32>());
  if (head_size == 64) return f(std::integral_constant<int, 64>());
  f(std::integral_constant<int, 128>());
}

}  // namespace tapestry
