#include <cmath>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "core/dispatch_device.h"
#include "core/kernels/attention/additive_attention.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/matmul/gemm.h"
#include "core/kernels/recurrent/gru.h"
#include "core/kernels/reduce.h"

namespace tapestry {

// ---- The gated recurrent unit

// The gradients follow from gru.h's formulas; r, z, n and h_n are kept.
Var gru_step(const Var& x_gates, const Var& h_gates, const Var& h) {
  check_same_kind("gru_step", x_gates, h_gates);
  check_same_kind("gru_step", x_gates, h);
  check(h.defined() && h.shape().rank() == 2 && x_gates.shape() == h_gates.shape() &&
            x_gates.shape() == Shape{h.shape()[0], 3 * h.shape()[1]},
        "gru_step", "expected gates (B, 3D) and a state (B, D), got ", x_gates.shape(), ", ",
        h_gates.shape(), " and ", h.shape(), '.');
  GruShape shape;
  shape.rows = h.shape()[0], shape.size = h.shape()[1];
  Var y = Tensor::empty_like(h.value());
  const Tensor saved =
      Tape::records(x_gates, h_gates, h)
          ? Tensor::empty({shape.rows, 4 * shape.size}, h.dtype(), h.value().device())
          : Tensor();
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    GruForward<T> args;
    args.x_gates = {x_gates.value().data<T>(), 3 * shape.size};
    args.h_gates = {h_gates.value().data<T>(), 3 * shape.size};
    args.h = {h.value().data<T>(), shape.size};
    args.out = {y.value().data<T>(), shape.size};
    args.saved = data_or_null<T>(saved);
    kernels::gru_step(device, shape, args);
  });
  Tape::record({&x_gates, &h_gates, &h}, y,
               [shape, saved, vh = h.value(), gx = gradient_of(x_gates), gg = gradient_of(h_gates),
                gh = gradient_of(h)](Tensor dy) {
                 Targets<3> targets({gx, gg, gh});
                 dispatch(dy, [&](auto device, auto type) {
                   using T = decltype(type);
                   GruBackward<T> args;
                   args.saved = saved.data<T>();
                   args.h = {vh.data<T>(), shape.size};
                   args.d_out = {dy.data<T>(), shape.size};
                   args.dx_gates = {data_or_null<T>(targets[0].tensor), 3 * shape.size};
                   args.dx_write = targets[0].write;
                   args.dh_gates = {data_or_null<T>(targets[1].tensor), 3 * shape.size};
                   args.dh_gates_write = targets[1].write;
                   args.dh = {data_or_null<T>(targets[2].tensor), shape.size};
                   args.dh_write = targets[2].write;
                   kernels::gru_step_backward(device, shape, args);
                 });
                 targets.deliver();
               });
  return y;
}

namespace {

// A layer: T steps of B rows, with N = `directions` side by side in every row.
struct GruLayerShape {
  int64_t steps, rows, size, directions;

