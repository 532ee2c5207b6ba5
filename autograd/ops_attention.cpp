#include <cmath>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "core/kernels/attention/attention.h"
#include "core/kernels/rope.h"

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
  check(table.shape().rank() == 2 && table.shape()[1] % 2 == 0 && options.heads >= 0 &&
            options.heads * table.shape()[1] <= width,
        "rope", "x is ", x.shape(), ", the table ", table.shape(), " for ", options.heads,
        " heads.");
  check(options.position_offset >= 0 && options.position_offset + length <= table.shape()[0],
        "rope", "expected positions below ", table.shape()[0], ", got ", length, " from ",
        options.position_offset, " on.");
  const RopeShape shape{.rows = x.shape()[0] * length,
                        .width = width,
                        .heads = options.heads,
                        .head_size = table.shape()[1],
                        .length = length,
                        .position_offset = options.position_offset,
                        .layout = options.layout,
                        .inverse = false};
  Var y = Tensor::empty_like(x.value());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::rope(device, shape, x.value().data<T>(), table.data<Wider<T>>(), y.value().data<T>(),
                  Write::kSet);
  });
  Tape::record({&x}, y, [shape, table, dx = gradient_of(x)](Tensor dy) {
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

namespace {

// The place of q, k or v: which input tensor, and the first column in its rows.
struct Operand {
  int input;
  int64_t column;
};
struct Layout {
  Operand q, k, v;
};

template <class T>
Rows<T> rows_of(const Tensor& tensor, int64_t column) {
  if (!tensor.defined()) return {};
  const int64_t width = tensor.shape()[2];
  using Element = std::remove_const_t<T>;
  return {tensor.data<Element>() + column, width, tensor.shape()[1] * width};
}

AttentionShape attention_shape(const Var& q, const Var& k, int64_t head_size,
                               const AttentionOptions& options) {
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  check(options.heads % kv_heads == 0, "attention", "key/value heads must divide heads, got ",
        kv_heads, " and ", options.heads, '.');
  check(q.shape()[0] == k.shape()[0], "attention", "batch sizes differ: q is ", q.shape(),
        ", k is ", k.shape(), '.');
  check(options.dropout >= 0 && options.dropout < 1, "attention",
        "the dropout probability must be in [0, 1), got ", options.dropout, '.');
  AttentionShape shape;
  shape.batch = q.shape()[0];
  shape.queries = q.shape()[1];
  shape.keys = k.shape()[1];
  shape.heads = options.heads;
  shape.kv_heads = kv_heads;
  shape.head_size = head_size;
  shape.scale = options.scale > 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(head_size));
  shape.causal = options.causal;
  if (options.key_lengths.defined()) {
    check(options.key_lengths.shape() == Shape{shape.batch}, "attention", "key_lengths must be (",
          shape.batch, "), got ", options.key_lengths.shape(), '.');
    shape.key_lengths = options.key_lengths.data<int32_t>();
  }
  if (options.dropout > 0 && Tape::current() != nullptr) {
    shape.dropout = {static_cast<float>(options.dropout), Tape::current()->next_random()};
  }
  return shape;
}

// The width of one head, from the width of a tensor that holds `heads` of them.
int64_t head_size_of(const Var& x, int64_t heads, const char* name) {
  check(x.defined() && x.shape().rank() == 3, "attention", name,
        " must be (batch, length, width), got ", x.shape(), '.');
  check(heads > 0 && x.shape()[2] % heads == 0, "attention", name, " is ", x.shape(),
        ", its width is not a multiple of ", heads, " heads.");
  return x.shape()[2] / heads;
}

// S = scale q k^T + mask, A = softmax(S), y = dropout(A) v, per head and batch element.
// Backward (without dropout): dV = A^T dY, dA = dY V^T, dS = A (dA - sum(dA A)),
// dQ = scale dS K, dK = scale dS^T Q; A is computed again from the log-sum-exp of each row.
Var fused(const std::array<Var, 3>& inputs, const Layout& layout, const AttentionShape& shape,
          const Tensor& key_lengths) {
  const auto operand = [&](const Operand& o) -> const Tensor& { return inputs[o.input].value(); };
  for (const Var& input : inputs) check_same_kind("attention", inputs[0], input);
  const Tensor& q = operand(layout.q);
  Var y = Tensor::empty({shape.batch, shape.queries, shape.heads * shape.head_size}, q.dtype(),
                        q.device());
  const bool recording = Tape::records(inputs[0], inputs[1], inputs[2]);
  const Tensor lse = recording ? Tensor::empty({shape.batch, shape.heads, shape.queries},
                                               wider(q.dtype()), q.device())
                               : Tensor();
  dispatch(q, [&](auto device, auto type) {
    using T = decltype(type);
    AttentionForward<T> args;
    args.q = rows_of<const T>(q, layout.q.column);
    args.k = rows_of<const T>(operand(layout.k), layout.k.column);
    args.v = rows_of<const T>(operand(layout.v), layout.v.column);
    args.out = rows_of<T>(y.value(), 0);
    args.log_sum_exp = data_or_null<Wider<T>>(lse);
    kernels::attention(device, shape, args);
  });
  if (!recording) return y;
  std::array<Tensor, 3> values{inputs[0].value(), inputs[1].value(), inputs[2].value()};
  std::array<GradientRef, 3> gradients{gradient_of(inputs[0]), gradient_of(inputs[1]),
                                       gradient_of(inputs[2])};
  Tape::record({&inputs[0], &inputs[1], &inputs[2]}, y,
               [layout, shape, key_lengths, lse, values, gradients, out = y.value()](Tensor dy) {
                 Targets<3> targets(gradients);
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
                   args.dq = target(layout.q), args.dq_write = targets[layout.q.input].write;
                   args.dk = target(layout.k), args.dk_write = targets[layout.k.input].write;
                   args.dv = target(layout.v), args.dv_write = targets[layout.v.input].write;
                   kernels::attention_backward(device, shape, args);
                 });
                 targets.deliver();
               });
  return y;
}

}  // namespace

Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options) {
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  const int64_t head_size = head_size_of(q, options.heads, "q");
  check(head_size_of(k, kv_heads, "k") == head_size &&
            head_size_of(v, kv_heads, "v") == head_size && k.shape() == v.shape(),
        "attention", "head sizes or lengths differ: q is ", q.shape(), " with ", options.heads,
        " heads, k is ", k.shape(), " and v is ", v.shape(), " with ", kv_heads, '.');
  return fused({q, k, v}, {{0, 0}, {1, 0}, {2, 0}}, attention_shape(q, k, head_size, options),
               options.key_lengths);
}

