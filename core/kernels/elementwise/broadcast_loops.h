// The loops of a BroadcastPlan, for every device: rows of results, and sums over single axes.
#pragma once

#include "core/kernels/elementwise/elementwise.h"

namespace tapestry {

/// A plan without axes of size 1 and with neighbouring axes merged where both operands allow it:
/// operands of one shape need one axis, a bias two. The results are `rows` rows of `cols`; along a
/// row an operand is a vector (stride 1) or one value.
struct BroadcastLoops {
  int rank = 0;
  int64_t size[Shape::kMaxRank] = {};
  int64_t a_stride[Shape::kMaxRank] = {};
  int64_t b_stride[Shape::kMaxRank] = {};
  int64_t rows = 1;
  int64_t cols = 1;
  bool a_is_vector = false;
  bool b_is_vector = false;

  explicit BroadcastLoops(const BroadcastPlan& plan) {
    for (int axis = 0; axis < Shape::kMaxRank; ++axis) {
      if (plan.size[axis] != 1) push(plan.size[axis], plan.a_stride[axis], plan.b_stride[axis]);
    }
    if (rank == 0) return;
    for (int axis = 0; axis < rank - 1; ++axis) rows *= size[axis];
    cols = size[rank - 1];
    a_is_vector = a_stride[rank - 1] != 0;
    b_is_vector = b_stride[rank - 1] != 0;
  }

  /// The offset of row `row` in each operand.
  TAPESTRY_HOST_DEVICE void offsets(int64_t row, int64_t& a, int64_t& b) const {
    a = b = 0;
    for (int axis = rank - 2; axis >= 0; --axis) {
      const int64_t i = axis == 0 ? row : row % size[axis];
      row /= size[axis];
      a += i * a_stride[axis];
      b += i * b_stride[axis];
    }
  }

 private:
  void push(int64_t n, int64_t a, int64_t b) {
    if (rank > 0 && a_stride[rank - 1] == n * a && b_stride[rank - 1] == n * b) {
      size[rank - 1] *= n;
      a_stride[rank - 1] = a;
      b_stride[rank - 1] = b;
      return;
    }
    size[rank] = n;
    a_stride[rank] = a;
    b_stride[rank] = b;
    ++rank;
  }
};

inline int64_t numel(const BroadcastPlan& plan) {
  int64_t count = 1;
  for (const int64_t size : plan.size) count *= size;
  return count;
}

/// One sum over the middle axis of (outer, n, inner).
struct AxisSum {
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
};

/// The sums that reduce, one after the other, a tensor of the plan's sizes to an operand with
/// `strides`: none if the operand was not broadcast, at most two for four axes.
struct OperandSums {
  int count = 0;
  AxisSum sums[2];

  OperandSums(const BroadcastPlan& plan, const int64_t (&strides)[Shape::kMaxRank]) {
    const auto is_kept = [&](int axis) { return plan.size[axis] == 1 || strides[axis] != 0; };
    const auto is_summed = [&](int axis) { return plan.size[axis] == 1 || strides[axis] == 0; };
    int64_t inner = 1;
    for (int axis = Shape::kMaxRank - 1;; ++count) {
      for (; axis >= 0 && is_kept(axis); --axis) inner *= plan.size[axis];
      if (axis < 0) return;
      AxisSum& sum = sums[count];
      sum.inner = inner;
      for (; axis >= 0 && is_summed(axis); --axis) sum.n *= plan.size[axis];
      for (int i = 0; i <= axis; ++i) sum.outer *= plan.size[i];
    }
  }
};

}  // namespace tapestry
