// sum_axis by blocks of rows, with their partial sums, in Wider<T>, added in a second round. This
// gives every multiprocessor work, and only the shape decides the order.
#include <algorithm>

#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/reduce.h"

namespace tapestry {
namespace {

// Sums of runs of neighbours: x (outer, n) is cut into runs of `run` elements (the last of a row
// may be shorter), y (outer, runs). One warp or block per run.
template <class Row, class In, class Out, int N>
__global__ void run_sums(const In* x, Out* y, int64_t outer, int64_t n, int64_t run, int64_t runs,
                         Wider<Out> scale, Write write) {
  const int64_t target = Row::row();
  if (target >= outer * runs) return;
  const int64_t begin = target % runs * run, packs = std::min(run, n - begin) / N;
  const auto* const from = reinterpret_cast<const Pack<In, N>*>(x + target / runs * n + begin);
  Wider<In> sum = 0;
#pragma unroll 4
  for (int64_t i = Row::rank(); i < packs; i += Row::kCount) {
    const Pack<In, N> values = from[i];
    for (int j = 0; j < N; ++j) sum += widen(values.v[j]);
  }
  sum = Row::sum(sum);
  if (Row::rank() == 0) deliver(y + target, scale * sum, write);
}

constexpr int kRowLanes = 8;  // rows that a block of column_sums reads at once

// Sums of columns: x (outer, n, inner), y (outer, blocks, inner), each block over `block` rows.
// Thread blocks are (kWarp, kRowLanes): a warp reads one row, N columns per lane, and each of the
// kRowLanes warps every kRowLanes-th row.
template <class In, class Out, int N>
__global__ void column_sums(const In* x, Out* y, int64_t n, int64_t inner, int64_t block,
                            int64_t blocks, int64_t strips, Wider<Out> scale, Write write) {
  static __shared__ Wider<In> sums[kRowLanes][N][kWarp];
  const int64_t target = blockIdx.x / strips;
  const int64_t col = (blockIdx.x % strips * kWarp + threadIdx.x) * N;
  const int64_t begin = target % blocks * block, rows = std::min(block, n - begin);
  Wider<In> sum[N] = {};
  if (col < inner) {
    const In* const from = x + (target / blocks * n + begin) * inner + col;
#pragma unroll 4
    for (int64_t r = threadIdx.y; r < rows; r += kRowLanes) {
      const auto values = *reinterpret_cast<const Pack<In, N>*>(from + r * inner);
      for (int j = 0; j < N; ++j) sum[j] += widen(values.v[j]);
    }
  }
  for (int j = 0; j < N; ++j) sums[threadIdx.y][j][threadIdx.x] = sum[j];
  __syncthreads();
  if (threadIdx.y != 0 || col >= inner) return;
  for (int j = 0; j < N; ++j) {
    Wider<In> total = 0;
    for (int lane = 0; lane < kRowLanes; ++lane) total += sums[lane][j][threadIdx.x];
    deliver(y + target * inner + col + j, scale * total, write);
  }
}

// How many of n elements or rows one block adds, given `others` blocks that run beside it anyway.
int64_t block_of(int64_t n, int64_t smallest, int64_t others) {
  constexpr int64_t kEnoughBlocks = 2048;
  const int64_t cuts = std::max<int64_t>(1, kEnoughBlocks / others);
  return std::max(smallest, (n + cuts - 1) / cuts);
}

template <class In, class Out>
void one_round(const AxisSum& sizes, int64_t block, const In* x, Out* y, double scale,
               Write write) {
  const auto [outer, n, inner] = sizes;
  const auto factor = static_cast<Wider<Out>>(scale);
  const int64_t blocks = (n + block - 1) / block;
  if (inner == 1) {
    const bool packed = can_pack<In>(n, x) && can_pack<In>(block);
    with_row_threads(outer * blocks, block, [&](auto row, unsigned grid) {
      using Row = decltype(row);
      launch({.kernel = "sum_axis", .grid = grid},
             packed ? run_sums<Row, In, Out, kPack<In>> : run_sums<Row, In, Out, 1>, x, y, outer, n,
             block, blocks, factor, write);
    });
    return;
  }
  const bool packed = can_pack<In>(inner, x);
  const int64_t strip = kWarp * (packed ? kPack<In> : 1), strips = (inner + strip - 1) / strip;
  launch({.kernel = "sum_axis",
          .grid = static_cast<unsigned>(outer * blocks * strips),
          .block = dim3(kWarp, kRowLanes)},
         packed ? column_sums<In, Out, kPack<In>> : column_sums<In, Out, 1>, x, y, n, inner, block,
         blocks, strips, factor, write);
}

}  // namespace

template <class In, class Out>
void sum_axis_cuda(const AxisSum& sizes, const In* x, Out* y, double scale, Write write) {
  const auto [outer, n, inner] = sizes;
  if (outer == 0 || inner == 0) return;
  if (n == 0) {
    if (write == Write::kSet) cuda::fill_zero(y, outer * inner * int64_t{sizeof(Out)});
    return;
  }
  const int64_t strip = kWarp * kPack<In>;
  const int64_t block = inner == 1 ? block_of(n, 16 * kBlock, outer) / kPack<In> * kPack<In>
                                   : block_of(n, 256, outer * ((inner + strip - 1) / strip));
  if (n <= block) return one_round(sizes, n, x, y, scale, write);
  const int64_t blocks = (n + block - 1) / block;
  DeviceScratch<Wider<In>> partial(outer * blocks * inner);
  one_round(sizes, block, x, partial.data(), 1, Write::kSet);
  sum_axis_cuda({outer, blocks, inner}, partial.data(), y, scale, write);
}

template void sum_axis_cuda(const AxisSum&, const float*, float*, double, Write);
template void sum_axis_cuda(const AxisSum&, const double*, double*, double, Write);
template void sum_axis_cuda(const AxisSum&, const BFloat16*, BFloat16*, double, Write);
template void sum_axis_cuda(const AxisSum&, const BFloat16*, float*, double, Write);
template void sum_axis_cuda(const AxisSum&, const float*, BFloat16*, double, Write);

namespace kernels {

template <class T>
void sum_axis(Cuda, const T* x, T* y, int64_t outer, int64_t n, int64_t inner, double scale,
              Write write) {
  sum_axis_cuda({outer, n, inner}, x, y, scale, write);
}

template void sum_axis(Cuda, const float*, float*, int64_t, int64_t, int64_t, double, Write);
template void sum_axis(Cuda, const double*, double*, int64_t, int64_t, int64_t, double, Write);
template void sum_axis(Cuda, const BFloat16*, BFloat16*, int64_t, int64_t, int64_t, double, Write);

}  // namespace kernels
}  // namespace tapestry
