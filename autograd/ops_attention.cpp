#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "core/dispatch_device.h"
#include "core/kernels/attention/attention.h"

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

int64_t kv_heads_of(const AttentionOptions& options) {
  return options.kv_heads == 0 ? options.heads : options.kv_heads;
}

const int32_t* lengths_of(const Tensor& lengths, const char* name, int64_t batch) {
  if (!lengths.defined()) return nullptr;
  check(lengths.shape() == Shape{batch}, "attention", name, " must be (", batch, "), got ",
        lengths.shape(), '.');
  return lengths.data<int32_t>();
}

void check_mask(const Tensor& mask, const Var& q, const AttentionShape& s) {
  const Shape& shape = mask.shape();
  const int rank = shape.rank();
  const auto fits = [](int64_t size, int64_t full) { return size == full || size == 1; };
  check(rank >= 2 && rank <= 4 && shape[rank - 1] == s.keys && shape[rank - 2] == s.queries &&
            (rank < 3 || fits(shape[0], s.batch)) && (rank < 4 || fits(shape[1], s.heads)),
        "attention", "the mask must be (", s.queries, ", ", s.keys, "), (", s.batch, ", ",
        s.queries, ", ", s.keys, ") or (", s.batch, ", ", s.heads, ", ", s.queries, ", ", s.keys,
        "), got ", shape, '.');
  check((mask.dtype() == DType::kInt32 || mask.dtype() == q.dtype()) &&
            mask.device() == q.value().device(),
        "attention", "the mask must be int32 or ", q.dtype(), " on ", q.value().device(), ", got ",
        mask.dtype(), " on ", mask.device(), '.');
}

// Makes `shape` one of sequences end to end, q and k (1, N, ...).
void join_sequences(const Var& q, const Var& k, const AttentionOptions& options,
                    AttentionShape& shape) {
  const Sequences& sequences = options.sequences;
  const Shape both{1, sequences.rows()};
  check(q.shape().rank() == 3 && Shape({q.shape()[0], q.shape()[1]}) == both &&
            Shape({k.shape()[0], k.shape()[1]}) == both && !options.key_lengths.defined() &&
            !options.key_rows.defined() && !options.mask.defined(),
        "attention", "with sequences expected q and k of one batch element with ", sequences.rows(),
        " rows, no key_lengths, key_rows or mask, got q ", q.shape(), " and k ", k.shape(), '.');
  shape.batch = sequences.count();
  shape.queries = shape.keys = shape.longest = sequences.longest;
  shape.rows = sequences.rows();
  shape.starts = sequences.starts.data<int32_t>();
}

