// The gradients of attention derived by the chain rule, step by step: on the tape, on the reference
// and on the fused operation. Expected values come from plain loops over doubles.
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::distance;
using test::Matrix;
using test::parameter;
using test::transpose;
using test::uniform;

Matrix softmax_rows(const Matrix& s) {
  Matrix a(s.rows, s.cols);
  for (int64_t i = 0; i < s.rows; ++i) {
    double total = 0;
    for (int64_t j = 0; j < s.cols; ++j) total += std::exp(s(i, j));
    for (int64_t j = 0; j < s.cols; ++j) a(i, j) = total > 0 ? std::exp(s(i, j)) / total : 0;
  }
  return a;
}

// dL/dS_ij = dL/dA_ij A_ij - A_ij sum_k dL/dA_ik A_ik (step 3 below).
Matrix softmax_gradient(const Matrix& a, const Matrix& da) {
  Matrix ds(a.rows, a.cols);
  for (int64_t i = 0; i < a.rows; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < a.cols; ++k) sum += da(i, k) * a(i, k);
    for (int64_t j = 0; j < a.cols; ++j) ds(i, j) = da(i, j) * a(i, j) - a(i, j) * sum;
  }
  return ds;
}

TEST(Derivation, LineByLine) {
  const int64_t m = 6, n = 5, d_k = 4, d_v = 3;
  const double scale = 1 / std::sqrt(static_cast<double>(d_k));
  const Var x = parameter({m, n}, 1), w_q = parameter({n, d_k}, 2), w_k = parameter({n, d_k}, 3);
  const Var w_v = parameter({n, d_v}, 4);
  const Tensor d_y = uniform({m, d_v}, 5);

  Tape tape;
  const Var q = matmul(x, w_q), k = matmul(x, w_k), v = matmul(x, w_v);
  const Var s = scale * matmul(q, k, {.trans_b = true});
  const Var a = softmax(s);
  const Var y = matmul(a, v);
  for (const Var& value : {q, k, v, s, a}) value.retain_grad();
  tape.backward(y, d_y);

  const Matrix mx(x.value()), mwq(w_q.value()), mwk(w_k.value()), mwv(w_v.value()), dy(d_y);
  const Matrix mq = mx * mwq, mk = mx * mwk, mv = mx * mwv;
  const Matrix ma = softmax_rows(scale * (mq * transpose(mk)));
  EXPECT_LT(distance(y.value(), (ma * mv).tensor()), 1e-12);

  const Matrix dv = transpose(ma) * dy;  // 1. V
  EXPECT_LT(distance(v.grad(), dv.tensor()), 1e-12);
  const Matrix da = dy * transpose(mv);  // 2. A
  EXPECT_LT(distance(a.grad(), da.tensor()), 1e-12);
  const Matrix ds = softmax_gradient(ma, da);  // 3. S
  EXPECT_LT(distance(s.grad(), ds.tensor()), 1e-12);
  const Matrix dq = scale * (ds * mk), dk = scale * (transpose(ds) * mq);  // 4. Q and K
  EXPECT_LT(distance(q.grad(), dq.tensor()), 1e-12);
  EXPECT_LT(distance(k.grad(), dk.tensor()), 1e-12);
  const Matrix xt = transpose(mx);  // 5. the weights
  EXPECT_LT(distance(w_q.grad(), (xt * dq).tensor()), 1e-12);
  EXPECT_LT(distance(w_k.grad(), (xt * dk).tensor()), 1e-12);
  EXPECT_LT(distance(w_v.grad(), (xt * dv).tensor()), 1e-12);
  const Matrix dx =  // 6. X
      dq * transpose(mwq) + dk * transpose(mwk) + dv * transpose(mwv);
  EXPECT_LT(distance(x.grad(), dx.tensor()), 1e-12);
}

// ---- The same formulas per batch element and head, with masks, against both implementations.

