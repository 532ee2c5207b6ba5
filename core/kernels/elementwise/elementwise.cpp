#include "core/kernels/elementwise/elementwise.h"

namespace tapestry {
namespace {

// Dense element strides of `shape`, aligned to the last of kMaxRank axes; 0 where its size is 1, so
// that a broadcast axis needs no special case.
void fill_strides(const Shape& shape, int64_t (&strides)[Shape::kMaxRank]) {
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis + Shape::kMaxRank - shape.rank()] = shape[axis] == 1 ? 0 : stride;
    stride *= shape[axis];
  }
}

}  // namespace

BroadcastPlan broadcast_plan(const char* who, const Shape& a, const Shape& b) {
  const Shape result = broadcast_shapes(who, a, b);
  BroadcastPlan plan;
  for (int axis = 0; axis < result.rank(); ++axis) {
    plan.size[axis + Shape::kMaxRank - result.rank()] = result[axis];
  }
  fill_strides(a, plan.a_stride);
  fill_strides(b, plan.b_stride);
  return plan;
}

}  // namespace tapestry
