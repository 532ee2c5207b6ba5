#include "autograd/ops.h"
#include "autograd/recording.h"
#include "core/dispatch_device.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/elementwise/permute.h"
#include "core/kernels/reduce.h"

namespace tapestry {
namespace {

// A shape seen as (outer, size of `axis`, inner).
struct AxisView {
  int64_t outer = 1, size = 1, inner = 1;
};

AxisView axis_view(const Shape& shape, int axis) {
  AxisView view;
  for (int i = 0; i < axis; ++i) view.outer *= shape[i];
  view.size = shape[axis];
  for (int i = axis + 1; i < shape.rank(); ++i) view.inner *= shape[i];
  return view;
}

Shape without_axis(const Shape& shape, int axis) {
  int64_t sizes[Shape::kMaxRank];
  int rank = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) sizes[rank++] = shape[i];
  }
  return Shape(sizes, rank);
}

// Copies between a dense tensor and elements [begin, begin + size) of an axis in a tensor whose
// axis has `whole` elements.
struct AxisRange {
  int64_t outer, inner, whole, begin, size;
};

void read_range(const AxisRange& range, const Tensor& whole, const Tensor& part, Write write) {
  dispatch(part, [&](auto device, auto type) {
    using T = decltype(type);
    kernels::copy_block(device, whole.data<T>() + range.begin * range.inner,
                        range.whole * range.inner, part.data<T>(), range.size * range.inner,
                        range.outer, range.size * range.inner, write);
  });
}

void write_range(const AxisRange& range, const Tensor& part, const Tensor& whole, Write write) {
  dispatch(part, [&](auto device, auto type) {
    using T = decltype(type);
    kernels::copy_block(device, part.data<T>(), range.size * range.inner,
                        whole.data<T>() + range.begin * range.inner, range.whole * range.inner,
                        range.outer, range.size * range.inner, write);
  });
}

void reduce(const Tensor& x, const Tensor& y, const AxisView& view, double scale) {
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    kernels::sum_axis(device, x.data<T>(), y.data<T>(), view.outer, view.size, view.inner, scale,
                      Write::kSet);
  });
}

// y = scale * sum of x over the axis.  dx = scale * dy, repeated over the axis.
Var scaled_sum(const Var& x, const AxisView& view, const Shape& shape, double scale) {
  Var y = Tensor::empty(shape, x.dtype(), x.value().device());
  reduce(x.value(), y.value(), view, scale);
  Tape::record(
      {&x}, y,
      [view, scale, dx = gradient_of(x)](Tensor dy) {
        const auto [target, write] = dx->target();
        dispatch(dy, [&, target = target, write = write](auto device, auto type) {
          using T = decltype(type);
          kernels::broadcast_axis(device, dy.data<T>(), target.data<T>(), view.outer, view.size,
                                  view.inner, scale, write);
        });
      },
      scale == 1 ? "sum" : "mean");
  return y;
}

}  // namespace

// y is x with other sizes.  dx is dy with x's sizes.
Var reshape(const Var& x, const Shape& shape) {
  Var y = x.value().reshape(shape);
  Tape::record({&x}, y, [dx = gradient_of(x)](Tensor dy) { dx->accept(std::move(dy)); });
  return y;
}

// y[i_order] = x[i].  dx is dy with the axes in the inverse order.
Var permute(const Var& x, const std::vector<int>& order) {
  const int rank = x.shape().rank();
  check(static_cast<int>(order.size()) == rank, "permute", "x is ", x.shape(), ", the order names ",
        order.size(), " axes.");
  // Rank 4 with leading axes of size 1.
  struct Plan {
    int64_t size[Shape::kMaxRank] = {1, 1, 1, 1};
    int order[Shape::kMaxRank] = {0, 1, 2, 3};
  } forward, backward;
  const int lead = Shape::kMaxRank - rank;
  int64_t sizes[Shape::kMaxRank] = {};
  bool seen[Shape::kMaxRank] = {};
  for (int i = 0; i < rank; ++i) {
    const int axis = x.shape().normalize_axis(order[i]);
    check(!seen[axis], "permute", "axis ", axis, " is named twice.");
    seen[axis] = true;
    sizes[i] = x.shape()[axis];
    forward.size[lead + i] = x.shape()[i];
    forward.order[lead + i] = lead + axis;
    backward.size[lead + i] = sizes[i];
    backward.order[lead + axis] = lead + i;
  }
  Var y = Tensor::empty(Shape(sizes, rank), x.dtype(), x.value().device());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::permute(device, x.value().data<T>(), y.value().data<T>(), forward.size, forward.order,
                     Write::kSet);
  });
  Tape::record({&x}, y, [backward, dx = gradient_of(x)](Tensor dy) {
    const auto [target, write] = dx->target();
    dispatch(dy, [&, target = target, write = write](auto device, auto type) {
      using T = decltype(type);
      kernels::permute(device, dy.data<T>(), target.data<T>(), backward.size, backward.order,
                       write);
    });
  });
  return y;
}

