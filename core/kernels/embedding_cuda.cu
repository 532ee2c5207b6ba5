#include <algorithm>

#include "core/kernels/cuda/packs.cuh"
#include "core/kernels/cuda/radix_sort.cuh"
#include "core/kernels/embedding.h"

namespace tapestry {
namespace {

constexpr int kTurns = 4;            // of a warp
constexpr int64_t kMostInY = 65535;  // of a grid; beyond it warps have more turns

// ids (rows), table (vocab, cols), positions (.., cols) or null -> y (rows, cols): one warp per
// row, N columns per lane and turn. Blocks along y share a row: the rows of a cache that beam
// search reorders are long and few.
template <class T, int N>
__global__ void forward(EmbeddingShape shape, const int32_t* ids, const T* table,
                        const T* positions, DropoutFactors<T> dropout, T* y) {
  using W = Wider<T>;
  const int64_t r = global_thread() / kWarp, cols = shape.cols;
  if (r >= shape.rows) return;
  const T* const from = table + ids[r] * cols;
  const int64_t position = shape.position(r);
  const W scale = static_cast<W>(shape.scale);
  const int64_t warp = static_cast<int64_t>(blockIdx.y), warps = static_cast<int64_t>(gridDim.y);
  for (int64_t c = (warp * kWarp + threadIdx.x % kWarp) * N; c < cols; c += warps * kWarp * N) {
    W v[N], at[N] = {}, factor[N];
    load_pack(from + c, v);
    if (positions != nullptr) load_pack(positions + position * cols + c, at);
    factor_pack(dropout, static_cast<uint64_t>(r * cols + c), factor);
    for (int j = 0; j < N; ++j) v[j] = (scale * v[j] + at[j]) * factor[j];
    deliver_pack(y + r * cols + c, v, Write::kSet);
  }
}

// Backward sums runs of equal ids in the sorted rows. A run may be as long as the batch (a frequent
// word, padding), so blocks take pieces of equal length, whatever runs they hold. The head of a
// piece is its part of a run that began before it; the tail is its part of a run that goes on after
// it. Heads and tails are added afterwards, in the order of the pieces.
constexpr int kPiece = 64;
constexpr int kAhead = 8;  // rows that are loaded at a time

template <class T>
struct Runs {
  const int32_t* ids;   ///< sorted
  const int32_t* rows;  ///< the row of dy of each
  int64_t count, cols;
  const T* dy;
  Wider<T> scale;
  DropoutFactors<T> dropout;
  T* d_table;
  Write write;
  Wider<T>*heads, *tails;  ///< (pieces, cols)
};

// The thread's first column: N per thread, counted on along the blocks' y.
__device__ inline int64_t first_column(int n) {
  return (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * n;
}

// One block per piece.
template <class T, int N>
__global__ void sum_runs(Runs<T> runs) {
  using W = Wider<T>;
  static __shared__ int32_t
      ids[kPiece + 2];  // with the ids before and after the piece, -1 for none
  static __shared__ int32_t rows[kPiece];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kPiece, left = runs.count - begin;
  const int n = left < kPiece ? static_cast<int>(left) : kPiece;
  for (int i = threadIdx.x; i < n + 2; i += blockDim.x) {
    const int64_t place = begin + i - 1;
    ids[i] = place >= 0 && place < runs.count ? runs.ids[place] : -1;
    if (i < n) rows[i] = runs.rows[begin + i];
  }
  __syncthreads();
  const int64_t c = first_column(N);
  if (c >= runs.cols) return;
  W sum[N] = {};
  for (int first = 0; first < n; first += kAhead) {
    Pack<T, N> slope[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= n) continue;
      slope[i] = *reinterpret_cast<const Pack<T, N>*>(runs.dy + rows[first + i] * runs.cols + c);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = first + i;
      if (at >= n) continue;
      W factor[N];
      factor_pack(runs.dropout, static_cast<uint64_t>(rows[at] * runs.cols + c), factor);
      for (int j = 0; j < N; ++j) sum[j] += runs.scale * (widen(slope[i].v[j]) * factor[j]);
      const int32_t id = ids[at + 1];
      const bool goes_on = id == ids[at + 2];
      if (goes_on && at + 1 < n) continue;
      if (id == ids[0]) {
        for (int j = 0; j < N; ++j) runs.heads[blockIdx.x * runs.cols + c + j] = sum[j];
      } else if (goes_on) {
        for (int j = 0; j < N; ++j) runs.tails[blockIdx.x * runs.cols + c + j] = sum[j];
      } else {
        deliver_pack(runs.d_table + id * runs.cols + c, sum, runs.write);
      }
      for (W& v : sum) v = 0;
    }
  }
}

// One block per piece. If a run begins in it and goes on, the block adds its tail and the following
// heads.
template <class T, int N>
__global__ void join_runs(Runs<T> runs) {
  using W = Wider<T>;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kPiece, end = begin + kPiece;
  if (end >= runs.count) return;
  const int32_t id = runs.ids[end - 1];
  if (runs.ids[end] != id || (begin > 0 && runs.ids[begin - 1] == id)) return;
  int64_t last = end, beyond = runs.count;  // finds the run's last index by bisection
  while (beyond - last > 1) {
    const int64_t middle = (last + beyond) / 2;
    (runs.ids[middle] == id ? last : beyond) = middle;
  }
  const int64_t c = first_column(N);
  if (c >= runs.cols) return;
  W sum[N];
  for (int j = 0; j < N; ++j) sum[j] = runs.tails[blockIdx.x * runs.cols + c + j];
  for (int64_t piece = blockIdx.x + 1; piece <= last / kPiece; ++piece) {
    for (int j = 0; j < N; ++j) sum[j] += runs.heads[piece * runs.cols + c + j];
  }
  deliver_pack(runs.d_table + id * runs.cols + c, sum, runs.write);
}

// dy (rows, cols) -> d_positions (.., cols): one block per position, which adds its rows in order.
template <class T, int N>
__global__ void sum_positions(EmbeddingShape shape, const T* dy, DropoutFactors<T> dropout,
                              T* d_positions, Write write) {
  using W = Wider<T>;
  const int64_t c = first_column(N), step = blockIdx.x - shape.position_offset;
  const bool used = step >= 0 && step < shape.length && step < shape.rows;
  if (c >= shape.cols || (!used && write == Write::kAdd)) return;
  W sum[N] = {};
  for (int64_t r = step; used && r < shape.rows; r += shape.length) {
    W slope[N], factor[N];
    load_pack(dy + r * shape.cols + c, slope);
    factor_pack(dropout, static_cast<uint64_t>(r * shape.cols + c), factor);
    for (int j = 0; j < N; ++j) sum[j] += slope[j] * factor[j];
  }
  deliver_pack(d_positions + blockIdx.x * shape.cols + c, sum, write);
}

// `blocks` blocks along x; along y as many as `packs` packs of columns need.
Launch column_launch(const char* kernel, int64_t blocks, int64_t packs) {
  const auto threads = static_cast<unsigned>(
      std::min<int64_t>(kBlock, std::max<int64_t>(1, (packs + kWarp - 1) / kWarp) * kWarp));
  return {.kernel = kernel,
          .grid = dim3(blocks_for(blocks, 1, INT32_MAX), blocks_for(packs, threads)),
          .block = threads};
}

template <class T, int N>
void table_backward(const EmbeddingShape& shape, const int32_t* ids, const T* dy,
                    const DropoutFactors<T>& dropout, T* d_table, Write write) {
  using W = Wider<T>;
  if (write == Write::kSet) {
    cuda::fill_zero(d_table, shape.vocab * shape.cols * static_cast<int64_t>(sizeof(T)));
  }
  if (shape.rows == 0) return;
  const int64_t pieces = (shape.rows + kPiece - 1) / kPiece;
  const SortedRows sorted(ids, shape.rows, shape.vocab);
  DeviceScratch<W> parts(2 * pieces * shape.cols);
  const Runs<T> runs = {sorted.keys(),
                        sorted.rows(),
                        shape.rows,
                        shape.cols,
                        dy,
                        static_cast<W>(shape.scale),
                        dropout,
                        d_table,
                        write,
                        parts.data(),
                        parts.data() + pieces * shape.cols};
  const int64_t packs = shape.cols / N;
  launch(column_launch("embedding_backward", pieces, packs), sum_runs<T, N>, runs);
  launch(column_launch("embedding_backward", pieces, packs), join_runs<T, N>, runs);
}

}  // namespace

namespace kernels {

template <class T>
void embedding(Cuda, const EmbeddingShape& shape, const int32_t* ids, const T* table,
               const T* positions, const Dropout& dropout, T* y) {
  const bool packed = can_pack<T>(shape.cols, table, positions, y);
  const int64_t packs = packed ? shape.cols / kPack<T> : shape.cols;
  launch({.kernel = "embedding",
          .grid = dim3(blocks_for(shape.rows, kBlock / kWarp, INT32_MAX),
                       blocks_for(packs, kTurns * kWarp, kMostInY))},
         packed ? forward<T, kPack<T>> : forward<T, 1>, shape, ids, table, positions,
         DropoutFactors<T>(dropout), y);
}

template <class T>
void embedding_backward(Cuda, const EmbeddingShape& shape, const int32_t* ids, const T* dy,
                        const Dropout& dropout, T* d_table, Write d_table_write, T* d_positions,
                        int64_t position_rows, Write d_positions_write) {
  const DropoutFactors<T> factors(dropout);
  const bool packed = can_pack<T>(shape.cols, dy, d_table, d_positions);
  if (d_table != nullptr) {
    const auto table = packed ? table_backward<T, kPack<T>> : table_backward<T, 1>;
    table(shape, ids, dy, factors, d_table, d_table_write);
  }
  if (d_positions != nullptr && shape.positions != nullptr) {
    EmbeddingShape of_positions = shape;
    of_positions.vocab = position_rows, of_positions.scale = 1;
    const auto table = packed ? table_backward<T, kPack<T>> : table_backward<T, 1>;
    table(of_positions, shape.positions, dy, factors, d_positions, d_positions_write);
  } else if (d_positions != nullptr) {
    launch(column_launch("embedding_backward", position_rows,
                         packed ? shape.cols / kPack<T> : shape.cols),
           packed ? sum_positions<T, kPack<T>> : sum_positions<T, 1>, shape, dy, factors,
           d_positions, d_positions_write);
  }
}

#define TAPESTRY_EMBEDDING(T)                                                              \
  template void embedding(Cuda, const EmbeddingShape&, const int32_t*, const T*, const T*, \
                          const Dropout&, T*);                                             \
  template void embedding_backward(Cuda, const EmbeddingShape&, const int32_t*, const T*,  \
                                   const Dropout&, T*, Write, T*, int64_t, Write);
TAPESTRY_EMBEDDING(float)
TAPESTRY_EMBEDDING(double)
TAPESTRY_EMBEDDING(BFloat16)

}  // namespace kernels
}  // namespace tapestry
