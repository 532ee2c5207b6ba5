// The backward pass of norm_cuda.cu, with the same division of rows.
#include <algorithm>

#include "core/kernels/cuda/column_sums.cuh"
#include "core/kernels/cuda/row_threads.cuh"
#include "core/kernels/norm.h"

namespace tapestry {
namespace {

// Partial rows of the sums over rows, at most: four blocks for each of an H100's 132
// multiprocessors. More would take longer to add up than they save.
constexpr int64_t kMaxParts = 528;

// With g = gamma dy, xhat = (x - mean) rstd:
// ds = rstd (g - mean(g) - xhat mean(g xhat)) + dsum; RMS has no mean(g).
template <class T>
struct RowGradient {
  using W = Wider<T>;
  W mean, rstd, g_mean = 0, gx_mean = 0;

  __device__ RowGradient(const NormShape& shape, const NormBackward<T>& args, int64_t r)
      : mean(shape.kind == NormKind::kLayer ? args.mean[r] : W(0)), rstd(args.rstd[r]) {}

  __device__ W xhat(W s) const { return (s - mean) * rstd; }
  __device__ W of_norm(W g, W xhat) const { return rstd * ((g - g_mean) - xhat * gx_mean); }
};

// d_residual (=|+=) ds and dx (=|+=) dropout(ds), N elements from `i` on.
template <class T, int N>
__device__ void deliver_gradient(const NormBackward<T>& args, const DropoutFactors<T>& dropout,
                                 int64_t i, Wider<T> (&ds)[N]) {
  if (args.d_residual != nullptr) deliver_pack(args.d_residual + i, ds, args.d_residual_write);
  if (args.dx == nullptr) return;
  if (dropout.on) {
    Wider<T> factor[N];
    factor_pack(dropout, static_cast<uint64_t>(i), factor);
    for (int j = 0; j < N; ++j) ds[j] *= factor[j];
  }
  deliver_pack(args.dx + i, ds, args.dx_write);
}

// parts (2, gridDim.x, cols) or null: this block's part of d_gamma, then of d_beta.
template <class W>
__device__ W* part_of(W* parts, int which, int64_t cols) {
  return parts + (static_cast<int64_t>(which) * gridDim.x + blockIdx.x) * cols;
}

// out[c] = the sum of column c over the warps; each lane holds N columns.
template <class W, int N>
__device__ void add_warps(const W (&v)[N], int64_t first_col, int64_t cols, W* out) {
  static __shared__ W warps[kRowWarps][kWarp * N];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  __syncthreads();  // everyone has read the previous call's values
  for (int j = 0; j < N; ++j) warps[warp][lane * N + j] = v[j];
  __syncthreads();
  for (int i = threadIdx.x; i < kWarp * N && first_col + i < cols; i += kRowWarps * kWarp) {
    W sum = warps[0][i];
    for (int w = 1; w < kRowWarps; ++w) sum += warps[w][i];
    out[first_col + i] = sum;
  }
}

// As forward_in_registers, but each block takes many rows: a thread has the same columns in all of
// them and sums its part of d_gamma and d_beta. No more blocks than run at the same time, so that
// all end together. All of a row is asked for before any of it is used, and stays as it was read:
// in fewer registers than its numbers would need, for as many blocks as possible at a time.
template <class T, int kValues, bool kWarpRow>
constexpr int kBackwardBlocks = !kWarpRow || sizeof(T) == 8 ? 1
                                : kValues > 24              ? 2
                                : kValues > 16              ? 3
                                : kValues > 8               ? 4
                                                            : 5;

template <class T, int N, int kPacks, bool kWarpRow>
__global__ void __launch_bounds__(kMaxThreads<kWarpRow>, kBackwardBlocks<T, kPacks * N, kWarpRow>)
    backward_in_registers(NormShape shape, NormBackward<T> args, DropoutFactors<T> dropout,
                          Wider<T>* parts) {
  using W = Wider<T>;
  using Row = RowThreads<kWarpRow>;
  using Packed = Pack<T, N>;
  const int64_t cols = shape.cols, begin = Row::thread() * N, step = Row::threads() * N;
  const auto pack_at = [](const T* x) { return *reinterpret_cast<const Packed*>(x); };
  W d_gamma[kPacks][N] = {}, d_beta[kPacks][N] = {};
  for (int64_t r = Row::first_row(); r < shape.rows; r += Row::rows_of_grid()) {
    const int64_t first = r * cols;
    Packed s[kPacks] = {}, dy[kPacks] = {}, dsum[kPacks] = {};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t c = begin + p * step;
      if (c >= cols) continue;
      if (args.dy != nullptr) {
        s[p] = pack_at(args.sum + first + c);
        dy[p] = pack_at(args.dy + first + c);
      }
      if (args.dsum != nullptr) dsum[p] = pack_at(args.dsum + first + c);
    }
    RowGradient<T> row(shape, args, r);
    if (args.dy != nullptr) {
      W g_sum = 0, gx_sum = 0;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (begin + p * step >= cols) continue;
        const Packed gamma = pack_at(args.gamma + begin + p * step);
        W sum[N], d[N], weight[N];
        unpack(s[p], sum), unpack(dy[p], d), unpack(gamma, weight);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const W xhat = row.xhat(sum[j]), g = d[j] * weight[j];
          d_gamma[p][j] += d[j] * xhat;
          d_beta[p][j] += d[j];
          g_sum += g;
          gx_sum += g * xhat;
        }
      }
      const W n = static_cast<W>(cols);
      if (shape.kind == NormKind::kLayer) row.g_mean = Row::sum(g_sum) / n;
      row.gx_mean = Row::sum(gx_sum) / n;
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t c = begin + p * step;
      if (c >= cols) continue;
      keep_as_read(s[p]);
      keep_as_read(dy[p]);
      const Packed gamma = pack_at(args.gamma + c);
      W sum[N], d[N], weight[N], ds[N];
      unpack(s[p], sum), unpack(dy[p], d), unpack(gamma, weight), unpack(dsum[p], ds);
#pragma unroll
      for (int j = 0; j < N; ++j) ds[j] += row.of_norm(d[j] * weight[j], row.xhat(sum[j]));
      deliver_gradient(args, dropout, first + c, ds);
    }
  }
  if (parts == nullptr) return;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if constexpr (kWarpRow) {
      add_warps(d_gamma[p], p * step, cols, part_of(parts, 0, cols));
      add_warps(d_beta[p], p * step, cols, part_of(parts, 1, cols));
    } else {
      const int64_t c = begin + p * step;
      if (c >= cols) continue;
      deliver_pack(part_of(parts, 0, cols) + c, d_gamma[p], Write::kSet);
      deliver_pack(part_of(parts, 1, cols) + c, d_beta[p], Write::kSet);
    }
  }
}