// y holds the parts one after the other along the axis.  Each part's gradient is its range of dy.
Var concat(const std::vector<Var>& parts, int axis) {
  check(!parts.empty(), "concat", "expected at least one part.");
  const Shape& first = parts[0].shape();
  axis = first.normalize_axis(axis);
  int64_t size = 0;
  for (const Var& part : parts) {
    check_same_kind("concat", parts[0], part);
    check(part.shape().rank() == first.rank() && part.shape().with(axis, first[axis]) == first,
          "concat", "parts differ outside axis ", axis, ": ", first, " and ", part.shape(), '.');
    size += part.shape()[axis];
  }
  const AxisView view = axis_view(first, axis);
  Var y = Tensor::empty(first.with(axis, size), parts[0].dtype(), parts[0].value().device());
  int64_t begin = 0;
  struct Piece {
    GradientRef gradient;
    AxisRange range;
  };
  std::vector<Piece, HostAllocator<Piece>> pieces;
  std::vector<const Var*, HostAllocator<const Var*>> inputs;
  for (const Var& part : parts) {
    const AxisRange range{view.outer, view.inner, size, begin, part.shape()[axis]};
    write_range(range, part.value(), y.value(), Write::kSet);
    begin += range.size;
    inputs.push_back(&part);
    if (part.needs_grad()) pieces.push_back({gradient_of(part), range});
  }
  Tape::record(inputs, y, [pieces = std::move(pieces)](const Tensor& dy) {
    for (const Piece& piece : pieces) {
      const auto [target, write] = piece.gradient->target();
      read_range(piece.range, dy, target, write);
    }
  });
  return y;
}

// y = x[begin:end].  dx is dy there and 0 elsewhere.
Var slice(const Var& x, int axis, int64_t begin, int64_t end) {
  axis = x.shape().normalize_axis(axis);
  check(0 <= begin && begin <= end && end <= x.shape()[axis], "slice", "[", begin, ", ", end,
        ") is not in axis ", axis, " of ", x.shape(), '.');
  const AxisView view = axis_view(x.shape(), axis);
  const AxisRange range{view.outer, view.inner, view.size, begin, end - begin};
  Var y = Tensor::empty(x.shape().with(axis, end - begin), x.dtype(), x.value().device());
  read_range(range, x.value(), y.value(), Write::kSet);
  Tape::record({&x}, y, [range, dx = gradient_of(x)](const Tensor& dy) {
    const auto [target, write] = dx->target();
    if (write == Write::kSet) target.fill(0);
    write_range(range, dy, target, write);
  });
  return y;
}

Var sum(const Var& x) { return scaled_sum(x, {1, x.value().numel(), 1}, Shape{}, 1.0); }

Var mean(const Var& x) {
  return scaled_sum(x, {1, x.value().numel(), 1}, Shape{}, 1.0 / x.value().numel());
}

Var sum(const Var& x, int axis) {
  axis = x.shape().normalize_axis(axis);
  return scaled_sum(x, axis_view(x.shape(), axis), without_axis(x.shape(), axis), 1.0);
}

Var mean(const Var& x, int axis) {
  axis = x.shape().normalize_axis(axis);
  return scaled_sum(x, axis_view(x.shape(), axis), without_axis(x.shape(), axis),
                    1.0 / x.shape()[axis]);
}

}  // namespace tapestry
