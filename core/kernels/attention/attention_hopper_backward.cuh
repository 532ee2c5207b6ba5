// Shared by the backward kernels of attention for compute capability 9.0.
#pragma once

#include "core/kernels/attention/attention_hopper.cuh"

namespace tapestry {

/// In units of log2. Any value will do for a row that sees no key: its weights are masked.
__device__ inline float shift_of(float log_sum_exp) {
  return log_sum_exp == -INFINITY ? 0.0f : log_sum_exp * static_cast<float>(kLog2E);
}

/// Statistics of the passing queries, in shared memory.
template <int kPassing>
struct QueryStatistics {
  float shift[kPassing];  ///< log-sum-exp in units of log2
  float delta[kPassing];

  /// By a warp: of queries [row, to) of (b, head), then zeros.
  __device__ void fill(const AttentionShape& shape, const float* log_sum_exp, const float* deltas,
                       int64_t b, int64_t head, int64_t row, int64_t to) {
    const int64_t index = weight_row(shape, b, head, row);
    for (int i = static_cast<int>(threadIdx.x) % kWarp; i < kPassing; i += kWarp) {
      const bool valid = row + i < to;
      shift[i] = valid ? shift_of(log_sum_exp[index + i]) : 0.0f;
      delta[i] = valid ? deltas[index + i] : 0.0f;
    }
  }
};

/// A warp's tile of weights and of their gradients: 16 own rows, 8 kPieces passing rows as columns.
/// kOfKeys: own rows are keys, and the statistics those of the columns; else those of the rows.
template <bool kOfKeys, int kPieces>
struct GradientWeights {
  float p[kPieces][4];   ///< scores, then weights
  float ds[kPieces][4];  ///< gradients of the weights, then of the scores

  /// Scores become weights. shifts: of the columns, or of the lane's two rows.
  __device__ void weigh(const TileMask& mask, float scale, const float* shifts) {
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

  /// Gradients of the dropped weights become those of the scores, and the weights are dropped.
  /// first_draw: of the tile's first query and key. Without kDropout the three are not read.
  template <bool kDropout>
  __device__ void differentiate(const TileMask& mask, const DropoutFactors<BFloat16>* dropout,
                                int64_t first_draw, int64_t keys, const float* deltas) {
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

/// The kernel for many heads, which computes all three gradients and each product once.
bool wants_hopper_heads(const AttentionShape& shape, const AttentionBackward<BFloat16>& args);
void attention_backward_hopper_heads(const AttentionShape& shape,
                                     const AttentionBackward<BFloat16>& args, const float* deltas);

}  // namespace tapestry
