// Problems for the tests of attention, and the definition that kernels are compared with.
#pragma once

#include <algorithm>
#include <limits>

#include "core/kernels/attention/attention.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {

enum class DenseMask { kNone, kAdded, kSeen };

// What a case has beside the causal mask and key lengths.
struct AttentionExtras {
  int64_t value_size = 0;  // 0: as keys
  int64_t window = 0;
  Values<int32_t> prefix_lengths = {};
  DenseMask mask = DenseMask::kNone;
  bool mask_by_batch = false, mask_by_head = false;
  int64_t reach = 0;  // of a relative bias; 0: none
  double softcap = 0;
};

struct AttentionCase {
  const char* name;
  int64_t batch, queries, keys, heads, kv_heads, head_size;
  bool causal;
  Values<int32_t> key_lengths;
  float p;
  AttentionExtras extras = {};
};

template <class N>
const N* data_or_null(const Values<N>& values) {
  return values.empty() ? nullptr : values.data();
}

inline AttentionShape shape_of(const AttentionCase& c) {
  AttentionShape shape;
  shape.batch = c.batch;
  shape.queries = c.queries;
  shape.keys = c.keys;
  shape.heads = c.heads;
  shape.kv_heads = c.kv_heads;
  shape.head_size = c.head_size;
  shape.value_size = c.extras.value_size == 0 ? c.head_size : c.extras.value_size;
  shape.scale = 1 / std::sqrt(static_cast<double>(c.head_size));
  shape.softcap = c.extras.softcap;
  shape.causal = c.causal;
  shape.window = c.extras.window;
  shape.key_lengths = data_or_null(c.key_lengths);
  shape.prefix_lengths = data_or_null(c.extras.prefix_lengths);
  shape.dropout = {c.p, {31, 32, 33}};
  return shape;
}

// One operand inside wider rows and batches, so that a kernel which ignores a stride fails.
template <class T>
struct Operand {
  int64_t rows, heads, size, row_stride, batch_stride;
  Values<T> data;

  Operand(int64_t batch, int64_t rows, int64_t heads, int64_t size, int64_t padding, uint64_t seed)
      : rows(rows),
        heads(heads),
        size(size),
        row_stride(heads * size + padding),
        batch_stride(rows * row_stride + 2 * padding),
        data(random_values<T>(batch * batch_stride, seed)) {}

  int64_t index(int64_t b, int64_t t, int64_t h, int64_t i) const {
    return b * batch_stride + t * row_stride + h * size + i;
  }
  double at(int64_t b, int64_t t, int64_t h, int64_t i) const {
    return static_cast<Wider<T>>(data[index(b, t, h, i)]);
  }
  Rows<const T> input() const { return {data.data(), row_stride, batch_stride}; }
  Rows<T> output() { return {data.data(), row_stride, batch_stride}; }
};

// A dense mask (B or 1, H or 1, T, S): about a fifth of its elements hide their key, and every
// seventh row hides all.
struct MaskElements {
  int64_t batch, heads, queries, keys;

  MaskElements(const AttentionCase& c)
      : batch(c.extras.mask_by_batch ? c.batch : 1),
        heads(c.extras.mask_by_head ? c.heads : 1),
        queries(c.queries),
        keys(c.keys) {}

  int64_t count() const { return batch * heads * queries * keys; }
  static bool hides(int64_t i, int64_t keys) {
    return philox_below({91, 4, 5}, static_cast<uint64_t>(i), 5) == 0 || i / keys % 7 == 3;
  }
  template <class T>
  Values<T> added() const {
    Values<T> values = random_values<T>(count(), 92);
    const float hidden = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < count(); ++i) {
      if (hides(i, keys)) values[static_cast<size_t>(i)] = static_cast<T>(hidden);
    }
    return values;
  }
  Values<int32_t> seen() const {
    Values<int32_t> values;
    for (int64_t i = 0; i < count(); ++i) values.push_back(hides(i, keys) ? 0 : 1 + i % 2);
    return values;
  }
};

template <class T>
struct Problem {
  AttentionShape shape;
  int64_t padding;
  Operand<T> q, k, v, d_out;
  MaskElements mask;
  Values<T> added, relative;
  Values<int32_t> seen;
  int64_t reach;

  /// Reads the case's lengths for as long as it lives. `padding` elements between rows.
  explicit Problem(const AttentionCase& c, int64_t padding = 3)
      : shape(shape_of(c)),
        padding(padding),
        q(c.batch, c.queries, c.heads, c.head_size, padding, 1),
        k(c.batch, c.keys, c.kv_heads, c.head_size, padding, 2),
        v(c.batch, c.keys, c.kv_heads, shape.value_size, padding, 3),
        d_out(c.batch, c.queries, c.heads, shape.value_size, padding, 4),
        mask(c),
        relative(c.extras.reach == 0 ? Values<T>()
                                     : random_values<T>(c.heads * (2 * c.extras.reach - 1), 93)),
        reach(c.extras.reach) {
    if (c.extras.mask == DenseMask::kAdded) added = mask.template added<T>();
    if (c.extras.mask == DenseMask::kSeen) seen = mask.seen();
  }

