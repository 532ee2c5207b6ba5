// The recurrence and additive attention against their definitions in other operations.
#include "autograd/ops.h"
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::distance;
using test::error_of;
using test::parameter;
using test::uniform;

const Tensor kLengths = test::ints({4, 0, 2}, {3});

// ---- masked_softmax

// The same as in attention(): with one head the scores are q k^T / sqrt(K).
TEST(MaskedSoftmax, GivesTheWeightsOfAttentionForDotProducts) {
  const Var q = parameter({3, 5, 8}, 1), k = parameter({3, 4, 8}, 2), v = parameter({3, 4, 8}, 3);
  const Tensor dy = uniform({3, 5, 8}, 4);
  const auto gradients = [&](auto forward) {
    Tape tape;
    const Var y = forward();
    std::vector<Tensor> results = {y.value().clone()};
    tape.backward(y, dy);
    for (const Var& x : {q, k, v}) {
      results.push_back(x.grad().clone());
      x.zero_grad();
    }
    return results;
  };
  const auto fused = gradients([&] { return attention(q, k, v, {.key_lengths = kLengths}); });
  const auto composed = gradients([&] {
    const Var scores = (1 / std::sqrt(8.0)) * matmul(q, k, {.trans_b = true});
    return matmul(masked_softmax(scores, kLengths), v);
  });
  for (size_t i = 0; i < fused.size(); ++i) EXPECT_LT(distance(fused[i], composed[i]), 1e-13) << i;
}

TEST(MaskedSoftmax, ARowWithoutAKeyGivesZeros) {
  const Var scores = parameter({3, 4}, 1);
  Tape tape;
  const Var y = masked_softmax(scores, kLengths);
  tape.backward(y, uniform({3, 4}, 2));
  const auto weights = y.value().to_vector<double>(), slope = scores.grad().to_vector<double>();
  for (size_t j = 0; j < 4; ++j) {
    EXPECT_GT(weights[j], 0);
    EXPECT_EQ(weights[4 + j], 0);
    EXPECT_EQ(slope[4 + j], 0);
    EXPECT_EQ(weights[8 + j] == 0, j >= 2);
    EXPECT_EQ(slope[8 + j] == 0, j >= 2);
  }
}

TEST(MaskedSoftmax, RefusesLengthsOfAnotherBatch) {
  EXPECT_EQ(error_of([] {
              masked_softmax(uniform({2, 4}, 1), kLengths);
            }),
            "[masked_softmax] expected scores (B, ..., S) and lengths (B), got (2, 4) and (3).");
}

// ---- additive_attention

TEST(AdditiveAttention, EqualsTheReference) {
  for (const bool single : {true, false}) {
    const Shape query_shape = single ? Shape{3, 7} : Shape{3, 2, 7};
    const Var q = parameter(query_shape, 1), k = parameter({3, 4, 7}, 2);
    const Var values = parameter({3, 4, 5}, 3), v = parameter({7}, 4);
    for (const Tensor& lengths : {Tensor(), kLengths}) {
      const auto run = [&](auto f) {
        Tape tape;
        const AttentionWeights result = f(q, k, values, v, lengths);
        std::vector<Tensor> results = {result.out.value().clone(), result.weights.value().clone()};
        tape.backward(result.out, uniform(result.out.shape(), 5));
        for (const Var& x : {q, k, values, v}) {
          results.push_back(x.grad().clone());
          x.zero_grad();
        }
        return results;
      };
      const auto fused = run([](const auto&... x) { return additive_attention(x...); });
      const auto composed = run(additive_attention_reference);
      for (size_t i = 0; i < fused.size(); ++i) {
        EXPECT_LT(distance(fused[i], composed[i]), 1e-13) << i;
      }
    }
  }
}