  int64_t gates_width() const { return directions * 3 * size; }
  int64_t states_width() const { return directions * size; }
  /// The time of step s of a direction, and the first element of its columns in gates and states.
  int64_t time(int64_t s, int64_t direction) const { return direction == 0 ? s : steps - 1 - s; }
  int64_t gates_at(int64_t s, int64_t direction) const {
    return time(s, direction) * rows * gates_width() + direction * 3 * size;
  }
  int64_t states_at(int64_t s, int64_t direction) const {
    return time(s, direction) * rows * states_width() + direction * size;
  }
  GruShape step(int64_t s, int64_t direction, const Tensor& lengths) const {
    GruShape shape;
    shape.rows = rows, shape.size = size;
    shape.lengths = lengths.defined() ? lengths.data<int32_t>() : nullptr;
    shape.time = time(s, direction);
    return shape;
  }
};

// One batched product serves both directions of a step: a stride leads from the first to the
// second.
template <class Device, class T>
void gru_forward(Device device, const GruLayerShape& s, const T* x_gates, const T* weight,
                 const T* bias, const T* initial, const Tensor& lengths, T* out, T* saved,
                 T* h_gates) {
  for (int64_t step = 0; step < s.steps; ++step) {
    const bool first = step == 0;
    // The states of direction d before this step.
    const auto before = [&](int64_t d) {
      if (!first) return static_cast<const T*>(out) + s.states_at(step - 1, d);
      return initial == nullptr ? nullptr : initial + d * s.size;
    };
    if (before(0) != nullptr) {
      Gemm<T> g;
      g.m = s.rows, g.n = 3 * s.size, g.k = s.size, g.batch = s.directions;
      g.a = before(0), g.lda = s.states_width();
      g.stride_a = first ? s.size : s.states_at(step - 1, 1) - s.states_at(step - 1, 0);
      g.b = weight, g.ldb = s.size, g.trans_b = true, g.stride_b = 3 * s.size * s.size;
      g.c = h_gates, g.ldc = 3 * s.size, g.stride_c = s.rows * 3 * s.size;
      kernels::gemm(device, g);
    }
    for (int64_t d = 0; d < s.directions; ++d) {
      GruForward<T> args;
      args.x_gates = {x_gates + s.gates_at(step, d), s.gates_width()};
      if (before(0) != nullptr) {
        args.h_gates = {h_gates + d * s.rows * 3 * s.size, 3 * s.size};
        args.h = {before(d), s.states_width()};
      }
      args.bias = bias + d * 3 * s.size;
      args.out = {out + s.states_at(step, d), s.states_width()};
      if (saved != nullptr) args.saved = saved + (d * s.steps + step) * s.rows * 4 * s.size;
      kernels::gru_step(device, s.step(step, d, lengths), args);
    }
  }
}

template <class T>
struct GruLayerBackward {
  const T *weight, *initial, *out, *saved, *dy;
  T* dx;  // may be null, like d_initial, d_weight and d_bias
  Write dx_write;
  T* dh_gates;  // (T, B, N*3D): scratch
  T* carry;     // (N, B, D): scratch; at the end the gradient of the initial states
  T* d_weight;
  Write d_weight_write;
  bool carries_to_initial;
};

// dW = sum over the steps of dh_gates^T h: one product over all of them, and one for the initial
// states.
template <class Device, class T>
void gru_weight_gradient(Device device, const GruLayerShape& s, const GruLayerBackward<T>& args) {
  Gemm<T> g;
  g.m = 3 * s.size, g.n = s.size, g.batch = s.directions;
  g.lda = s.gates_width(), g.trans_a = true, g.ldb = s.states_width();
  g.c = args.d_weight, g.ldc = s.size, g.stride_c = 3 * s.size * s.size;
  g.beta = args.d_weight_write == Write::kAdd ? 1 : 0;
  // Pairs gates at times 1 .. T-1 with states at 0 .. T-2; in the second direction the reverse.
  const int64_t gates_step = s.rows * s.gates_width(), states_step = s.rows * s.states_width();
  g.k = std::max<int64_t>(0, s.steps - 1) * s.rows;
  g.a = args.dh_gates + (g.k > 0 ? gates_step : 0), g.stride_a = 3 * s.size - gates_step;
  g.b = args.out, g.stride_b = s.size + states_step;
  kernels::gemm(device, g);
  if (args.initial == nullptr || s.steps == 0) return;
  g.k = s.rows;
  g.a = args.dh_gates + s.gates_at(0, 0), g.stride_a = s.gates_at(0, 1) - s.gates_at(0, 0);
  g.b = args.initial, g.stride_b = s.size;
  g.beta = 1;
  kernels::gemm(device, g);
}

template <class Device, class T>
void gru_backward(Device device, const GruLayerShape& s, const Tensor& lengths,
                  const GruLayerBackward<T>& args) {
  for (int64_t step = s.steps - 1; step >= 0; --step) {
    for (int64_t d = 0; d < s.directions; ++d) {
      T* const carry = args.carry + d * s.rows * s.size;
      GruBackward<T> back;
      back.saved = args.saved + (d * s.steps + step) * s.rows * 4 * s.size;
      if (step > 0) {
        back.h = {args.out + s.states_at(step - 1, d), s.states_width()};
      } else if (args.initial != nullptr) {
        back.h = {args.initial + d * s.size, s.states_width()};
      }
      back.d_out = {args.dy + s.states_at(step, d), s.states_width()};
      if (step + 1 < s.steps) back.d_out_more = {carry, s.size};
      if (args.dx != nullptr) {
        back.dx_gates = {args.dx + s.gates_at(step, d), s.gates_width()};
        back.dx_write = args.dx_write;
      }
      back.dh_gates = {args.dh_gates + s.gates_at(step, d), s.gates_width()};
      back.dh = {carry, s.size};
      kernels::gru_step_backward(device, s.step(step, d, lengths), back);
    }
    if (step == 0 && !args.carries_to_initial) break;
    Gemm<T> g;
    g.m = s.rows, g.n = s.size, g.k = 3 * s.size, g.batch = s.directions, g.beta = 1;
    g.a = args.dh_gates + s.gates_at(step, 0), g.lda = s.gates_width();
    g.stride_a = s.gates_at(step, 1) - s.gates_at(step, 0);
    g.b = args.weight, g.ldb = s.size, g.stride_b = 3 * s.size * s.size;
    g.c = args.carry, g.ldc = s.size, g.stride_c = s.rows * s.size;
    kernels::gemm(device, g);
  }
  if (args.d_weight != nullptr) gru_weight_gradient(device, s, args);
}

}  // namespace

