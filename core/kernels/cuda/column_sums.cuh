// The second half of a sum over rows: adds the partial rows of the blocks in an order that only the
// shape decides. Atomics would add in any order.
#pragma once

#include "core/kernels/cuda/common.cuh"

namespace tapestry {
namespace column_sums {

constexpr int kLanes = 8;  // threads that share a column

// parts (count, cols) -> total (cols). A block of (32, 8) threads has 32 columns; thread (x, y)
// adds parts y, y + 8, ... of column x, and thread (x, 0) the eight sums.
template <class T>
__global__ void sum_parts_kernel(const Wider<T>* parts, int64_t count, int64_t cols,
                                 Wider<T> factor, T* total, Write write) {
  static __shared__ Wider<T> sums[kLanes][kWarp];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  Wider<T> sum = 0;
  if (c < cols) {
    for (int64_t p = threadIdx.y; p < count; p += kLanes) sum += parts[p * cols + c];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= cols) return;
  for (int lane = 1; lane < kLanes; ++lane) sum += sums[lane][threadIdx.x];
  deliver(total + c, factor * sum, write);
}

}  // namespace column_sums

/// total[c] (=|+=) factor * sum over p of parts[p * cols + c], p < count >= 0.
template <class T>
void sum_parts(const Wider<T>* parts, int64_t count, int64_t cols, Wider<T> factor, T* total,
               Write write) {
  launch({.kernel = "sum_parts",
          .grid = blocks_for(cols, kWarp),
          .block = dim3(kWarp, column_sums::kLanes)},
         column_sums::sum_parts_kernel<T>, parts, count, cols, factor, total, write);
}

}  // namespace tapestry
