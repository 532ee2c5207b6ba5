#include <algorithm>

#include "core/kernels/batch_norm.h"
#include "core/kernels/cuda/column_sums.cuh"
#include "core/kernels/cuda/packs.cuh"

namespace tapestry {
namespace {

// How threads share (rows, cols): each has N neighbouring columns, counted by x; the rows are dealt
// in turn to y, first within a block, then across blocks.
struct ColumnLaunch {
  ColumnLaunch(int64_t rows, int64_t packs) {
    unsigned x = kWarp;
    while (x > 1 && x / 2 >= packs) x /= 2;
    block = dim3(x, kBlock / x);
    const unsigned across = blocks_for(packs, x, INT32_MAX);
    // At least four rows a thread; about 1024 blocks fill the largest GPUs.
    const int64_t most = std::max<int64_t>(1, 1024 / std::max(across, 1u));
    grid = dim3(across, std::max(1u, blocks_for(rows, 4 * static_cast<int64_t>(block.y), most)));
  }
  dim3 grid, block;
};

// The thread's first column and row, and the step to its next row.
struct ColumnThread {
  int64_t column, row, step;
};
__device__ inline ColumnThread column_thread(int n) {
  return {(static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * n,
          static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y,
          static_cast<int64_t>(gridDim.y) * blockDim.y};
}

// The terms of sums over rows. Each has kSums sums of N columns; add() adds the elements at column
// c of the row that begins at `row`.
template <class T, int N>
struct Moment {  // x, or with a mean (x - mean)^2
  static constexpr int kSums = 1;
  const T* x;
  const Wider<T>* mean;

  __device__ void add(int64_t row, int64_t c, Wider<T> (&sums)[kSums][N]) const {
    Wider<T> v[N];
    load_pack(x + row + c, v);
    for (int j = 0; j < N; ++j) {
      const Wider<T> centred = mean != nullptr ? v[j] - mean[c + j] : v[j];
      sums[0][j] += mean != nullptr ? centred * centred : v[j];
    }
  }
};

template <class T, int N>
struct GradientSums {  // dy and dy * xhat
  static constexpr int kSums = 2;
  const T *x, *dy;
  const Wider<T>*mean, *variance;
  Wider<T> eps;

  __device__ void add(int64_t row, int64_t c, Wider<T> (&sums)[kSums][N]) const {
    Wider<T> v[N], slope[N];
    load_pack(x + row + c, v);
    load_pack(dy + row + c, slope);
    for (int j = 0; j < N; ++j) {
      const Wider<T> rstd = 1 / std::sqrt(variance[c + j] + eps);  // the same in every row
      sums[0][j] += slope[j];
      sums[1][j] += slope[j] * ((v[j] - mean[c + j]) * rstd);
    }
  }
};

// parts (kSums, gridDim.y, cols): the sums over the rows of each block.
template <class T, int N, template <class, int> class Terms>
__global__ void column_parts(Terms<T, N> terms, int64_t rows, int64_t cols, Wider<T>* parts) {
  using W = Wider<T>;
  constexpr int kSums = Terms<T, N>::kSums;
  static __shared__ W threads[kBlock][N];
  const auto [column, first_row, step] = column_thread(N);
  W sums[kSums][N] = {};
  if (column < cols) {
    for (int64_t r = first_row; r < rows; r += step) terms.add(r * cols, column, sums);
  }
  for (int k = 0; k < kSums; ++k) {
    __syncthreads();  // everyone has read the previous sum's values
    for (int j = 0; j < N; ++j) threads[threadIdx.y * blockDim.x + threadIdx.x][j] = sums[k][j];
    __syncthreads();
    if (threadIdx.y > 0 || column >= cols) continue;
    for (unsigned y = 1; y < blockDim.y; ++y) {
      for (int j = 0; j < N; ++j) sums[k][j] += threads[y * blockDim.x + threadIdx.x][j];
    }
    W* const part = parts + (static_cast<int64_t>(k) * gridDim.y + blockIdx.y) * cols;
    for (int j = 0; j < N; ++j) part[column + j] = sums[k][j];
  }
}

// (rows, cols): y = (x - mean) scale + beta, scale = gamma / sqrt(variance + eps), computed once
// per thread.
template <class T, int N>
__global__ void forward(BatchNormShape shape, BatchNormForward<T> args) {
  using W = Wider<T>;
  const auto [c, first_row, step] = column_thread(N);
  if (c >= shape.cols) return;
  W mean[N], scale[N], beta[N] = {};
  load_pack(args.gamma + c, scale);
  if (args.beta != nullptr) load_pack(args.beta + c, beta);
  for (int j = 0; j < N; ++j) {
    mean[j] = args.mean[c + j];
    scale[j] /= std::sqrt(args.variance[c + j] + static_cast<W>(shape.eps));
  }
  for (int64_t r = first_row; r < shape.rows; r += step) {
    W v[N];
    load_pack(args.x + r * shape.cols + c, v);
    for (int j = 0; j < N; ++j) v[j] = (v[j] - mean[j]) * scale[j] + beta[j];
    deliver_pack(args.y + r * shape.cols + c, v, Write::kSet);
  }
}

// (rows, cols): dx (=|+=) gamma rstd (dy - mean(dy) - xhat mean(dy xhat)); means (2, cols).
template <class T, int N>
__global__ void backward(BatchNormShape shape, BatchNormBackward<T> args, const Wider<T>* means) {
  using W = Wider<T>;
  const auto [c, first_row, step] = column_thread(N);
  if (c >= shape.cols) return;
  W mean[N], rstd[N], gamma[N], mean_dy[N], mean_dy_xhat[N];
  load_pack(args.gamma + c, gamma);
  for (int j = 0; j < N; ++j) {
    mean[j] = args.mean[c + j];
    rstd[j] = 1 / std::sqrt(args.variance[c + j] + static_cast<W>(shape.eps));
    mean_dy[j] = means[c + j];
    mean_dy_xhat[j] = means[shape.cols + c + j];
  }
  for (int64_t r = first_row; r < shape.rows; r += step) {
    W x[N], g[N];
    load_pack(args.x + r * shape.cols + c, x);
    load_pack(args.dy + r * shape.cols + c, g);
    for (int j = 0; j < N; ++j) {
      const W xhat = (x[j] - mean[j]) * rstd[j];
      g[j] = gamma[j] * rstd[j] * (g[j] - mean_dy[j] - xhat * mean_dy_xhat[j]);
    }
    deliver_pack(args.dx + r * shape.cols + c, g, args.dx_write);
  }
}

template <class T>
__global__ void update(double momentum, double scale, const T* x, T* running, int64_t n) {
  for (int64_t i = global_thread(); i < n; i += global_threads()) {
    if (!std::isfinite(x[i])) continue;
    running[i] = static_cast<T>((1 - momentum) * running[i] + momentum * (scale * x[i]));
  }
}

// Calls f(N as a constant).
template <class T, class F>
void with_pack(bool packed, F f) {
  if (packed) return f(std::integral_constant<int, kPack<T>>());
  f(std::integral_constant<int, 1>());
}

}  // namespace

namespace kernels {

template <class T>
void column_moments(Cuda, int64_t rows, int64_t cols, const T* x, Wider<T>* mean,
                    Wider<T>* variance) {
  using W = Wider<T>;
  with_pack<T>(can_pack<T>(cols, x), [&](auto pack) {
    constexpr int N = decltype(pack)::value;
    const ColumnLaunch how(rows, cols / N);
    DeviceScratch<W> parts(how.grid.y * cols);
    const auto moment = [&](const W* around, W* result) {
      launch({.kernel = "column_moments", .grid = how.grid, .block = how.block},
             column_parts<T, N, Moment>, Moment<T, N>{x, around}, rows, cols, parts.data());
      sum_parts<W>(parts.data(), how.grid.y, cols, 1 / static_cast<W>(rows), result, Write::kSet);
    };
    moment(nullptr, mean);
    moment(mean, variance);
  });
}

template <class T>
void batch_norm(Cuda, const BatchNormShape& shape, const BatchNormForward<T>& args) {
  with_pack<T>(can_pack<T>(shape.cols, args.x, args.gamma, args.beta, args.y), [&](auto pack) {
    constexpr int N = decltype(pack)::value;
    const ColumnLaunch how(shape.rows, shape.cols / N);
    launch({.kernel = "batch_norm", .grid = how.grid, .block = how.block}, forward<T, N>, shape,
           args);
  });
}

template <class T>
void batch_norm_backward(Cuda, const BatchNormShape& shape, const BatchNormBackward<T>& args) {
  using W = Wider<T>;
  const int64_t rows = shape.rows, cols = shape.cols;
  with_pack<T>(can_pack<T>(cols, args.x, args.gamma, args.dy, args.dx), [&](auto pack) {
    constexpr int N = decltype(pack)::value;
    const ColumnLaunch how(rows, cols / N);
    const int64_t count = how.grid.y;
    DeviceScratch<W> memory((2 * count + 2) * cols);
    W *const dy_parts = memory.data(), *const xhat_parts = dy_parts + count * cols;
    W* const means = xhat_parts + count * cols;
    const GradientSums<T, N> terms{args.x, args.dy, args.mean, args.variance,
                                   static_cast<W>(shape.eps)};
    launch({.kernel = "batch_norm_backward", .grid = how.grid, .block = how.block},
           column_parts<T, N, GradientSums>, terms, rows, cols, dy_parts);
    sum_parts<T>({xhat_parts, args.d_gamma, args.d_gamma_write},
                 {dy_parts, args.d_beta, args.d_beta_write}, count, cols);
    if (args.dx == nullptr || rows == 0) return;
    sum_parts<W>({dy_parts, means}, {xhat_parts, means + cols}, count, cols,
                 1 / static_cast<W>(rows));
    launch({.kernel = "batch_norm_backward", .grid = how.grid, .block = how.block}, backward<T, N>,
           shape, args, means);
  });
}

template <class T>
void update_running(Cuda, double momentum, double scale, const T* x, T* running, int64_t n) {
  launch({.kernel = "update_running", .grid = blocks_for(n)}, update<T>, momentum, scale, x,
         running, n);
}

#define TAPESTRY_BATCH_NORM(T)                                                          \
  template void column_moments(Cuda, int64_t, int64_t, const T*, Wider<T>*, Wider<T>*); \
  template void batch_norm(Cuda, const BatchNormShape&, const BatchNormForward<T>&);    \
  template void batch_norm_backward(Cuda, const BatchNormShape&, const BatchNormBackward<T>&);
TAPESTRY_BATCH_NORM(float)
TAPESTRY_BATCH_NORM(double)
TAPESTRY_BATCH_NORM(BFloat16)
// Running statistics are Wider<T> of a T.
template void update_running(Cuda, double, double, const float*, float*, int64_t);
template void update_running(Cuda, double, double, const double*, double*, int64_t);

}  // namespace kernels
}  // namespace tapestry