// The forward loop keeps r, z, n and h_n of every step. Backward walks the steps once: the gradient
// of the gates is that of x_gates; the state's matrix and bias get theirs at the end.
Var gru(const Var& x_gates, const Var& weight, const Var& bias, const GruOptions& options) {
  for (const Var* input : {&weight, &bias, &options.initial}) {
    check_same_kind("gru", x_gates, *input);
  }
  check(weight.defined() && weight.shape().rank() == 2 && bias.defined(), "gru",
        "the state's weight and bias must be (N*3D, D) and (N*3D).");
  const int64_t size = weight.shape()[1], width = weight.shape()[0];
  check(size > 0 && (width == 3 * size || width == 6 * size) && bias.shape() == Shape{width} &&
            x_gates.shape().rank() == 3 && x_gates.shape()[2] == width,
        "gru", "expected x (T, B, N*3D), weight (N*3D, D) and bias (N*3D), got ", x_gates.shape(),
        ", ", weight.shape(), " and ", bias.shape(), '.');
  const GruLayerShape shape{x_gates.shape()[0], x_gates.shape()[1], size, width / (3 * size)};
  check(!options.lengths.defined() || options.lengths.shape() == Shape{shape.rows}, "gru",
        "lengths must be (", shape.rows, "), got ", options.lengths.shape(), '.');
  const Var& initial = options.initial;
  check(!initial.defined() || initial.shape() == Shape{shape.rows, shape.states_width()}, "gru",
        "initial states must be (", shape.rows, ", ", shape.states_width(), "), got ",
        initial.shape(), '.');
  const DType dtype = x_gates.dtype();
  const Device device = x_gates.value().device();
  Var y = Tensor::empty({shape.steps, shape.rows, shape.states_width()}, dtype, device);
  const Tensor saved =
      Tape::records(x_gates, weight, bias, initial)
          ? Tensor::empty({shape.directions, shape.steps, shape.rows, 4 * size}, dtype, device)
          : Tensor();
  const Tensor h_gates = Tensor::empty({shape.directions, shape.rows, 3 * size}, dtype, device);
  dispatch(y.value(), [&](auto on, auto type) {
    using T = decltype(type);
    gru_forward<decltype(on), T>(on, shape, x_gates.value().data<T>(), weight.value().data<T>(),
                                 bias.value().data<T>(), data_or_null<T>(initial.value()),
                                 options.lengths, y.value().data<T>(), data_or_null<T>(saved),
                                 h_gates.data<T>());
  });
  Tape::record(
      {&x_gates, &weight, &bias, &initial}, y,
      [shape, saved, lengths = options.lengths, vw = weight.value(), vi = initial.value(),
       vy = y.value(), gx = gradient_of(x_gates), gw = gradient_of(weight), gb = gradient_of(bias),
       gi = gradient_of(initial)](Tensor dy) {
        const Tensor dh_gates =
            Tensor::empty({shape.steps, shape.rows, shape.gates_width()}, dy.dtype(), dy.device());
        const Tensor carry =
            Tensor::empty({shape.directions, shape.rows, shape.size}, dy.dtype(), dy.device());
        if (shape.steps == 0) carry.fill(0);
        Targets<4> targets({gx, gw, gb, gi});
        dispatch(dy, [&](auto on, auto type) {
          using T = decltype(type);
          GruLayerBackward<T> args{};
          args.weight = vw.data<T>(), args.initial = data_or_null<T>(vi);
          args.out = vy.data<T>(), args.saved = saved.data<T>(), args.dy = dy.data<T>();
          args.dx = data_or_null<T>(targets[0].tensor), args.dx_write = targets[0].write;
          args.dh_gates = dh_gates.data<T>(), args.carry = carry.data<T>();
          args.d_weight = data_or_null<T>(targets[1].tensor);
          args.d_weight_write = targets[1].write;
          args.carries_to_initial = gi != nullptr;
          gru_backward(on, shape, lengths, args);
          if (gb) {
            kernels::sum_axis(on, dh_gates.data<T>(), targets[2].tensor.data<T>(), 1,
                              shape.steps * shape.rows, shape.gates_width(), 1.0, targets[2].write);
          }
          if (!gi) return;
          for (int64_t d = 0; d < shape.directions; ++d) {
            kernels::copy_block(on, carry.data<T>() + d * shape.rows * shape.size, shape.size,
                                targets[3].tensor.data<T>() + d * shape.size, shape.states_width(),
                                shape.rows, shape.size, targets[3].write);
          }
        });
        targets.deliver();
      });
  return y;
}

