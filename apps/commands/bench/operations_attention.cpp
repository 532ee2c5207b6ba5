#include <algorithm>

#include "apps/commands/bench/operation.h"

namespace tapestry {
namespace {

using Inputs = std::span<const Var>;

// Numbers of queries (and of outputs), of keys (and of values), and keys that a query sees.
struct Attended {
  double queries, keys, seen;

  // Scores and their sum of values; backward the scores again, and the gradients of the weights, of
  // values, queries and keys.
  Work forward() const { return {2 * product(), 2 * queries + 2 * keys}; }
  Work backward() const { return {5 * product(), 4 * queries + 4 * keys}; }

 private:
  double product() const { return 2 * queries * seen; }
};

// Self-attention on a packed projection; causal in a model that reads one text.
void add_self_attention(OperationRows& rows, const OperationSizes& s) {
  const Shape qkv{s.batch, s.length, (s.heads + 2 * s.kv_heads) * s.head_size};
  const bool causal = s.source == 0;
  const auto length = static_cast<double>(s.length);
  const auto of_heads = [&](int64_t heads) {
    return static_cast<double>(s.rows() * heads * s.head_size);
  };
  const Attended all{of_heads(s.heads), of_heads(s.kv_heads), causal ? (length + 1) / 2 : length};
  const AttentionOptions plain{.heads = s.heads, .kv_heads = s.kv_heads, .causal = causal};
  const auto add = [&](const char* name, const Attended& seen, const AttentionOptions& options) {
    rows.push_back({name, {qkv}, seen.forward(), seen.backward(), [=](Inputs in) {
                      return attention(in[0], options);
                    }});
  };
  add("attention packed qkv", all, plain);
  AttentionOptions changed = plain;
  changed.dropout = 0.1;
  add("attention dropout", all, changed);
  changed = plain, changed.softcap = 30;
  add("attention softcap", all, changed);
  changed = plain, changed.mask = Tensor::zeros({s.length, s.length}, s.numbers.dtype);
  add("attention additive mask (T, S)", all, changed);
  // The first queries of a causal window see fewer keys, those at both ends of another one.
  changed = plain, changed.window = std::max<int64_t>(1, s.length / 4);
  const auto window = static_cast<double>(changed.window);
  const double hidden = window * (window - 1) / (2 * length);
  const double seen = causal ? window - hidden : 2 * (window - hidden) - 1;
  add("attention window", {all.queries, all.keys, seen}, changed);

  const Shape bias{s.heads, 2 * std::min<int64_t>(s.length, 128) - 1};
  rows.push_back(
      {"attention relative bias", {qkv, bias}, all.forward(), all.backward(), [=](Inputs in) {
         AttentionOptions biased = plain;
         biased.relative_bias = in[1];
         return attention(in[0], biased);
       }});
  const std::vector<int32_t> lengths(static_cast<size_t>(s.batch), static_cast<int32_t>(s.length));
  changed = plain, changed.sequences = Sequences::of_lengths(lengths);
  rows.push_back({"attention sequences",
                  {{1, s.rows(), qkv.cols()}},
                  all.forward(),
                  all.backward(),
                  [=, options = changed](Inputs in) { return attention(in[0], options); }});
}

void add_cross_attention(OperationRows& rows, const OperationSizes& s) {
  const int64_t keys = s.source > 0 ? s.source : s.length;
  const Shape q{s.batch, s.length, s.heads * s.head_size};
  const Shape kv{s.batch, keys, 2 * s.kv_heads * s.head_size};
  const Attended all{static_cast<double>(q.numel()), static_cast<double>(kv.numel()) / 2,
                     static_cast<double>(keys)};
  const AttentionOptions options{
      .heads = s.heads,
      .kv_heads = s.kv_heads,
      .key_lengths = Tensor::full({s.batch}, static_cast<double>(keys), DType::kInt32)};
  rows.push_back({"attention packed kv", {q, kv}, all.forward(), all.backward(), [=](Inputs in) {
                    return attention(in[0], in[1], options);
                  }});
  // q + k, tanh, times v, add; the weighted sum. Backward: dw, d_values, tanh, its slope, and three
  // sums.
  const Shape query{s.batch, s.length, s.hidden}, memory{s.batch, keys, s.hidden}, v{s.hidden};
  const auto weights = static_cast<double>(s.rows() * keys);
  const double cells = weights * static_cast<double>(s.hidden);
  const auto a = static_cast<double>(query.numel()), b = static_cast<double>(memory.numel());
  const Tensor lengths = options.key_lengths;
  rows.push_back(
      {"additive_attention, queries, lengths",
       {query, memory, memory, v},
       {6 * cells, 2 * a + 2 * b + weights},
       {14 * cells, 3 * a + 4 * b + weights},
       [=](Inputs in) { return additive_attention(in[0], in[1], in[2], in[3], lengths).out; }});
}

// Two products and a sum for each number; cosines and sines stay in a cache.
void add_rope(OperationRows& rows, const OperationSizes& s) {
  const Shape x{s.batch, s.length, s.heads * s.head_size};
  const auto n = static_cast<double>(x.numel());
  if (s.head_size % 2 != 0) return;
  const Tensor table = Tensor::full({s.length, s.head_size}, 0.7, wider(s.numbers.dtype));
  for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
    rows.push_back({layout == RopeLayout::kHalf ? "rope, halves" : "rope, interleaved",
                    {x},
                    {3 * n, 2 * n},
                    {3 * n, 2 * n},
                    [=, heads = s.heads](Inputs in) {
                      return rope(in[0], table, {.heads = heads, .layout = layout});
                    }});
  }
}

// A step's element-wise work is 11 operations, and 15 backward.
void add_recurrence(OperationRows& rows, const OperationSizes& s) {
  const Shape gates{s.batch, 3 * s.hidden}, h{s.batch, s.hidden};
  const auto n = static_cast<double>(h.numel()), d = static_cast<double>(s.hidden);
  const auto steps = static_cast<double>(s.length);
  // It keeps four numbers of a step.
  rows.push_back({"gru_step", {gates, gates, h}, {11 * n, 12 * n}, {15 * n, 13 * n}, [](Inputs in) {
                    return gru_step(in[0], in[1], in[2]);
                  }});
  const double weights = 3 * d * d;
  rows.push_back({"gru",
                  {{s.length, s.batch, 3 * s.hidden}, {3 * s.hidden, s.hidden}, {3 * s.hidden}},
                  {steps * n * (6 * d + 11), steps * 8 * n + weights},
                  {steps * n * (12 * d + 15), steps * 9 * n + 2 * weights},
                  [](Inputs in) { return gru(in[0], in[1], in[2]); }});
  rows.push_back({"ssru",
                  {{s.batch, s.length, 2 * s.hidden}, {s.hidden}},
                  {12 * steps * n, 4 * steps * n},
                  {22 * steps * n, 6 * steps * n},
                  [](Inputs in) { return ssru(in[0], in[1]).out; }});
}

}  // namespace

void add_attention(OperationRows& rows, const OperationSizes& sizes) {
  add_self_attention(rows, sizes);
  add_cross_attention(rows, sizes);
  add_rope(rows, sizes);
  add_recurrence(rows, sizes);
}

}  // namespace tapestry
