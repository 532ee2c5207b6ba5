// A row is held in the registers of a warp or a block and read in accesses of 16 bytes, so that
// each input is read once. Rows that do not fit or cannot be read in packs take several passes, the
// later ones from the cache.
#include "core/kernels/norm.h"

#include "core/kernels/cuda/row_threads.cuh"

namespace tapestry {
namespace {

// s = residual + dropout(x) of N elements from `i` on, rounded to T: forward must use the same
// values that `sum` stores for backward.
template <class T, int N>
__device__ void load_sum(const NormForward<T>& args, const DropoutFactors<T>& dropout, int64_t i,
                         Wider<T> (&s)[N]) {
  load_pack(args.x + i, s);
  if (args.residual == nullptr) return;
  Wider<T> residual[N], factor[N];
  load_pack(args.residual + i, residual);
  factor_pack(dropout, static_cast<uint64_t>(i), factor);
  for (int j = 0; j < N; ++j) s[j] = widen(narrow<T>(residual[j] + factor[j] * s[j]));
}

// (rows, cols): a warp or a block for each row, kPacks packs of N columns for each thread; columns
// that do not exist count as 0.
template <class T, int N, int kPacks, bool kWarpRow>
__global__ void __launch_bounds__(kMaxThreads<kWarpRow>)
    forward_in_registers(NormShape shape, NormForward<T> args, DropoutFactors<T> dropout) {
  using W = Wider<T>;
  using Row = RowThreads<kWarpRow>;
  const int64_t r = Row::first_row();
  if (r >= shape.rows) return;
  const int64_t first = r * shape.cols, begin = Row::thread() * N, step = Row::threads() * N;
  W s[kPacks][N] = {};
  W sum = 0;
#pragma unroll  // keeps the arrays in registers
  for (int p = 0; p < kPacks; ++p) {
    const int64_t c = begin + p * step;
    if (c >= shape.cols) continue;
    load_sum(args, dropout, first + c, s[p]);
    if (args.sum != nullptr) deliver_pack(args.sum + first + c, s[p], Write::kSet);
    for (const W v : s[p]) sum += v;
  }
  const W n = static_cast<W>(shape.cols);
  W mean = 0;
  if (shape.kind == NormKind::kLayer) mean = Row::sum(sum) / n;
  W squares = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (begin + p * step >= shape.cols) continue;
    for (const W v : s[p]) squares += (v - mean) * (v - mean);
  }
  const W rstd = 1 / std::sqrt(Row::sum(squares) / n + static_cast<W>(shape.eps));
  if (Row::thread() == 0) {
    if (shape.kind == NormKind::kLayer) args.mean[r] = mean;
    args.rstd[r] = rstd;
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t c = begin + p * step;
    if (c >= shape.cols) continue;
    W gamma[N], beta[N] = {};
    load_pack(args.gamma + c, gamma);
    if (args.beta != nullptr) load_pack(args.beta + c, beta);
    for (int j = 0; j < N; ++j) s[p][j] = (s[p][j] - mean) * rstd * gamma[j] + beta[j];
    deliver_pack(args.y + first + c, s[p], Write::kSet);
  }
}

// (rows, cols): a block for each row of any width. A thread reads back only what it wrote itself.
template <class T>
__global__ void forward_by_passes(NormShape shape, NormForward<T> args, DropoutFactors<T> dropout) {
  using W = Wider<T>;
  const int64_t r = blockIdx.x, first = r * shape.cols;
  const T* s = args.x + first;
  if (args.residual != nullptr) {
    // If args.sum is null, y holds the sum until the norm overwrites it.
    T* const kept = (args.sum != nullptr ? args.sum : args.y) + first;
    for (int64_t c = threadIdx.x; c < shape.cols; c += blockDim.x) {
      W v[1];
      load_sum(args, dropout, first + c, v);
      kept[c] = narrow<T>(v[0]);
    }
    s = kept;
  }
  const W n = static_cast<W>(shape.cols);
  W mean = 0;
  if (shape.kind == NormKind::kLayer) {
    W sum = 0;
    for (int64_t c = threadIdx.x; c < shape.cols; c += blockDim.x) sum += widen(s[c]);
    mean = block_sum(sum) / n;
  }
  W squares = 0;
  for (int64_t c = threadIdx.x; c < shape.cols; c += blockDim.x) {
    const W centred = widen(s[c]) - mean;
    squares += centred * centred;
  }
  const W rstd = 1 / std::sqrt(block_sum(squares) / n + static_cast<W>(shape.eps));
  if (threadIdx.x == 0) {
    if (shape.kind == NormKind::kLayer) args.mean[r] = mean;
    args.rstd[r] = rstd;
  }
  for (int64_t c = threadIdx.x; c < shape.cols; c += blockDim.x) {
    const W beta = args.beta != nullptr ? widen(args.beta[c]) : W(0);
    args.y[first + c] = narrow<T>((widen(s[c]) - mean) * rstd * widen(args.gamma[c]) + beta);
  }
}

}  // namespace

namespace kernels {

template <class T>
void norm(Cuda, const NormShape& shape, const NormForward<T>& args) {
  const DropoutFactors<T> dropout(args.dropout);
  const bool packed =
      can_pack<T>(shape.cols, args.x, args.residual, args.gamma, args.beta, args.sum, args.y);
  const bool done =
      packed &&
      with_registers<kMostPacks<T>, kMostPacks<T>>(
          shape.cols / kPack<T>, [&](auto packs, auto warp_row, int64_t threads) {
            constexpr int kPacks = decltype(packs)::value;
            constexpr bool kWarpRow = decltype(warp_row)::value;
            launch({.kernel = "norm",
                    .grid = blocks_for(shape.rows, kWarpRow ? kRowWarps : 1, INT32_MAX),
                    .block = static_cast<unsigned>(threads)},
                   forward_in_registers<T, kPack<T>, kPacks, kWarpRow>, shape, args, dropout);
          });
  if (done) return;
  launch({.kernel = "norm", .grid = blocks_for(shape.rows, 1, INT32_MAX)}, forward_by_passes<T>,
         shape, args, dropout);
}

#define TAPESTRY_NORM(T) template void norm(Cuda, const NormShape&, const NormForward<T>&);
TAPESTRY_NORM(float)
TAPESTRY_NORM(double)
TAPESTRY_NORM(BFloat16)

}  // namespace kernels
}  // namespace tapestry
