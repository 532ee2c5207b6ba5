// How threads share the rows of a matrix. Only .cu files include this.
#pragma once

#include "core/kernels/cuda/common.cuh"

namespace tapestry {

/// A row of up to this many elements gets a warp, so that a block of kBlock threads takes several
/// rows; a longer row gets a block.
inline constexpr int64_t kWarpRowElements = 1024;

/// The threads that share one row: a warp, or the whole block.
template <bool kBlockPerRow>
struct RowThreads {
  static constexpr int kCount = kBlockPerRow ? kBlock : kWarp;
  static constexpr int kRowsPerBlock = kBlock / kCount;

  __device__ static int64_t row() {
    return static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kCount;
  }
  __device__ static int rank() { return static_cast<int>(threadIdx.x) % kCount; }
  /// Gives all of them the same result; all must call it.
  template <class T, class Op>
  __device__ static T reduce(T value, Op op, T identity) {
    if constexpr (kBlockPerRow) {
      return block_reduce(value, op, identity);
    } else {
      return warp_reduce(value, op);
    }
  }
  template <class T>
  __device__ static T sum(T value) {
    return reduce(value, SumOf(), T(0));
  }
};

/// Calls f(RowThreads, number of blocks) that suit `rows` rows of `cols` elements.
template <class F>
void with_row_threads(int64_t rows, int64_t cols, F f) {
  const auto blocks = [&](int per_block) {
    return static_cast<unsigned>((rows + per_block - 1) / per_block);
  };
  if (cols <= kWarpRowElements) return f(RowThreads<false>(), blocks(kBlock / kWarp));
  f(RowThreads<true>(), blocks(1));
}

}  // namespace tapestry