// As forward_by_passes; the sums over rows grow in `parts` itself.
template <class T>
__global__ void backward_by_passes(NormShape shape, NormBackward<T> args, DropoutFactors<T> dropout,
                                   Wider<T>* parts) {
  using W = Wider<T>;
  const int64_t cols = shape.cols;
  for (int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    const int64_t first = r * cols;
    const Write write = r == blockIdx.x ? Write::kSet : Write::kAdd;
    RowGradient<T> row(shape, args, r);
    W g_sum = 0, gx_sum = 0;
    for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
      const W dy = args.dy != nullptr ? widen(args.dy[first + c]) : W(0);
      const W xhat = row.xhat(widen(args.sum[first + c])), g = dy * widen(args.gamma[c]);
      g_sum += g;
      gx_sum += g * xhat;
      if (parts == nullptr) continue;
      deliver<W>(part_of(parts, 0, cols) + c, dy * xhat, write);
      deliver<W>(part_of(parts, 1, cols) + c, dy, write);
    }
    const W n = static_cast<W>(cols);
    if (shape.kind == NormKind::kLayer) row.g_mean = block_sum(g_sum) / n;
    row.gx_mean = block_sum(gx_sum) / n;
    for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
      W ds[1] = {0};
      if (args.dy != nullptr) {
        ds[0] = row.of_norm(widen(args.dy[first + c]) * widen(args.gamma[c]),
                            row.xhat(widen(args.sum[first + c])));
      }
      if (args.dsum != nullptr) ds[0] += widen(args.dsum[first + c]);
      deliver_gradient(args, dropout, first + c, ds);
    }
  }
}

}  // namespace

namespace kernels {

template <class T>
void norm_backward(Cuda, const NormShape& shape, const NormBackward<T>& given) {
  NormBackward<T> args = given;
  // Gradients that dx is added to are read early, with the rest of the row.
  const bool is_addend = args.dsum == nullptr && args.d_residual == nullptr &&
                         args.dx_write == Write::kAdd && args.dropout.p == 0;
  if (is_addend) args.dsum = args.dx, args.dx_write = Write::kSet;
  const DropoutFactors<T> dropout(args.dropout);
  const bool sums = args.d_gamma != nullptr || args.d_beta != nullptr;
  DeviceScratch<Wider<T>> memory(sums ? 2 * std::min(shape.rows, kMaxParts) * shape.cols : 0);
  Wider<T>* const parts = sums ? memory.data() : nullptr;
  unsigned blocks = 0;
  const bool packed =
      can_pack<T>(shape.cols, args.sum, args.gamma, args.dy, args.dsum, args.dx, args.d_residual);
  const bool done =
      packed &&
      // A thread holds four values for each column, so a block of 512 has half of the columns.
      with_registers<kMostPacks<T>, kMostPacks<T> / 2>(shape.cols / kPack<T>, [&](auto packs,
                                                                                  auto warp_row,
                                                                                  int64_t threads) {
        constexpr int kPacks = decltype(packs)::value;
        constexpr bool kWarpRow = decltype(warp_row)::value;
        const auto kernel = backward_in_registers<T, kPack<T>, kPacks, kWarpRow>;
        const int64_t at_once = cuda::internal::blocks_at_once(
            reinterpret_cast<const void*>(kernel), static_cast<int>(threads));
        blocks = blocks_for(shape.rows, kWarpRow ? kRowWarps : 1, std::min(kMaxParts, at_once));
        launch({.kernel = "norm_backward", .grid = blocks, .block = static_cast<unsigned>(threads)},
               kernel, shape, args, dropout, parts);
      });
  if (!done) {
    blocks = blocks_for(shape.rows, 1, kMaxParts);
    launch({.kernel = "norm_backward", .grid = blocks}, backward_by_passes<T>, shape, args, dropout,
           parts);
  }
  sum_parts<T>({parts, args.d_gamma, args.d_gamma_write},
               {parts + blocks * shape.cols, args.d_beta, args.d_beta_write}, blocks, shape.cols);
}

#define TAPESTRY_NORM(T) \
  template void norm_backward(Cuda, const NormShape&, const NormBackward<T>&);
TAPESTRY_NORM(float)
TAPESTRY_NORM(double)
TAPESTRY_NORM(BFloat16)

}  // namespace kernels
}  // namespace tapestry
