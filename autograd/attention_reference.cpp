#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/attention_shape.h"

namespace tapestry {

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