AttentionShape attention_shape(const Var& q, const Var& k, int64_t head_size, int64_t value_size,
                               const AttentionOptions& options) {
  const int64_t kv_heads = kv_heads_of(options), rows = k.shape()[1];
  check(options.heads % kv_heads == 0, "attention", "key/value heads must divide heads, got ",
        kv_heads, " and ", options.heads, '.');
  const Tensor& key_rows = options.key_rows;
  check(key_rows.defined() || q.shape()[0] == k.shape()[0], "attention",
        "batch sizes differ: q is ", q.shape(), ", k is ", k.shape(), '.');
  check(options.dropout >= 0 && options.dropout < 1, "attention",
        "the dropout probability must be in [0, 1), got ", options.dropout, '.');
  check(options.window >= 0, "attention", "the window must be at least 0, got ", options.window,
        '.');
  check(options.softcap >= 0, "attention", "the softcap must be at least 0, got ", options.softcap,
        '.');
  AttentionShape shape;
  shape.batch = q.shape()[0];
  shape.queries = q.shape()[1];
  shape.keys = rows;
  shape.heads = options.heads;
  shape.kv_heads = kv_heads;
  shape.head_size = head_size;
  shape.value_size = value_size;
  shape.scale = options.scale > 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(head_size));
  shape.softcap = options.softcap;
  shape.causal = options.causal;
  shape.window = options.window;
  if (options.sequences.defined()) join_sequences(q, k, options, shape);
  shape.key_lengths = lengths_of(options.key_lengths, "key_lengths", shape.batch);
  shape.prefix_lengths = lengths_of(options.prefix_lengths, "prefix_lengths", shape.batch);
  if (key_rows.defined()) {
    check(key_rows.shape().rank() == 2 && key_rows.shape()[0] == shape.batch &&
              shape.queries == 1 && k.shape()[0] == 1 && options.key_lengths.defined() &&
              !options.prefix_lengths.defined() && !options.mask.defined(),
          "attention",
          "with key_rows expected one query per batch element, their lengths, and keys ",
          "of one batch element, got q ", q.shape(), ", k ", k.shape(), " and key_rows ",
          key_rows.shape(), '.');
    check(!Tape::records(q, k), "attention", "no gradient flows through key_rows.");
    shape.key_rows = key_rows.data<int32_t>();
    shape.keys = shape.key_rows_stride = key_rows.shape()[1];
  }
  if (options.mask.defined()) check_mask(options.mask, q, shape);
  if (options.relative_bias.defined()) {
    const Shape& table = options.relative_bias.shape();
    check(table.rank() == 2 && table[0] == options.heads && table[1] % 2 == 1, "attention",
          "the relative bias must be (", options.heads, ", 2R - 1), got ", table, '.');
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

// Strides of a mask's elements: 0 for an axis that it lacks or that has size 1.
template <class T>
ScoreBias<T> score_bias(const Tensor& mask, const Tensor& relative) {
  ScoreBias<T> bias;
  if (mask.defined()) {
    const Shape& shape = mask.shape();
    const int rank = shape.rank();
    const int64_t rows = shape[rank - 2], keys = shape[rank - 1];
    const int64_t heads = rank == 4 ? shape[1] : 1;
    if (mask.dtype() == DType::kInt32) {
      bias.seen = mask.data<int32_t>();
    } else {
      bias.added = mask.data<T>();
    }
    bias.row_stride = keys;
    bias.head_stride = heads > 1 ? rows * keys : 0;
    bias.batch_stride = rank > 2 && shape[0] > 1 ? heads * rows * keys : 0;
  }
  if (relative.defined()) {
    bias.relative = relative.data<T>();
    bias.reach = (relative.shape()[1] + 1) / 2;
  }
  return bias;
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

namespace {

// A mask or a bias of all scores, (B, H, T, S), in host memory.
template <class T>
struct Scores {
  Scores(const AttentionShape& s, DType dtype)
      : shape(s), tensor(Tensor::zeros({s.batch, s.heads, s.queries, s.keys}, dtype)) {}

  template <class F>
  void fill(F f) {
    T* element = tensor.data<T>();
    for (int64_t b = 0; b < shape.batch; ++b) {
      for (int64_t h = 0; h < shape.heads; ++h) {
        for (int64_t t = 0; t < shape.queries; ++t) {
          for (int64_t j = 0; j < shape.keys; ++j, ++element) *element = f(b, h, t, j);
        }
      }
    }
  }

  const AttentionShape& shape;
  Tensor tensor;
};

// The number of the sequence that each row belongs to; empty without sequences.
std::vector<int32_t> sequence_of_rows(const Sequences& sequences) {
  std::vector<int32_t> numbers;
  if (!sequences.defined()) return numbers;
  const auto starts = sequences.starts.to(Device{}).to_vector<int32_t>();
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    numbers.insert(numbers.end(), static_cast<size_t>(starts[s + 1] - starts[s]),
                   static_cast<int32_t>(s));
  }
  return numbers;
}

// The masks of the composed attention's scores (B, H, T, S): adds `added`, sets -inf if `hidden`.
struct ComposedMasks {
  Tensor hidden, added;
};

ComposedMasks composed_masks(const AttentionShape& s, const AttentionOptions& options, DType dtype,
                             Device device) {
  const auto on_host = [](const Tensor& x) {
    return x.defined() ? x.to(Device{}).to(DType::kFloat64) : Tensor();
  };
  const Tensor lengths = on_host(options.key_lengths), prefixes = on_host(options.prefix_lengths);
  const Tensor mask = on_host(options.mask), places = on_host(options.sequences.positions);
  const bool adds = mask.defined() && options.mask.dtype() != DType::kInt32;
  const auto element = [&, bias = score_bias<double>(mask, {})](int64_t b, int64_t h, int64_t t,
                                                                int64_t j) {
    return bias.added[b * bias.batch_stride + h * bias.head_stride + t * bias.row_stride + j];
  };
  const std::vector<int32_t> sequence = sequence_of_rows(options.sequences);
  Scores<int32_t> hidden(s, DType::kInt32);
  hidden.fill([&](int64_t b, int64_t h, int64_t t, int64_t j) {
    if (!sequence.empty() && sequence[t] != sequence[j]) return 1;
    const int64_t d = j - (t + s.keys - s.queries);
    const int64_t element_of = sequence.empty() ? b : sequence[t];
    const double place = sequence.empty() ? double(j) : places.data<double>()[j];
    const bool ahead =
        s.causal && d > 0 && !(prefixes.defined() && place < prefixes.data<double>()[element_of]);
    const bool far = s.window > 0 && std::abs(d) >= s.window;
    const bool behind_end = lengths.defined() && double(j) >= lengths.data<double>()[b];
    const bool masked = mask.defined() && element(b, h, t, j) == (adds ? -INFINITY : 0.0);
    return int32_t{ahead || far || behind_end || masked};
  });
  if (!adds) return {hidden.tensor.to(device), {}};
  Scores<double> added(s, DType::kFloat64);
  added.fill([&](int64_t b, int64_t h, int64_t t, int64_t j) {
    const double x = element(b, h, t, j);
    return x == -INFINITY ? 0 : x;
  });
  return {hidden.tensor.to(device), added.tensor.to(dtype).to(device)};
}

// The relative biases of all pairs: table (H, 2R - 1) -> (H, T, S).
Var spread_by_distance(const Var& table, const AttentionShape& s) {
  const int64_t reach = (table.shape()[1] + 1) / 2;
  std::vector<int32_t> columns;
  for (int64_t t = 0; t < s.queries; ++t) {
    for (int64_t j = 0; j < s.keys; ++j) {
      const int64_t d = j - (t + s.keys - s.queries);
      columns.push_back(static_cast<int32_t>(std::clamp(d, 1 - reach, reach - 1) + reach - 1));
    }
  }
  const Tensor ids = Tensor::from(columns, {s.queries, s.keys}, table.value().device());
  return permute(embedding(ids, permute(table, {1, 0})), {2, 0, 1});
}

}  // namespace

AttentionWeights attention_reference(const Var& q, const Var& k, const Var& v,
                                     const AttentionOptions& options, bool with_scores) {
  const int64_t kv_heads = kv_heads_of(options);
  const int64_t size = head_size_of(q, options.heads, "q");
  const int64_t value_size = head_size_of(v, kv_heads, "v");
  AttentionOptions joined = options;  // the mask tells sequences apart
  joined.dropout = 0;
  if (options.sequences.defined()) joined.sequences = {}, joined.prefix_lengths = {};
  const AttentionShape s = attention_shape(q, k, size, value_size, joined);
  const int64_t shared = s.heads / kv_heads, rows = shared * s.queries;  // of one group
  const ComposedMasks masks = composed_masks(s, options, q.dtype(), q.value().device());
  const Var relative =
      options.relative_bias.defined() ? spread_by_distance(options.relative_bias, s) : Var();
  // The heads of a group are rows of one taller product: (B, shared * T, K) against (B, S, K).
  std::vector<Var> outs, maps, products, all_scores;
  const auto by_head = [&](const Var& rows_of_group) {
    return reshape(rows_of_group, {s.batch, shared, s.queries, s.keys});
  };
  for (int64_t g = 0; g < kv_heads; ++g) {
    const auto of_group = [&](const Tensor& scores) {
      const Tensor all = scores.reshape({s.batch, kv_heads * rows, s.keys});
      if (all.dtype() != DType::kInt32) return slice(Var(all), 1, g * rows, (g + 1) * rows).value();
      return slice(Var(all.to(DType::kFloat64)), 1, g * rows, (g + 1) * rows)
          .value()
          .to(DType::kInt32);
    };
    Var qg = slice(q, 2, g * shared * size, (g + 1) * shared * size);
    qg = permute(reshape(qg, {s.batch, s.queries, shared, size}), {0, 2, 1, 3});
    qg = reshape(qg, {s.batch, rows, size});
    const Var kg = slice(slice(k, 2, g * size, (g + 1) * size), 1, 0, s.keys);
    const Var vg = slice(slice(v, 2, g * value_size, (g + 1) * value_size), 1, 0, s.keys);
    const Var product = matmul(qg, kg, {.trans_b = true});
    Var scores = s.scale * product;
    if (s.softcap > 0) scores = softcap(scores, s.softcap);
    if (masks.added.defined()) scores = scores + Var(of_group(masks.added));
    if (relative.defined()) {
      scores = scores + reshape(slice(relative, 0, g * shared, (g + 1) * shared), {rows, s.keys});
    }
    scores = masked_fill(scores, of_group(masks.hidden), -INFINITY);
    const Var a = softmax(scores);
    const Var y =
        reshape(matmul(dropout(a, options.dropout), vg), {s.batch, shared, s.queries, value_size});
    outs.push_back(reshape(permute(y, {0, 2, 1, 3}), {s.batch, s.queries, shared * value_size}));
    maps.push_back(by_head(a));
    if (!with_scores) continue;
    products.push_back(by_head(product));
    all_scores.push_back(by_head(scores));
  }
  AttentionWeights all{concat(outs, 2), concat(maps, 1)};
  if (with_scores) all.products = concat(products, 1), all.scores = concat(all_scores, 1);
  return all;
}

}  // namespace tapestry