struct Setting {
  const char* name;
  int64_t queries, keys, heads, kv_heads, head_size;
  bool causal = false;
  std::vector<int32_t> lengths = {};
  int64_t batch = 2;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

struct Operands {
  explicit Operands(const Setting& s)
      : q(parameter({s.batch, s.queries, s.heads * s.head_size}, 11)),
        k(parameter({s.batch, s.keys, s.kv_heads * s.head_size}, 12)),
        v(parameter({s.batch, s.keys, s.kv_heads * s.head_size}, 13)),
        dy(uniform({s.batch, s.queries, s.heads * s.head_size}, 14)) {
    options = {.heads = s.heads, .kv_heads = s.kv_heads, .causal = s.causal};
    if (!s.lengths.empty()) options.key_lengths = test::ints(s.lengths, {s.batch});
  }
  Var q, k, v;
  Tensor dy;
  AttentionOptions options;
};

struct Results {
  Tensor y, dq, dk, dv;
};

// One head of a (B, T, H * K) tensor as a matrix (T, K).
Matrix head_of(const Tensor& x, int64_t b, int64_t head, int64_t size) {
  Matrix m(x.shape()[1], size);
  for (int64_t t = 0; t < m.rows; ++t) {
    for (int64_t i = 0; i < size; ++i) {
      m(t, i) = x.data<double>()[(b * m.rows + t) * x.shape()[2] + head * size + i];
    }
  }
  return m;
}

void add_to_head(const Tensor& x, int64_t b, int64_t head, const Matrix& m) {
  for (int64_t t = 0; t < m.rows; ++t) {
    for (int64_t i = 0; i < m.cols; ++i) {
      x.data<double>()[(b * m.rows + t) * x.shape()[2] + head * m.cols + i] += m(t, i);
    }
  }
}

Results by_formulas(const Setting& s, const Operands& in) {
  const auto zeros = [](const Var& x) { return Tensor::zeros(x.shape(), DType::kFloat64); };
  Results r{zeros(in.q), zeros(in.q), zeros(in.k), zeros(in.v)};
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_size));
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t g = h / (s.heads / s.kv_heads);
      const Matrix q = head_of(in.q.value(), b, h, s.head_size);
      const Matrix k = head_of(in.k.value(), b, g, s.head_size);
      const Matrix v = head_of(in.v.value(), b, g, s.head_size);
      const Matrix dy = head_of(in.dy, b, h, s.head_size);
      Matrix scores = scale * (q * transpose(k));
      for (int64_t t = 0; t < s.queries; ++t) {
        for (int64_t j = 0; j < s.keys; ++j) {
          const bool hidden =
              (s.causal && j > t + s.keys - s.queries) || (!s.lengths.empty() && j >= s.lengths[b]);
          if (hidden) scores(t, j) = -INFINITY;
        }
      }
      const Matrix a = softmax_rows(scores);
      const Matrix ds = softmax_gradient(a, dy * transpose(v));
      add_to_head(r.y, b, h, a * v);
      add_to_head(r.dq, b, h, scale * (ds * k));
      add_to_head(r.dk, b, g, scale * (transpose(ds) * q));
      add_to_head(r.dv, b, g, transpose(a) * dy);
    }
  }
  return r;
}

template <class F>
Results by_tape(const Operands& in, F&& attend) {
  for (const Var& x : {in.q, in.k, in.v}) x.zero_grad();
  Tape tape;
  const Var y = attend();
  tape.backward(y, in.dy);
  return {y.value(), in.q.grad().clone(), in.k.grad().clone(), in.v.grad().clone()};
}

void expect_near(const Results& actual, const Results& expected, double tolerance) {
  EXPECT_LT(distance(actual.y, expected.y), tolerance);
  EXPECT_LT(distance(actual.dq, expected.dq), tolerance);
  EXPECT_LT(distance(actual.dk, expected.dk), tolerance);
  EXPECT_LT(distance(actual.dv, expected.dv), tolerance);
}

class AttentionDerivation : public ::testing::TestWithParam<Setting> {};