  Operand<T> like_q(uint64_t seed) const { return like(q, seed); }
  Operand<T> like_k(uint64_t seed) const { return like(k, seed); }
  Operand<T> like_v(uint64_t seed) const { return like(v, seed); }
  Operand<T> like_out(uint64_t seed) const { return like(d_out, seed); }
  Values<T> like_relative(uint64_t seed) const {
    return random_values<T>(static_cast<int64_t>(relative.size()), seed);
  }

  ScoreBias<T> bias() const {
    ScoreBias<T> bias;
    bias.added = data_or_null(added);
    bias.seen = data_or_null(seen);
    bias.row_stride = shape.keys;
    bias.head_stride = mask.heads > 1 ? shape.queries * shape.keys : 0;
    bias.batch_stride = mask.batch > 1 ? mask.heads * shape.queries * shape.keys : 0;
    bias.relative = data_or_null(relative);
    bias.reach = reach;
    return bias;
  }

  int64_t distance(int64_t t, int64_t j) const { return j - (t + shape.keys - shape.queries); }
  int64_t relative_index(int64_t h, int64_t t, int64_t j) const {
    return h * (2 * reach - 1) + std::clamp(distance(t, j), 1 - reach, reach - 1) + reach - 1;
  }
  int64_t mask_index(int64_t b, int64_t h, int64_t t, int64_t j) const {
    const int64_t plane = mask.batch > 1 ? b * mask.heads : 0, head = mask.heads > 1 ? h : 0;
    return ((plane + head) * shape.queries + t) * shape.keys + j;
  }

  bool visible(int64_t b, int64_t h, int64_t t, int64_t j) const {
    const int64_t d = distance(t, j);
    const bool in_prefix = shape.prefix_lengths != nullptr && j < shape.prefix_lengths[b];
    if (shape.causal && d > 0 && !in_prefix) return false;
    if (shape.window > 0 && std::abs(d) >= shape.window) return false;
    if (!seen.empty() && seen[mask_index(b, h, t, j)] == 0) return false;
    return shape.key_lengths == nullptr || j < shape.key_lengths[b];
  }
  // Of a visible key.
  double score_bias(int64_t b, int64_t h, int64_t t, int64_t j) const {
    double sum = 0;
    if (!added.empty()) sum += as_double(added[mask_index(b, h, t, j)]);
    if (!relative.empty()) sum += as_double(relative[relative_index(h, t, j)]);
    return sum;
  }

 private:
  Operand<T> like(const Operand<T>& x, uint64_t seed) const {
    return {shape.batch, x.rows, x.heads, x.size, padding, seed};
  }
};

// The definition of attention and its derivative by the chain rule, one weight at a time.
struct Naive {
  std::vector<double> out, log_sum_exp, dq, dk, dv,
      d_relative;  // outputs with the operands' strides

  template <class T>
  explicit Naive(const Problem<T>& p)
      : out(p.d_out.data.size()),
        log_sum_exp(p.shape.batch * p.shape.heads * p.shape.queries,
                    -std::numeric_limits<double>::infinity()),
        dq(p.q.data.size()),
        dk(p.k.data.size()),
        dv(p.v.data.size()),
        d_relative(p.relative.size()) {
    for (int64_t b = 0; b < p.shape.batch; ++b) {
      for (int64_t h = 0; h < p.shape.heads; ++h) {
        for (int64_t t = 0; t < p.shape.queries; ++t) row(p, b, h, t);
      }
    }
  }

 private:
  template <class T>
  void row(const Problem<T>& p, int64_t b, int64_t h, int64_t t) {
    const AttentionShape& s = p.shape;
    const int64_t g = h / (s.heads / s.kv_heads), row_index = (b * s.heads + h) * s.queries + t;
    std::vector<double> weight(s.keys), d_weight(s.keys), factor(s.keys), slope(s.keys, 1);
    double sum = 0, dot = 0;
    for (int64_t j = 0; j < s.keys; ++j) {
      if (!p.visible(b, h, t, j)) continue;
      double score = 0;
      for (int64_t i = 0; i < s.head_size; ++i) score += p.q.at(b, t, h, i) * p.k.at(b, j, g, i);
      score *= s.scale;
      if (s.softcap > 0) {
        const double tanh = std::tanh(score / s.softcap);
        score = s.softcap * tanh;
        slope[j] = 1 - tanh * tanh;
      }
      weight[j] = std::exp(score + p.score_bias(b, h, t, j));
      sum += weight[j];
    }
    if (sum == 0) return;
    log_sum_exp[row_index] = std::log(sum);
    for (int64_t j = 0; j < s.keys; ++j) {
      weight[j] /= sum;
      factor[j] = dropout_factor(s.dropout, static_cast<uint64_t>(row_index * s.keys + j));
      for (int64_t i = 0; i < s.value_size; ++i) {
        const double g_out = p.d_out.at(b, t, h, i);
        out[p.d_out.index(b, t, h, i)] += weight[j] * factor[j] * p.v.at(b, j, g, i);
        dv[p.v.index(b, j, g, i)] += weight[j] * factor[j] * g_out;
        d_weight[j] += factor[j] * g_out * p.v.at(b, j, g, i);
      }
      dot += weight[j] * d_weight[j];
    }
    for (int64_t j = 0; j < s.keys; ++j) {
      const double d_biased = weight[j] * (d_weight[j] - dot);
      const double d_score = s.scale * slope[j] * d_biased;
      if (p.reach > 0) d_relative[p.relative_index(h, t, j)] += d_biased;
      for (int64_t i = 0; i < s.head_size; ++i) {
        dq[p.q.index(b, t, h, i)] += d_score * p.k.at(b, j, g, i);
        dk[p.k.index(b, j, g, i)] += d_score * p.q.at(b, t, h, i);
      }
    }
  }
};

