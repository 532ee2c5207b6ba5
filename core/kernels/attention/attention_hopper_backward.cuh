// Shared by the backward kernels of attention for compute capability 9.0.
#pragma once

#include "core/kernels/attention/attention_hopper.cuh"

namespace tapestry {

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

/// The kernel for many heads, which computes all three gradients and each product once.
bool wants_hopper_heads(const AttentionShape& shape, const AttentionBackward<BFloat16>& args);
void attention_backward_hopper_heads(const AttentionShape& shape,
                                     const AttentionBackward<BFloat16>& args, const float* deltas);

}  // namespace tapestry