Var attention(const Var& qkv, const AttentionOptions& options) {
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  const int64_t head_size = head_size_of(qkv, options.heads + 2 * kv_heads, "qkv");
  const int64_t k = options.heads * head_size;
  return fused({qkv, {}, {}}, {{0, 0}, {0, k}, {0, k + kv_heads * head_size}},
               attention_shape(qkv, qkv, head_size, options), options.key_lengths);
}

Var attention(const Var& q, const Var& kv, const AttentionOptions& options) {
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  const int64_t head_size = head_size_of(q, options.heads, "q");
  check(head_size_of(kv, 2 * kv_heads, "kv") == head_size, "attention", "head sizes differ: q is ",
        q.shape(), " with ", options.heads, " heads, kv is ", kv.shape(), " with 2 x ", kv_heads,
        '.');
  return fused({q, kv, {}}, {{0, 0}, {1, 0}, {1, kv_heads * head_size}},
               attention_shape(q, kv, head_size, options), options.key_lengths);
}

namespace {

// 1 where query t may not see key j of batch element b: (B, T, S).
Tensor attention_mask(const AttentionShape& shape, const Tensor& key_lengths, int64_t repeat,
                      Device device) {
  const Tensor lengths = key_lengths.defined() ? key_lengths.to(Device{}) : Tensor();
  Tensor mask = Tensor::zeros({shape.batch, repeat * shape.queries, shape.keys}, DType::kInt32);
  int32_t* element = mask.data<int32_t>();
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t length = lengths.defined() ? lengths.data<int32_t>()[b] : shape.keys;
    for (int64_t row = 0; row < repeat * shape.queries; ++row) {
      const int64_t last = row % shape.queries + shape.keys - shape.queries;
      for (int64_t j = 0; j < shape.keys; ++j, ++element) {
        *element = j >= length || (shape.causal && j > last);
      }
    }
  }
  return mask.to(device);
}

}  // namespace

AttentionWeights attention_reference(const Var& q, const Var& k, const Var& v,
                                     const AttentionOptions& options) {
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  const int64_t size = head_size_of(q, options.heads, "q");
  AttentionOptions without_dropout = options;
  without_dropout.dropout = 0;
  const AttentionShape s = attention_shape(q, k, size, without_dropout);
  const int64_t shared = s.heads / kv_heads;  // query heads of one group
  // The heads of a group are rows of one taller product: (B, shared * T, K) against (B, S, K).
  const Tensor mask = attention_mask(s, options.key_lengths, shared, q.value().device());
  std::vector<Var> outs, maps;
  for (int64_t g = 0; g < kv_heads; ++g) {
    Var qg = slice(q, 2, g * shared * size, (g + 1) * shared * size);
    qg = permute(reshape(qg, {s.batch, s.queries, shared, size}), {0, 2, 1, 3});
    qg = reshape(qg, {s.batch, shared * s.queries, size});
    const Var kg = slice(k, 2, g * size, (g + 1) * size);
    const Var vg = slice(v, 2, g * size, (g + 1) * size);
    const Var scores = s.scale * matmul(qg, kg, {.trans_b = true});
    const Var a = softmax(masked_fill(scores, mask, -INFINITY));
    const Var y = matmul(dropout(a, options.dropout), vg);
    const Var by_head = reshape(y, {s.batch, shared, s.queries, size});
    outs.push_back(reshape(permute(by_head, {0, 2, 1, 3}), {s.batch, s.queries, shared * size}));
    maps.push_back(reshape(a, {s.batch, shared, s.queries, s.keys}));
  }
  return {concat(outs, 2), concat(maps, 1)};
}

}  // namespace tapestry
