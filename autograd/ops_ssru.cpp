#include "autograd/ops.h"
#include "autograd/recording.h"
#include "core/dispatch_device.h"
#include "core/kernels/recurrent/ssru.h"
#include "core/kernels/reduce.h"

namespace tapestry {
namespace {

constexpr const char* kWho = "ssru";

SsruShape shape_of(const Var& x, const Var& bias, const SsruOptions& options) {
  check_same_kind(kWho, x, bias);
  const Shape& in = x.shape();
  check(in.rank() == 3 && in[2] % 2 == 0 && (!bias.defined() || bias.shape() == Shape{in[2] / 2}),
        kWho, "expected x (B, T, 2D) and a bias (D), got ", in, " and ",
        bias.defined() ? bias.shape() : Shape{}, '.');
  SsruShape shape{.sequences = in[0], .steps = in[1], .size = in[2] / 2};
  const Sequences& sequences = options.sequences;
  if (!sequences.defined()) return shape;
  check(in[0] == 1 && in[1] == sequences.rows(), kWho, "expected x (1, ", sequences.rows(),
        ", 2D) for its sequences, got ", in, '.');
  shape.sequences = sequences.count(), shape.steps = sequences.longest;
  shape.starts = sequences.starts.data<int32_t>();
  return shape;
}

// Throws unless the rows of the states fit the sequences of x.
void check_before(const Var& x, const Var& bias, const SsruShape& shape,
                  const SsruOptions& options) {
  const Tensor &states = options.states, &rows = options.key_rows;
  if (!states.defined()) return;
  check(states.dtype() == x.dtype() && states.shape().rank() == 3 &&
            states.shape()[2] == shape.size && rows.defined() && rows.shape().rank() == 2 &&
            rows.shape()[0] == shape.sequences && options.key_lengths.defined() &&
            options.key_lengths.shape() == Shape{shape.sequences},
        kWho, "expected states (1, N, ", shape.size, ") of the type of x, with key_rows (",
        shape.sequences, ", S) and key_lengths (", shape.sequences, "), got ", states.shape(), '.');
  check(!Tape::records(x, bias), kWho, "no gradient flows into states.");
}

template <class T>
SsruBefore<T> before_of(const SsruOptions& options) {
  if (!options.states.defined()) return {};
  return {options.states.data<T>(), options.key_rows.data<int32_t>(), options.key_rows.shape()[1],
          options.key_lengths.data<int32_t>()};
}

}  // namespace

// The gates are computed again: that reads no more than their values would.
SsruResult ssru(const Var& x, const Var& bias, const SsruOptions& options) {
  const SsruShape shape = shape_of(x, bias, options);
  check_before(x, bias, shape, options);
  const DType dtype = x.dtype();
  const Device device = x.value().device();
  const Shape narrow = x.shape().with(2, shape.size);
  SsruResult result{Tensor::empty(narrow, dtype, device), {}};
  if (options.keeps_states || Tape::records(x, bias)) {
    result.states = Tensor::empty(narrow, dtype, device);
  }
  if (narrow.numel() > 0) {
    dispatch(x.value(), [&](auto on, auto type) {
      using T = decltype(type);
      kernels::ssru(
          on, shape,
          SsruForward<T>{x.value().data<T>(), data_or_null<T>(bias.value()), before_of<T>(options),
                         data_or_null<T>(result.states), result.out.value().data<T>()});
    });
  }
  Tape::record({&x, &bias}, result.out,
               [shape, sequences = options.sequences, vx = x.value(), vb = bias.value(),
                states = result.states, gx = gradient_of(x), gb = gradient_of(bias)](Tensor dy) {
                 Targets<2> targets({gx, gb});
                 const Tensor shares =
                     gb ? Tensor::empty({shape.sequences, shape.size}, dy.dtype(), dy.device())
                        : Tensor();
                 dispatch(dy, [&](auto on, auto type) {
                   using T = decltype(type);
                   if (dy.numel() > 0) {
                     kernels::ssru_backward(
                         on, shape,
                         SsruBackward<T>{vx.data<T>(), data_or_null<T>(vb), states.data<T>(),
                                         dy.data<T>(), data_or_null<T>(targets[0].tensor),
                                         targets[0].write, data_or_null<T>(shares)});
                   }
                   if (!gb) return;
                   kernels::sum_axis(on, shares.data<T>(), targets[1].tensor.data<T>(), 1,
                                     dy.numel() > 0 ? shape.sequences : 0, shape.size, 1.0,
                                     targets[1].write);
                 });
                 targets.deliver();
               });
  return result;
}

}  // namespace tapestry