// Rows of any number read the memories that they are told.
TEST(AdditiveAttention, QueriesMayShareAMemory) {
  const Var q = parameter({4, 7}, 1), k = parameter({3, 4, 7}, 2), v = parameter({7}, 3);
  const Var values = parameter({3, 4, 5}, 4);
  const std::vector<int32_t> memories = {2, 0, 0, 2};
  const AttentionWeights y =
      additive_attention(q, k, values, v, kLengths, test::ints(memories, {4}));
  for (int64_t r = 0; r < 4; ++r) {
    const int32_t m = memories[static_cast<size_t>(r)];
    const auto own = [](const Var& x, int64_t i) { return Var(x.value().slice(i, i + 1)); };
    const AttentionWeights alone =
        additive_attention(own(q, r), own(k, m), own(values, m), v, kLengths.slice(m, m + 1));
    EXPECT_TRUE(test::same_bits(own(y.out, r).value(), alone.out.value()));
    EXPECT_TRUE(test::same_bits(own(y.weights, r).value(), alone.weights.value()));
  }
  EXPECT_EQ(error_of([&] {
              const Tape tape;
              additive_attention(q, k, values, v, kLengths, test::ints(memories, {4}));
            }),
            "[additive_attention] no gradient flows through memories.");
}

// Sentence 1 has no key: output, weights and gradients are 0, and nothing is NaN.
TEST(AdditiveAttention, AQueryWithoutAKeyGivesZeros) {
  const Var q = parameter({3, 7}, 1), k = parameter({3, 4, 7}, 2), v = parameter({7}, 3);
  Tape tape;
  const AttentionWeights y = additive_attention(q, k, k, v, kLengths);
  tape.backward(y.out, uniform(y.out.shape(), 4));
  for (const Tensor& x : {y.out.value(), y.weights.value(), q.grad(), k.grad()}) {
    const Tensor row = x.slice(1, 2);
    EXPECT_EQ(distance(row, Tensor::zeros(row.shape(), DType::kFloat64)), 0);
  }
  EXPECT_FALSE(y.weights.needs_grad());
}

TEST(AdditiveAttention, RefusesShapesThatDoNotFit) {
  EXPECT_EQ(error_of([] {
              additive_attention(uniform({3, 7}, 1), uniform({3, 4, 6}, 2), uniform({3, 4, 5}, 3),
                                 uniform({6}, 4));
            }),
            "[additive_attention] expected query (B, A) or (B, T, A), keys (B, S, A), values "
            "(B, S, E), v (A), got (3, 7), (3, 4, 6), (3, 4, 5), (6).");
}

// ---- gru

// One direction, composed of single steps; lengths are applied by factors of 0 and 1.
Var composed_gru(const Var& x, const Var& weight, const Var& bias, Var h, const Tensor& lengths,
                 bool backward) {
  const int64_t steps = x.shape()[0], rows = x.shape()[1];
  std::vector<Var> states(static_cast<size_t>(steps));
  for (int64_t s = 0; s < steps; ++s) {
    const int64_t t = backward ? steps - 1 - s : s;
    const Var gates = reshape(slice(x, 0, t, t + 1), {rows, x.shape()[2]});
    Tensor active = Tensor::zeros({rows, 1}, DType::kFloat64);
    for (int64_t b = 0; b < rows; ++b) active.data<double>()[b] = t < lengths.data<int32_t>()[b];
    const Var next = gru_step(gates, linear(h, weight, bias), h);
    h = h + Var(active) * (next - h);
    states[static_cast<size_t>(t)] = h;
  }
  return reshape(concat(states, 0), {steps, rows, h.shape()[1]});
}