// ---- Additive attention

Var masked_softmax(const Var& scores, const Tensor& lengths) {
  const Shape& shape = scores.shape();
  check(scores.defined() && shape.rank() >= 2 && lengths.defined() &&
            lengths.shape() == Shape{shape[0]},
        "masked_softmax", "expected scores (B, ..., S) and lengths (B), got ", shape, " and ",
        lengths.defined() ? lengths.shape() : Shape{}, '.');
  const int64_t keys = shape[-1], rows = shape.rows() / std::max<int64_t>(1, shape[0]);
  std::vector<int32_t> masked;
  masked.reserve(static_cast<size_t>(shape.numel()));
  for (const int32_t length : lengths.to_vector<int32_t>()) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = 0; j < keys; ++j) masked.push_back(j >= length);
    }
  }
  const Tensor mask = Tensor::from<int32_t>(masked, shape, scores.value().device());
  return softmax(masked_fill(scores, mask, -INFINITY));
}

namespace {

AdditiveAttentionShape additive_shape(const Var& query, const Var& keys, const Var& values,
                                      const Var& v, const Tensor& lengths, const Tensor& memories) {
  const char* const who = "additive_attention";
  for (const Var* input : {&keys, &values, &v}) {
    check_same_kind(who, query, *input);
    check(input->defined(), who, "an input is undefined.");
  }
  const Shape &q = query.shape(), &k = keys.shape(), &e = values.shape();
  const bool fits = (q.rank() == 2 || q.rank() == 3) && k.rank() == 3 && e.rank() == 3 &&
                    v.shape().rank() == 1 && (memories.defined() || q[0] == k[0]) && k[0] == e[0] &&
                    k[1] == e[1] && q[-1] == k[2] && v.shape()[0] == k[2];
  check(fits, who,
        "expected query (B, A) or (B, T, A), keys (B, S, A), values (B, S, E), v (A), got ", q,
        ", ", k, ", ", e, ", ", v.shape(), '.');
  check(!lengths.defined() || lengths.shape() == Shape{k[0]}, who, "lengths must be (", k[0],
        "), got ", lengths.shape(), '.');
  if (memories.defined()) {
    check(q.rank() == 2 && memories.shape() == Shape{q[0]}, who,
          "expected a memory for each of the ", "queries ", q, ", got ", memories.shape(), '.');
    check(!Tape::records(query, keys, values, v), who, "no gradient flows through memories.");
  }
  AdditiveAttentionShape s;
  s.batch = q[0], s.queries = q.rank() == 2 ? 1 : q[1], s.keys = k[1];
  s.size = k[2], s.value_size = e[2];
  s.key_lengths = lengths.defined() ? lengths.data<int32_t>() : nullptr;
  s.memories = memories.defined() ? memories.data<int32_t>() : nullptr;
  return s;
}

}  // namespace

