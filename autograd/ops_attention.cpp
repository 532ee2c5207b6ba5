#include "autograd/attention_shape.h"
#include "autograd/recording.h"
#include "core/dispatch_device.h"

namespace tapestry {
namespace {

// The place of q, k or v: which input tensor, and the first column in its rows.
struct Operand {
  int input;
  int64_t column;
};
struct Layout {
  Operand q, k, v;
};
// The attention options that kernels read; the tape keeps them.
struct Masks {
  Tensor key_lengths, prefix_lengths, mask, starts;
};

template <class T>
Rows<T> rows_of(const Tensor& tensor, int64_t column) {
  if (!tensor.defined()) return {};
  const int64_t width = tensor.shape()[2];
  using Element = std::remove_const_t<T>;
  return {tensor.data<Element>() + column, width, tensor.shape()[1] * width};
}

// S = softcap(scale q k^T) + bias, A = softmax(S) over the keys that are seen, y = dropout(A) v,
// per head and batch element. Backward (without dropout): dV = A^T dY, dA = dY V^T, dS = A (dA -
// sum(dA A)), dQ = scale dS K, dK = scale dS^T Q; the relative bias of a distance gets the sum of
// its dS. Behind a softcap the dS of Q and K are multiplied by 1 - tanh^2. A is computed again from
// the log-sum-exp of each row.
Var fused(const std::array<Var, 3>& operands, const Layout& layout, const AttentionShape& shape,
          const AttentionOptions& options) {
  const std::array<Var, 4> inputs{operands[0], operands[1], operands[2], options.relative_bias};
  const auto operand = [&](const Operand& o) -> const Tensor& { return inputs[o.input].value(); };
  for (const Var& input : inputs) check_same_kind("attention", inputs[0], input);
  const Tensor& q = operand(layout.q);
  const Masks masks{options.key_lengths, options.prefix_lengths, options.mask,
                    options.sequences.starts};
  const Tensor relative = inputs[3].defined() ? inputs[3].value() : Tensor();
  const Shape& places = inputs[layout.q.input].shape();
  Var y =
      Tensor::empty({places[0], places[1], shape.heads * shape.value_size}, q.dtype(), q.device());
  const bool recording = Tape::records(inputs[0], inputs[1], inputs[2], inputs[3]);
  const Tensor lse =
      recording ? Tensor::empty({places[0], shape.heads, places[1]}, wider(q.dtype()), q.device())
                : Tensor();
  dispatch(q, [&](auto device, auto type) {
    using T = decltype(type);
    AttentionForward<T> args;
    args.q = rows_of<const T>(q, layout.q.column);
    args.k = rows_of<const T>(operand(layout.k), layout.k.column);
    args.v = rows_of<const T>(operand(layout.v), layout.v.column);
    if (shape.key_rows != nullptr) args.k.batch_stride = args.v.batch_stride = 0;
    args.out = rows_of<T>(y.value(), 0);
    args.log_sum_exp = data_or_null<Wider<T>>(lse);
    args.bias = score_bias<T>(masks.mask, relative);
    kernels::attention(device, shape, args);
  });
  if (!recording && !TapeObserver::looks_on()) return y;
  std::array<Tensor, 3> values{inputs[0].value(), inputs[1].value(), inputs[2].value()};
  std::array<GradientRef, 4> gradients{gradient_of(inputs[0]), gradient_of(inputs[1]),
                                       gradient_of(inputs[2]), gradient_of(inputs[3])};
  Tape::record(
      {&inputs[0], &inputs[1], &inputs[2], &inputs[3]}, y,
      [layout, shape, masks, relative, lse, values, gradients, out = y.value()](Tensor dy) {
        Targets<4> targets(gradients);
        dispatch(dy, [&](auto device, auto type) {
          using T = decltype(type);
          const auto value = [&](const Operand& o) {
            return rows_of<const T>(values[o.input], o.column);
          };
          const auto target = [&](const Operand& o) {
            return rows_of<T>(targets[o.input].tensor, o.column);
          };
          AttentionBackward<T> args;
          args.q = value(layout.q), args.k = value(layout.k), args.v = value(layout.v);
          args.out = rows_of<const T>(out, 0);
          args.d_out = rows_of<const T>(dy, 0);
          args.log_sum_exp = lse.data<Wider<T>>();
          args.bias = score_bias<T>(masks.mask, relative);
          args.dq = target(layout.q), args.dq_write = targets[layout.q.input].write;
          args.dk = target(layout.k), args.dk_write = targets[layout.k.input].write;
          args.dv = target(layout.v), args.dv_write = targets[layout.v.input].write;
          args.d_relative = data_or_null<T>(targets[3].tensor);
          args.d_relative_write = targets[3].write;
          kernels::attention_backward(device, shape, args);
        });
        targets.deliver();
      },
      "attention");
  return y;
}

// Kv, from the width of the values of `heads` heads and from the options.
int64_t value_size_of(int64_t width, int64_t heads, const AttentionOptions& options) {
  check(width > 0 && width % heads == 0 &&
            (options.value_size == 0 || options.value_size == width / heads),
        "attention", "expected values of ", heads, " x ",
        options.value_size == 0 ? "any size" : concat(options.value_size), ", got ", width,
        " columns.");
  return width / heads;
}

}  // namespace

Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options) {
  const int64_t kv_heads = kv_heads_of(options);
  const int64_t head_size = head_size_of(q, options.heads, "q");
  check(head_size_of(k, kv_heads, "k") == head_size && head_size_of(v, kv_heads, "v") > 0 &&
            k.shape().with(2, 0) == v.shape().with(2, 0),
        "attention", "head sizes or lengths differ: q is ", q.shape(), " with ", options.heads,
        " heads, k is ", k.shape(), " and v is ", v.shape(), " with ", kv_heads, '.');
  const int64_t value_size = value_size_of(v.shape()[2], kv_heads, options);
  return fused({q, k, v}, {{0, 0}, {1, 0}, {2, 0}},
               attention_shape(q, k, head_size, value_size, options), options);
}

