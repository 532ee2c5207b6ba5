#include "core/kernels/cuda/common.cuh"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/elementwise/permute.h"
#include "core/kernels/elementwise/permute_axes.h"

namespace tapestry {
namespace {

// The innermost axis, `row_packs` packs of N elements, stays innermost, so rows are copied. `outer`
// holds the other axes.
template <class T, int N>
__global__ void permute_rows(const __grid_constant__ PermuteAxes outer, const T* x, T* y,
                             int64_t row_packs, int64_t packs, Write write) {
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    int64_t x_row, y_row;
    outer.offsets(i / row_packs, x_row, y_row);
    const auto values = reinterpret_cast<const Pack<T, N>*>(x + x_row)[i % row_packs];
    auto& out = reinterpret_cast<Pack<T, N>*>(y)[i];
    Pack<T, N> result = write == Write::kAdd ? out : values;
    if (write == Write::kAdd) {
      for (int j = 0; j < N; ++j) deliver(&result.v[j], widen(values.v[j]), write);
    }
    out = result;
  }
}

// The two axes that a transpose exchanges: y's `rows` are innermost in x, `cols` innermost in y.
struct Transposed {
  int64_t rows, cols;
  int64_t x_stride;  // of a step along cols
  int64_t y_stride;  // of a step along rows
  int64_t row_tiles, col_tiles;
};

constexpr int kTile = kWarp, kTileThreads = 8;

// Thread blocks are (kTile, kTileThreads), each takes one square tile of one matrix: a warp reads
// along x's innermost axis and, after the exchange through shared memory, writes along y's. The
// extra column keeps the lanes in different banks.
template <class T>
__global__ void permute_transposed(const __grid_constant__ PermuteAxes outer, const Transposed axes,
                                   const T* x, T* y, Write write) {
  static __shared__ Wider<T> tile[kTile][kTile + 1];
  int64_t block = blockIdx.x;
  const int64_t col = block % axes.col_tiles * kTile;
  block /= axes.col_tiles;
  const int64_t row = block % axes.row_tiles * kTile;
  int64_t x_offset, y_offset;
  outer.offsets(block / axes.row_tiles, x_offset, y_offset);
  const int lane = static_cast<int>(threadIdx.x);
  for (int c = static_cast<int>(threadIdx.y); c < kTile; c += kTileThreads) {
    if (row + lane < axes.rows && col + c < axes.cols) {
      tile[c][lane] = widen(x[x_offset + (col + c) * axes.x_stride + row + lane]);
    }
  }
  __syncthreads();
  for (int r = static_cast<int>(threadIdx.y); r < kTile; r += kTileThreads) {
    if (row + r < axes.rows && col + lane < axes.cols) {
      deliver(y + y_offset + (row + r) * axes.y_stride + col + lane, tile[lane][r], write);
    }
  }
}

template <class T>
void run_rows(const PermuteAxes& axes, const T* x, T* y, Write write) {
  const int64_t cols = axes.size[axes.rank - 1];
  const bool packed = can_pack<T>(cols, x, y);
  const int64_t width = packed ? kPack<T> : 1, packs = axes.numel() / width;
  launch({.kernel = "permute", .grid = blocks_for(packs)},
         packed ? permute_rows<T, kPack<T>> : permute_rows<T, 1>, axes.without(axes.rank - 1), x, y,
         cols / width, packs, write);
}

template <class T>
void run_transposed(const PermuteAxes& axes, const T* x, T* y, Write write) {
  const int unit = axes.innermost_of_x(), last = axes.rank - 1;
  const auto tiles = [](int64_t n) { return (n + kTile - 1) / kTile; };
  const Transposed matrix = {.rows = axes.size[unit],
                             .cols = axes.size[last],
                             .x_stride = axes.x_stride[last],
                             .y_stride = axes.y_stride[unit],
                             .row_tiles = tiles(axes.size[unit]),
                             .col_tiles = tiles(axes.size[last])};
  const PermuteAxes outer = axes.without(last).without(unit);
  const int64_t blocks = outer.numel() * matrix.row_tiles * matrix.col_tiles;
  launch({.kernel = "permute",
          .grid = static_cast<unsigned>(blocks),
          .block = dim3(kTile, kTileThreads)},
         permute_transposed<T>, outer, matrix, x, y, write);
}

}  // namespace

namespace kernels {

template <class T>
void permute(Cuda, const T* x, T* y, const int64_t (&size)[Shape::kMaxRank],
             const int (&order)[Shape::kMaxRank], Write write) {
  const PermuteAxes axes(size, order);
  if (axes.numel() == 0) return;
  if (axes.rank == 0) return copy_block(Cuda{}, x, 1, y, 1, 1, 1, write);
  if (axes.x_stride[axes.rank - 1] == 1) return run_rows(axes, x, y, write);
  run_transposed(axes, x, y, write);
}

#define TAPESTRY_PERMUTE(T)                                                    \
  template void permute(Cuda, const T*, T*, const int64_t(&)[Shape::kMaxRank], \
                        const int(&)[Shape::kMaxRank], Write);
TAPESTRY_PERMUTE(float)
TAPESTRY_PERMUTE(double)
TAPESTRY_PERMUTE(BFloat16)

}  // namespace kernels
}  // namespace tapestry
