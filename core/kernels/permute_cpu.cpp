#include <algorithm>

#include "core/kernels/elementwise.h"
#include "core/kernels/tiling.h"

namespace tapestry {
namespace {

// The axes of y from the outermost, each with the strides of both tensors; axes of size 1 left out,
// neighbours that stay together in x merged.
struct Axes {
  int rank = 0;
  int64_t size[Shape::kMaxRank] = {};
  int64_t x_stride[Shape::kMaxRank] = {};
  int64_t y_stride[Shape::kMaxRank] = {};

  Axes(const int64_t (&sizes)[Shape::kMaxRank], const int (&order)[Shape::kMaxRank]) {
    int64_t strides[Shape::kMaxRank], stride = 1;
    for (int axis = Shape::kMaxRank - 1; axis >= 0; --axis) {
      strides[axis] = stride;
      stride *= sizes[axis];
    }
    for (const int axis : order) push(sizes[axis], strides[axis]);
    stride = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      y_stride[axis] = stride;
      stride *= size[axis];
    }
  }

  // The axes without number `axis`.
  Axes without(int axis) const {
    Axes rest = *this;
    --rest.rank;
    for (int i = axis; i < rest.rank; ++i) {
      rest.size[i] = size[i + 1];
      rest.x_stride[i] = x_stride[i + 1];
      rest.y_stride[i] = y_stride[i + 1];
    }
    return rest;
  }

  int64_t numel() const {
    int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= size[axis];
    return count;
  }

  // Offsets in x and y of index `i` over all these axes.
  void offsets(int64_t i, int64_t& x, int64_t& y) const {
    x = y = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t digit = axis == 0 ? i : i % size[axis];
      i /= size[axis];
      x += digit * x_stride[axis];
      y += digit * y_stride[axis];
    }
  }

 private:
  void push(int64_t n, int64_t stride) {
    if (n == 1) return;
    if (rank > 0 && x_stride[rank - 1] == n * stride) {
      size[rank - 1] *= n;
      x_stride[rank - 1] = stride;
      return;
    }
    size[rank] = n;
    x_stride[rank] = stride;
    ++rank;
  }
};

template <class T>
void copy_row(const T* x, T* y, int64_t n, Write write) {
  if (write == Write::kSet) {
    std::copy_n(x, n, y);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] += x[i];
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
        for (int64_t c = c0; c < c1; ++c) to[c] += from[c * x_stride];
      }
    }
  }
}

template <class T>
void permute_rows(const Axes& axes, const T* x, T* y, Write write) {
  const int64_t n = axes.size[axes.rank - 1];
  const Axes outer = axes.without(axes.rank - 1);
  parallel_rows(outer.numel(), n, [&](int64_t row, int64_t begin, int64_t end) {
    int64_t x_offset, y_offset;
    outer.offsets(row, x_offset, y_offset);
    copy_row(x + x_offset + begin, y + y_offset + begin, end - begin, write);
  });
}

// The innermost axis of y is not that of x: transposes over the two.
template <class T>
void permute_transposed(const Axes& axes, const T* x, T* y, Write write) {
  int unit = 0;  // the axis of y that is innermost in x
  while (axes.x_stride[unit] != 1) ++unit;
  const int last = axes.rank - 1;
  const int64_t rows = axes.size[unit], cols = axes.size[last];
  const Axes outer = axes.without(last).without(unit);
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
  const Axes axes(size, order);
  if (axes.numel() == 0) return;
  if (axes.rank == 0) return copy_row(x, y, 1, write);
  if (axes.x_stride[axes.rank - 1] == 1) return permute_rows(axes, x, y, write);
  permute_transposed(axes, x, y, write);
}

template void permute(Cpu, const float*, float*, const int64_t (&)[Shape::kMaxRank],
                      const int (&)[Shape::kMaxRank], Write);
template void permute(Cpu, const double*, double*, const int64_t (&)[Shape::kMaxRank],
                      const int (&)[Shape::kMaxRank], Write);

}  // namespace kernels
}  // namespace tapestry
