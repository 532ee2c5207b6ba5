// The second half of a sum over rows: adds the partial rows of the blocks in an order that only the
// shape decides. Atomics would add in any order.
#pragma once

#include "core/kernels/cuda/common.cuh"

namespace tapestry {

/// Partial rows and where their sum goes; nowhere if `total` is null.
template <class T>
struct PartSums {
  const Wider<T>* parts = nullptr;  ///< (count, cols)
  T* total = nullptr;               ///< (cols)
  Write write = Write::kSet;
};

namespace column_sums {

constexpr int kLanes = 8;  // threads that share a column

// A block of (32, 8) threads has 32 columns; thread (x, y) adds parts y, y + 8, ... of column x,
// and thread (x, 0) the eight sums. The second row of blocks has the second sums.
template <class T>
__global__ void sum_parts_kernel(PartSums<T> first, PartSums<T> second, int64_t count, int64_t cols,
                                 Wider<T> factor) {
  static __shared__ Wider<T> sums[kLanes][kWarp];
  const bool is_first = blockIdx.y == 0;
  const Wider<T>* const parts = is_first ? first.parts : second.parts;
  T* const total = is_first ? first.total : second.total;
  if (total == nullptr) return;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  Wider<T> sum = 0;
  if (c < cols) {
    for (int64_t p = threadIdx.y; p < count; p += kLanes) sum += parts[p * cols + c];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= cols) return;
  for (int lane = 1; lane < kLanes; ++lane) sum += sums[lane][threadIdx.x];
  deliver(total + c, factor * sum, is_first ? first.write : second.write);
}

}  // namespace column_sums

/// total[c] (=|+=) factor * sum over p of parts[p * cols + c], p < count >= 0, for both.
template <class T>
void sum_parts(const PartSums<T>& first, const PartSums<T>& second, int64_t count, int64_t cols,
               Wider<T> factor = 1) {
  if (first.total == nullptr && second.total == nullptr) return;
  launch({.kernel = "sum_parts",
          .grid = dim3(blocks_for(cols, kWarp), second.total != nullptr ? 2 : 1),
          .block = dim3(kWarp, column_sums::kLanes)},
         column_sums::sum_parts_kernel<T>, first, second, count, cols, factor);
}
template <class T>
void sum_parts(const Wider<T>* parts, int64_t count, int64_t cols, Wider<T> factor, T* total,
               Write write) {
  sum_parts<T>({parts, total, write}, {}, count, cols, factor);
}

}  // namespace tapestry