Var attention(const Var& qkv, const AttentionOptions& options) {
  const int64_t kv_heads = kv_heads_of(options);
  int64_t head_size = 0;
  if (options.value_size == 0) {
    head_size = head_size_of(qkv, options.heads + 2 * kv_heads, "qkv");
  } else {
    check(qkv.defined() && qkv.shape().rank() == 3, "attention",
          "qkv must be (batch, length, width), got ", qkv.shape(), '.');
    const int64_t width = qkv.shape()[2] - kv_heads * options.value_size;
    head_size = width / (options.heads + kv_heads);
    check(head_size > 0 && width % (options.heads + kv_heads) == 0, "attention", "qkv is ",
          qkv.shape(), ", too wide or too narrow for ", options.heads, " + ", kv_heads,
          " heads and values of ", kv_heads, " x ", options.value_size, '.');
  }
  const int64_t value_size = options.value_size == 0 ? head_size : options.value_size;
  const int64_t k = options.heads * head_size;
  return fused({qkv, {}, {}}, {{0, 0}, {0, k}, {0, k + kv_heads * head_size}},
               attention_shape(qkv, qkv, head_size, value_size, options), options);
}

Var attention(const Var& q, const Var& kv, const AttentionOptions& options) {
  const int64_t kv_heads = kv_heads_of(options);
  const int64_t head_size = head_size_of(q, options.heads, "q");
  check(head_size_of(kv, kv_heads, "kv") > head_size, "attention", "head sizes differ: q is ",
        q.shape(), " with ", options.heads, " heads, kv is ", kv.shape(), " with 2 x ", kv_heads,
        '.');
  const int64_t value_size = value_size_of(kv.shape()[2] - kv_heads * head_size, kv_heads, options);
  return fused({q, kv, {}}, {{0, 0}, {1, 0}, {1, kv_heads * head_size}},
               attention_shape(q, kv, head_size, value_size, options), options);
}

}  // namespace tapestry
