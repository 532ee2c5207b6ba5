#pragma once

#include "core/kernels/common.h"

namespace tapestry {

/// The axes of a permuted tensor y from the outermost, each with the strides of x and y. Axes of
/// size 1 are left out, and neighbours that are also neighbours in x are merged.
struct PermuteAxes {
  int rank = 0;
  int64_t size[Shape::kMaxRank] = {};
  int64_t x_stride[Shape::kMaxRank] = {};
  int64_t y_stride[Shape::kMaxRank] = {};

  /// x has these sizes; axis i of y is axis order[i] of x.
  PermuteAxes(const int64_t (&sizes)[Shape::kMaxRank], const int (&order)[Shape::kMaxRank]) {
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

  /// All axes except number `axis`.
  PermuteAxes without(int axis) const {
    PermuteAxes rest = *this;
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

  /// The axis of y that is innermost in x.
  int innermost_of_x() const {
    int axis = 0;
    while (x_stride[axis] != 1) ++axis;
    return axis;
  }

  /// Offsets in x and y of index `i` over all these axes.
  TAPESTRY_HOST_DEVICE void offsets(int64_t i, int64_t& x, int64_t& y) const {
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

}  // namespace tapestry