TEST_P(AttentionDerivation, ReferenceFollowsTheFormulas) {
  const Operands in(GetParam());
  expect_near(by_tape(in, [&] { return attention_reference(in.q, in.k, in.v, in.options).out; }),
              by_formulas(GetParam(), in), 1e-12);
}

TEST_P(AttentionDerivation, FusedFollowsTheFormulas) {
  const Operands in(GetParam());
  expect_near(by_tape(in, [&] { return attention(in.q, in.k, in.v, in.options); }),
              by_formulas(GetParam(), in), 1e-10);
}

TEST_P(AttentionDerivation, PackedOperandsFollowTheFormulas) {
  const Operands in(GetParam());
  const Results expected = by_formulas(GetParam(), in);
  expect_near(by_tape(in,
                      [&] {
                        return attention(in.q, concat({in.k, in.v}, 2), in.options);
                      }),
              expected, 1e-10);
  if (in.q.shape()[1] != in.k.shape()[1]) return;
  expect_near(by_tape(in,
                      [&] {
                        return attention(concat({in.q, in.k, in.v}, 2), in.options);
                      }),
              expected, 1e-10);
}

// Without a tape nothing is saved for backward, but the output is the same.
TEST_P(AttentionDerivation, SameWithoutATape) {
  const Operands in(GetParam());
  const Tensor recorded = by_tape(in, [&] { return attention(in.q, in.k, in.v, in.options); }).y;
  EXPECT_TRUE(test::same_bits(recorded, attention(in.q, in.k, in.v, in.options).value()));
}

TEST_P(AttentionDerivation, WeightsOfTheReferenceSumToOneOrZero) {
  const Setting& s = GetParam();
  const Operands in(s);
  const Tensor weights = attention_reference(in.q, in.k, in.v, in.options).weights.value();
  ASSERT_EQ(weights.shape(), (Shape{s.batch, s.heads, s.queries, s.keys}));
  const auto sums = sum(Var(weights), -1).value().to_vector<double>();
  for (size_t row = 0; row < sums.size(); ++row) {
    const int64_t b = row / (s.heads * s.queries), t = row % s.queries;
    const int64_t last = s.causal ? t + s.keys - s.queries : s.keys - 1;
    const bool sees_nothing = last < 0 || (!s.lengths.empty() && s.lengths[b] == 0);
    EXPECT_NEAR(sums[row], sees_nothing ? 0 : 1, 1e-14) << "row " << row;
  }
}

// 65 and 130 tokens cross the tiles of the fused kernel.
INSTANTIATE_TEST_SUITE_P(
    Settings, AttentionDerivation,
    ::testing::Values(Setting{"self", 7, 7, 2, 2, 5}, Setting{"cross", 3, 9, 2, 2, 4},
                      Setting{"causal", 7, 7, 2, 2, 4, true},
                      Setting{"causal_tail", 3, 8, 2, 2, 4, true},
                      Setting{"causal_more_queries_than_keys", 6, 4, 2, 2, 3, true},
                      Setting{"lengths", 4, 6, 2, 2, 4, false, {6, 2}},
                      Setting{"causal_lengths", 6, 6, 2, 2, 4, true, {6, 3}},
                      Setting{"one_sentence_empty", 4, 6, 2, 2, 4, false, {0, 5}},
                      Setting{"grouped", 5, 6, 6, 2, 3, true},
                      Setting{"multi_query", 5, 5, 4, 1, 3}, Setting{"one_token", 1, 1, 1, 1, 1},
                      Setting{"head_of_33", 5, 5, 1, 1, 33, true},
                      Setting{"long", 65, 130, 2, 1, 8, false, {130, 67}},
                      Setting{"long_causal", 130, 130, 1, 1, 16, true, {129, 64}}),
    [](const auto& info) { return std::string(info.param.name); });

