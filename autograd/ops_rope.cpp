#include "autograd/ops.h"
#include "autograd/recording.h"
#include "core/dispatch_device.h"
#include "core/kernels/attention/rope.h"

namespace tapestry {

// Pair (a, b) of a head at position p: (a cos - b sin, b cos + a sin) of p theta_i. Backward
// rotates dy back.
Var rope(const Var& x, const Tensor& table, const RopeOptions& options) {
  check(x.defined() && x.shape().rank() == 3, "rope", "x must be (batch, length, width), got ",
        x.shape(), '.');
  check(
      table.defined() && table.dtype() == wider(x.dtype()) && table.device() == x.value().device(),
      "rope", "the table of ", x.dtype(), " must be ", wider(x.dtype()), " on ", x.value().device(),
      '.');
  const int64_t length = x.shape()[1], width = x.shape()[2];
  const int64_t rotated = table.shape().rank() == 2 ? table.shape()[1] : 1;
  const int64_t head_size = options.head_size > 0 ? options.head_size : rotated;
  check(rotated % 2 == 0 && rotated <= head_size && options.heads >= 0 &&
            options.heads * head_size <= width,
        "rope", "x is ", x.shape(), ", the table ", table.shape(), " for ", options.heads,
        " heads of ", head_size, '.');
  const bool each = options.positions.defined();
  check(each ||
            (options.position_offset >= 0 && options.position_offset + length <= table.shape()[0]),
        "rope", "expected positions below ", table.shape()[0], ", got ", length, " from ",
        options.position_offset, " on.");
  const RopeShape shape{
      .rows = x.shape()[0] * length,
      .width = width,
      .heads = options.heads,
      .head_size = head_size,
      .rotated = rotated,
      .length = length,
      .position_offset = options.position_offset,
      .position_offsets = offsets_of("rope", options.position_offsets, x.shape()[0], x),
      .positions =
          positions_of("rope", options.positions, {x.shape()[0], length}, table.shape()[0]),
      .layout = options.layout,
      .inverse = false};
  Var y = Tensor::empty_like(x.value());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::rope(device, shape, x.value().data<T>(), table.data<Wider<T>>(), y.value().data<T>(),
                  Write::kSet);
  });
  Tape::record({&x}, y, [shape, table, places = options.positions, dx = gradient_of(x)](Tensor dy) {
    RopeShape back = shape;
    back.inverse = true;
    const auto [target, write] = dx->target();
    dispatch(dy, [&, target = target, write = write](auto device, auto type) {
      using T = decltype(type);
      kernels::rope(device, back, dy.data<T>(), table.data<Wider<T>>(), target.data<T>(), write);
    });
  });
  return y;
}

}  // namespace tapestry
