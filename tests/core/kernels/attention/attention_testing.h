// Problems for the tests of attention, and the definition that kernels are compared with.
#pragma once

#include "core/kernels/attention/attention.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {

struct AttentionCase {
  const char* name;
  int64_t batch, queries, keys, heads, kv_heads, head_size;
  bool causal;
  Values<int32_t> key_lengths;
  float p;
};

inline AttentionShape shape_of(const AttentionCase& c) {
  AttentionShape shape;
  shape.batch = c.batch;
  shape.queries = c.queries;
  shape.keys = c.keys;
  shape.heads = c.heads;
  shape.kv_heads = c.kv_heads;
  shape.head_size = c.head_size;
  shape.scale = 1 / std::sqrt(static_cast<double>(c.head_size));
  shape.causal = c.causal;
  shape.key_lengths = c.key_lengths.empty() ? nullptr : c.key_lengths.data();
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

template <class T>
struct Problem {
  AttentionShape shape;
  int64_t padding;
  Operand<T> q, k, v, d_out;

  /// Reads the case's key lengths for as long as it lives. `padding` elements between rows.
  explicit Problem(const AttentionCase& c, int64_t padding = 3)
      : shape(shape_of(c)),
        padding(padding),
        q(c.batch, c.queries, c.heads, c.head_size, padding, 1),
        k(c.batch, c.keys, c.kv_heads, c.head_size, padding, 2),
        v(c.batch, c.keys, c.kv_heads, c.head_size, padding, 3),
        d_out(c.batch, c.queries, c.heads, c.head_size, padding, 4) {}

  Operand<T> like_q(uint64_t seed) const {
    return {shape.batch, shape.queries, shape.heads, shape.head_size, padding, seed};
  }
  Operand<T> like_k(uint64_t seed) const {
    return {shape.batch, shape.keys, shape.kv_heads, shape.head_size, padding, seed};
  }

  bool visible(int64_t b, int64_t t, int64_t j) const {
    if (shape.causal && j > t + shape.keys - shape.queries) return false;
    return shape.key_lengths == nullptr || j < shape.key_lengths[b];
  }
};

// The definition of attention and its derivative by the chain rule, one weight at a time.
struct Naive {
  std::vector<double> out, log_sum_exp, dq, dk, dv;  // outputs with the operands' strides

  template <class T>
  explicit Naive(const Problem<T>& p)
      : out(p.q.data.size()),
        log_sum_exp(p.shape.batch * p.shape.heads * p.shape.queries,
                    -std::numeric_limits<double>::infinity()),
        dq(p.q.data.size()),
        dk(p.k.data.size()),
        dv(p.k.data.size()) {
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
    std::vector<double> weight(s.keys), d_weight(s.keys), factor(s.keys);
    double sum = 0, dot = 0;
    for (int64_t j = 0; j < s.keys; ++j) {
      if (!p.visible(b, t, j)) continue;
      double score = 0;
      for (int64_t i = 0; i < s.head_size; ++i) score += p.q.at(b, t, h, i) * p.k.at(b, j, g, i);
      weight[j] = std::exp(score * s.scale);
      sum += weight[j];
    }
    if (sum == 0) return;
    log_sum_exp[row_index] = std::log(sum);
    for (int64_t j = 0; j < s.keys; ++j) {
      weight[j] /= sum;
      factor[j] = dropout_factor(s.dropout, static_cast<uint64_t>(row_index * s.keys + j));
      for (int64_t i = 0; i < s.head_size; ++i) {
        const double g_out = p.d_out.at(b, t, h, i);
        out[p.q.index(b, t, h, i)] += weight[j] * factor[j] * p.v.at(b, j, g, i);
        dv[p.k.index(b, j, g, i)] += weight[j] * factor[j] * g_out;
        d_weight[j] += factor[j] * g_out * p.v.at(b, j, g, i);
      }
      dot += weight[j] * d_weight[j];
    }
    for (int64_t j = 0; j < s.keys; ++j) {
      const double d_score = s.scale * weight[j] * (d_weight[j] - dot);
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
      : out(p.like_q(5)), log_sum_exp(p.shape.batch * p.shape.heads * p.shape.queries) {
    kernels::attention<T>(
        TestDevice{}, p.shape,
        {p.q.input(), p.k.input(), p.v.input(), out.output(), log_sum_exp.data()});
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
  return args;
}

/// In units of the epsilon of Wider<T>: see expect_close().
struct Tolerance {
  double out, log_sum_exp, gradients;
};

/// Forward and backward, with both Writes, against the definition.
template <class T>
void check(const AttentionCase& c, const Tolerance& units, int64_t padding = 3) {
  SCOPED_TRACE(c.name);
  const Problem<T> p(c, padding);
  const Naive naive(p);
  const Forward<T> f(p);
  expect_operand(f.out, naive.out, p.like_q(5), Write::kSet, units.out);
  expect_close(f.log_sum_exp, naive.log_sum_exp, units.log_sum_exp);
  for (const Write write : kBothWrites) {
    Operand<T> dq = p.like_q(6), dk = p.like_k(7), dv = p.like_k(8);
    AttentionBackward<T> args = backward_args(p, f);
    args.dq = dq.output();
    args.dk = dk.output();
    args.dv = dv.output();
    args.dq_write = args.dk_write = args.dv_write = write;
    kernels::attention_backward(TestDevice{}, p.shape, args);
    expect_operand(dq, naive.dq, p.like_q(6), write, units.gradients);
    expect_operand(dk, naive.dk, p.like_k(7), write, units.gradients);
    expect_operand(dv, naive.dv, p.like_k(8), write, units.gradients);
  }
}

}  // namespace tapestry