TEST(Gru, EqualsItsSteps) {
  const Var x = parameter({4, 3, 24}, 1), weight = parameter({24, 4}, 2), bias = parameter({24}, 3);
  const Var initial = parameter({3, 8}, 4);
  const Tensor dy = uniform({4, 3, 8}, 5);
  const auto run = [&](auto forward) {
    Tape tape;
    const Var y = forward();
    std::vector<Tensor> results = {y.value().clone()};
    tape.backward(y, dy);
    for (const Var& input : {x, weight, bias, initial}) {
      results.push_back(input.grad().clone());
      input.zero_grad();
    }
    return results;
  };
  const auto fused =
      run([&] { return gru(x, weight, bias, {.lengths = kLengths, .initial = initial}); });
  const auto composed = run([&] {
    std::vector<Var> directions;
    for (const int64_t d : {0, 1}) {
      directions.push_back(composed_gru(slice(x, 2, 12 * d, 12 * (d + 1)),
                                        slice(weight, 0, 12 * d, 12 * (d + 1)),
                                        slice(bias, 0, 12 * d, 12 * (d + 1)),
                                        slice(initial, 1, 4 * d, 4 * (d + 1)), kLengths, d == 1));
    }
    return concat(directions, 2);
  });
  for (size_t i = 0; i < fused.size(); ++i) EXPECT_LT(distance(fused[i], composed[i]), 1e-13) << i;
}

// One step and none: the products over all steps are empty.
TEST(Gru, FewSteps) {
  const Var weight = parameter({12, 4}, 2), bias = parameter({12}, 3),
            initial = parameter({3, 4}, 4);
  {
    const Var x = parameter({1, 3, 12}, 1);
    Tape tape;
    const Var y = gru(x, weight, bias);
    const Var step =
        gru_step(reshape(x, {3, 12}), linear(Tensor::zeros({3, 4}, DType::kFloat64), weight, bias),
                 Tensor::zeros({3, 4}, DType::kFloat64));
    EXPECT_LT(distance(y.value().reshape({3, 4}), step.value()), 1e-14);
    tape.backward(y, uniform({1, 3, 4}, 5));
    EXPECT_EQ(distance(weight.grad(), Tensor::zeros({12, 4}, DType::kFloat64)), 0);
  }
  const Var none = parameter({0, 3, 12}, 1);
  Tape tape;
  const Var y = gru(none, weight, bias, {.initial = initial});
  EXPECT_EQ(y.shape(), (Shape{0, 3, 4}));
}

TEST(Gru, RefusesShapesThatDoNotFit) {
  const Tensor x = uniform({4, 3, 12}, 1), weight = uniform({12, 4}, 2), bias = uniform({12}, 3);
  EXPECT_EQ(error_of([&] {
              gru(x, uniform({12, 3}, 2), bias);
            }),
            "[gru] expected x (T, B, N*3D), weight (N*3D, D) and bias (N*3D), got (4, 3, 12), "
            "(12, 3) and (12).");
  EXPECT_EQ(error_of([&] {
              gru(x, weight, bias, {.lengths = test::ints({1, 2}, {2})});
            }),
            "[gru] lengths must be (3), got (2).");
  EXPECT_EQ(error_of([&] {
              gru(x, weight, bias, {.initial = uniform({3, 8}, 4)});
            }),
            "[gru] initial states must be (3, 4), got (3, 8).");
  EXPECT_EQ(
      error_of([&] {
        gru_step(uniform({3, 12}, 1), uniform({3, 9}, 2), uniform({3, 4}, 3));
      }),
      "[gru_step] expected gates (B, 3D) and a state (B, D), got (3, 12), (3, 9) and (3, 4).");
}

TEST(Gru, SameBitsForAnyNumberOfThreads) {
  const Var x = parameter({9, 40, 192}, 1), weight = parameter({192, 32}, 2);
  const Var bias = parameter({192}, 3);
  const auto run = [&](int threads) {
    const test::WithThreads scope(threads);
    Tape tape;
    const Var y = gru(x, weight, bias);
    tape.backward(y, uniform(y.shape(), 4));
    std::vector<Tensor> results = {y.value()};
    for (const Var& input : {x, weight, bias}) {
      results.push_back(input.grad().clone());
      input.zero_grad();
    }
    return results;
  };
  const auto one = run(1), two = run(2), three = run(3);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(test::same_bits(one[i], two[i]) && test::same_bits(one[i], three[i])) << i;
  }
}

}  // namespace
}  // namespace tapestry