// Rows that are masked everywhere: output 0 and gradient 0, never NaN.
TEST(AttentionMasks, RowThatSeesNothingGivesZero) {
  const Setting s{"", 4, 6, 2, 2, 4, false, {0, 5}};
  const Operands in(s);
  const auto check_zero = [&](const Results& r) {
    for (const Tensor& x : {r.y, r.dq, r.dk, r.dv}) {
      const auto first = x.slice(0, 1).to_vector<double>();
      for (const double value : first) EXPECT_EQ(value, 0.0);
    }
  };
  check_zero(by_tape(in, [&] { return attention(in.q, in.k, in.v, in.options); }));
  check_zero(by_tape(in, [&] { return attention_reference(in.q, in.k, in.v, in.options).out; }));
}

TEST(AttentionMasks, LengthsBeyondTheKeysMaskNothing) {
  const Operands in({"", 3, 5, 2, 2, 4});
  AttentionOptions beyond = in.options;
  beyond.key_lengths = test::ints({5, 900}, {2});
  EXPECT_TRUE(test::same_bits(attention(in.q, in.k, in.v, in.options).value(),
                              attention(in.q, in.k, in.v, beyond).value()));
}

// A key/value cache has room that was never written.
TEST(AttentionMasks, MaskedKeysAndValuesAreNeverRead) {
  const Setting s{"", 3, 70, 2, 1, 4, false, {66, 1}};
  const Operands in(s);
  const Tensor clean = attention(in.q, in.k, in.v, in.options).value().clone();
  for (const Tensor& x : {in.k.value(), in.v.value()}) {
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t i = s.lengths[b] * s.head_size; i < s.keys * s.head_size; ++i) {
        x.data<double>()[b * s.keys * s.head_size + i] = NAN;
      }
    }
  }
  EXPECT_LT(distance(attention(in.q, in.k, in.v, in.options).value(), clean), 1e-14);
}

// Large scores: exp must not overflow, so the softmax subtracts the maximum first.
TEST(AttentionMasks, LargeScoresStayFinite) {
  const Setting s{"", 5, 40, 1, 1, 4};
  const Operands in(s);
  const Var q = 1e4 * in.q;
  const Tensor fused = attention(q, in.k, in.v, in.options).value();
  EXPECT_LT(distance(fused, attention_reference(q, in.k, in.v, in.options).out.value()), 1e-10);
}

// With one group the reference draws its dropout in the fused operation's order.
TEST(AttentionDropout, FusedEqualsReferenceDrawByDraw) {
  Operands in({"", 5, 70, 3, 1, 4});
  in.options.dropout = 0.4;
  const auto with_draws = [&](auto attend) {
    for (const Var& x : {in.q, in.k, in.v}) x.zero_grad();
    Tape tape({.seed = 9, .step = 2, .stream = 0});
    const Var y = attend();
    tape.backward(y, in.dy);
    return Results{y.value(), in.q.grad().clone(), in.k.grad().clone(), in.v.grad().clone()};
  };
  expect_near(with_draws([&] { return attention(in.q, in.k, in.v, in.options); }),
              with_draws([&] { return attention_reference(in.q, in.k, in.v, in.options).out; }),
              1e-10);
}

// The same in float32, the type of training, at its precision.
TEST(AttentionFloat32, FollowsTheFormulas) {
  const Setting s{"", 65, 130, 4, 2, 16, true, {130, 50}};
  const Operands in(s);
  const Results expected = by_formulas(s, in);
  const auto single = [](const Var& x) { return Var::parameter(x.value().to(DType::kFloat32)); };
  const Var q = single(in.q), k = single(in.k), v = single(in.v);
  Tape tape;
  const Var y = attention(q, k, v, in.options);
  tape.backward(y, in.dy.to(DType::kFloat32));
  EXPECT_LT(distance(y.value(), expected.y), 2e-6);
  EXPECT_LT(distance(q.grad(), expected.dq), 1e-5);
  EXPECT_LT(distance(k.grad(), expected.dk), 1e-5);
  EXPECT_LT(distance(v.grad(), expected.dv), 1e-5);
}

}  // namespace
}  // namespace tapestry