/// In Wider<T>, which has numeric_limits.
template <class T>
Values<Wider<T>> wider(const Values<T>& values) {
  Values<Wider<T>> result;
  for (const T value : values) result.push_back(static_cast<Wider<T>>(value));
  return result;
}

// Expects the elements of an operand to be right, and the memory between them unchanged.
template <class T>
void expect_operand(const Operand<T>& actual, const std::vector<double>& result,
                    const Operand<T>& before, Write write, double units) {
  std::vector<double> expected = widen(wider(before.data));
  for (size_t i = 0; i < expected.size(); ++i) {
    const int64_t in_row = static_cast<int64_t>(i) % actual.batch_stride;
    const bool inside = in_row < actual.rows * actual.row_stride &&
                        in_row % actual.row_stride < actual.heads * actual.size;
    if (inside) expected[i] = result[i] + (write == Write::kAdd ? expected[i] : 0);
  }
  expect_close(wider(actual.data), expected, units);
}

template <class T>
struct Forward {
  Operand<T> out;
  Values<Wider<T>> log_sum_exp;

  explicit Forward(const Problem<T>& p)
      : out(p.like_out(5)), log_sum_exp(p.shape.batch * p.shape.heads * p.shape.queries) {
    kernels::attention<T>(
        TestDevice{}, p.shape,
        {p.q.input(), p.k.input(), p.v.input(), out.output(), log_sum_exp.data(), p.bias()});
  }
};

template <class T>
AttentionBackward<T> backward_args(const Problem<T>& p, const Forward<T>& f) {
  AttentionBackward<T> args = {};
  args.q = p.q.input();
  args.k = p.k.input();
  args.v = p.v.input();
  args.out = f.out.input();
  args.d_out = p.d_out.input();
  args.log_sum_exp = f.log_sum_exp.data();
  args.bias = p.bias();
  return args;
}

/// In units of the epsilon of Wider<T>: see expect_close().
struct Tolerance {
  double out, log_sum_exp, gradients;
};

/// `n` units for each product; the gradients are longer sums of longer products. In bfloat16 it is
/// two units in the last place of that (2^-7 each): on a GPU the weights are rounded before the
/// product with the values, and the output is rounded too. A gradient sums these errors over all
/// rows, and delta has the error of the rounded output: twice that. The log-sum-exp is a float,
/// from products of rounded inputs that are exact in float.
template <class T>
constexpr Tolerance tolerance(double n) {
  if constexpr (!std::is_same_v<T, BFloat16>) return {n, n, 4 * n};
  const double rounded = 1.6e-2 / kEpsilon<float>;
  return {rounded, n, 2 * rounded};
}

/// Forward and backward, with both Writes, against the definition.
template <class T>
void check(const AttentionCase& c, const Tolerance& units, int64_t padding = 3) {
  SCOPED_TRACE(c.name);
  const Problem<T> p(c, padding);
  const Naive naive(p);
  const Forward<T> f(p);
  expect_operand(f.out, naive.out, p.like_out(5), Write::kSet, units.out);
  expect_close(f.log_sum_exp, naive.log_sum_exp, units.log_sum_exp);
  for (const Write write : kBothWrites) {
    Operand<T> dq = p.like_q(6), dk = p.like_k(7), dv = p.like_v(8);
    Values<T> d_relative = p.like_relative(9);
    AttentionBackward<T> args = backward_args(p, f);
    args.dq = dq.output();
    args.dk = dk.output();
    args.dv = dv.output();
    args.dq_write = args.dk_write = args.dv_write = args.d_relative_write = write;
    if (p.reach > 0) args.d_relative = d_relative.data();
    kernels::attention_backward(TestDevice{}, p.shape, args);
    expect_operand(dq, naive.dq, p.like_q(6), write, units.gradients);
    expect_operand(dk, naive.dk, p.like_k(7), write, units.gradients);
    expect_operand(dv, naive.dv, p.like_v(8), write, units.gradients);
    const auto before = widen(wider(p.like_relative(9)));
    expect_close(wider(d_relative), delivered(naive.d_relative, before, write),
                 4 * units.gradients);
  }
}

}  // namespace tapestry