AttentionWeights additive_attention(const Var& query, const Var& keys, const Var& values,
                                    const Var& v, const Tensor& lengths, const Tensor& memories) {
  const AdditiveAttentionShape s = additive_shape(query, keys, values, v, lengths, memories);
  const Shape& q = query.shape();
  const Device device = query.value().device();
  Var y = Tensor::empty(q.with(-1, s.value_size), query.dtype(), device);
  const Tensor weights = Tensor::empty(q.with(-1, s.keys), query.dtype(), device);
  dispatch(y.value(), [&](auto on, auto type) {
    using T = decltype(type);
    kernels::additive_attention(
        on, s,
        AdditiveAttentionForward<T>{query.value().data<T>(), keys.value().data<T>(),
                                    values.value().data<T>(), v.value().data<T>(),
                                    y.value().data<T>(), weights.data<T>()});
  });
  Tape::record({&query, &keys, &values, &v}, y,
               [s, lengths, weights, vq = query.value(), vk = keys.value(), ve = values.value(),
                vv = v.value(), gq = gradient_of(query), gk = gradient_of(keys),
                ge = gradient_of(values), gv = gradient_of(v)](Tensor dy) {
                 Targets<4> targets({gq, gk, ge, gv});
                 dispatch(dy, [&](auto on, auto type) {
                   using T = decltype(type);
                   AdditiveAttentionBackward<T> args{};
                   args.q = vq.data<T>(), args.k = vk.data<T>(), args.values = ve.data<T>();
                   args.v = vv.data<T>(), args.weights = weights.data<T>();
                   args.d_out = dy.data<T>();
                   args.dq = data_or_null<T>(targets[0].tensor), args.dq_write = targets[0].write;
                   args.dk = data_or_null<T>(targets[1].tensor), args.dk_write = targets[1].write;
                   args.d_values = data_or_null<T>(targets[2].tensor);
                   args.d_values_write = targets[2].write;
                   args.dv = data_or_null<T>(targets[3].tensor), args.dv_write = targets[3].write;
                   kernels::additive_attention_backward(on, s, args);
                 });
                 targets.deliver();
               });
  return {y, Var(weights)};
}

AttentionWeights additive_attention_reference(const Var& query, const Var& keys, const Var& values,
                                              const Var& v, const Tensor& lengths) {
  const AdditiveAttentionShape s = additive_shape(query, keys, values, v, lengths, {});
  const Tensor all = Tensor::full({s.batch}, static_cast<double>(s.keys), DType::kInt32);
  const Var sums =
      reshape(query, {s.batch, s.queries, 1, s.size}) + reshape(keys, {s.batch, 1, s.keys, s.size});
  const Var scores = linear(tanh(sums), reshape(v, {1, s.size}));
  const Var weights = masked_softmax(reshape(scores, {s.batch, s.queries, s.keys}),
                                     lengths.defined() ? lengths : all);
  const Shape& q = query.shape();
  return {reshape(matmul(weights, values), q.with(-1, s.value_size)),
          reshape(weights, q.with(-1, s.keys))};
}

}  // namespace tapestry
