#include <algorithm>

#include "core/kernels/cpu/tiling.h"
#include "core/kernels/elementwise/permute.h"
#include "core/kernels/elementwise/permute_axes.h"

namespace tapestry {
namespace {

// y += x
template <class T>
void add(T x, T& y) {
  y = static_cast<T>(static_cast<Wider<T>>(y) + static_cast<Wider<T>>(x));
}

template <class T>
void copy_row(const T* x, T* y, int64_t n, Write write) {
  if (write == Write::kSet) {
    std::copy_n(x, n, y);
  } else {
    for (int64_t i = 0; i < n; ++i) add(x[i], y[i]);
  }
}

// y (rows, cols) (=|+=) x^T, x (cols, rows), with row strides.
template <class T>
void transpose(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows, int64_t cols,
               Write write) {
  constexpr int64_t kBlock = 16;  // a cache line of floats each way
  for (int64_t c0 = 0; c0 < cols; c0 += kBlock) {
    const int64_t c1 = std::min(c0 + kBlock, cols);
    for (int64_t r = 0; r < rows; ++r) {
      T* const to = y + r * y_stride;
      const T* const from = x + r;
      if (write == Write::kSet) {
        for (int64_t c = c0; c < c1; ++c) to[c] = from[c * x_stride];
      } else {
        for (int64_t c = c0; c < c1; ++c) add(from[c * x_stride], to[c]);
      }
    }
  }
}

template <class T>
void permute_rows(const PermuteAxes& axes, const T* x, T* y, Write write) {
  const int64_t n = axes.size[axes.rank - 1];
  const PermuteAxes outer = axes.without(axes.rank - 1);
  parallel_rows(outer.numel(), n, [&](int64_t row, int64_t begin, int64_t end) {
    int64_t x_offset, y_offset;
    outer.offsets(row, x_offset, y_offset);
    copy_row(x + x_offset + begin, y + y_offset + begin, end - begin, write);
  });
}

// The innermost axis of y is not that of x: transposes over the two.
template <class T>
void permute_transposed(const PermuteAxes& axes, const T* x, T* y, Write write) {
  const int unit = axes.innermost_of_x();
  const int last = axes.rank - 1;
  const int64_t rows = axes.size[unit], cols = axes.size[last];
  const PermuteAxes outer = axes.without(last).without(unit);
  constexpr int64_t kRows = 64;
  const int64_t strips = (rows + kRows - 1) / kRows;
  const int64_t grain = std::max<int64_t>(1, kTileElements / (std::min(rows, kRows) * cols));
  parallel_ranges(outer.numel() * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t x_offset, y_offset;
      outer.offsets(i / strips, x_offset, y_offset);
      const int64_t row = i % strips * kRows;
      transpose(x + x_offset + row, axes.x_stride[last], y + y_offset + row * axes.y_stride[unit],
                axes.y_stride[unit], std::min(kRows, rows - row), cols, write);
    }
  });
}

}  // namespace

namespace kernels {

template <class T>
void permute(Cpu, const T* x, T* y, const int64_t (&size)[Shape::kMaxRank],
             const int (&order)[Shape::kMaxRank], Write write) {
  const PermuteAxes axes(size, order);
  if (axes.numel() == 0) return;
  if (axes.rank == 0) return copy_row(x, y, 1, write);
  if (axes.x_stride[axes.rank - 1] == 1) return permute_rows(axes, x, y, write);
  permute_transposed(axes, x, y, write);
}

template void permute(Cpu, const float*, float*, const int64_t (&)[Shape::kMaxRank],
                      const int (&)[Shape::kMaxRank], Write);
template void permute(Cpu, const double*, double*, const int64_t (&)[Shape::kMaxRank],
                      const int (&)[Shape::kMaxRank], Write);
template void permute(Cpu, const BFloat16*, BFloat16*, const int64_t (&)[Shape::kMaxRank],
                      const int (&)[Shape::kMaxRank], Write);

}  // namespace kernels
}  // namespace tapestry
