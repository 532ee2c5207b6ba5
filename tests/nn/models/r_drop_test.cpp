// R-Drop's loss against a naive loop over KL(p || q) and KL(q || p).
#include "nn/models/r_drop.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/tape.h"
#include "core/base/philox.h"

namespace tapestry {
namespace {

constexpr int64_t kRows = 5, kClasses = 7, kManyClasses = 500;

std::vector<double> logits_of(uint64_t seed) {
  std::vector<double> values;
  for (uint64_t i = 0; i < kRows * kClasses; ++i) {
    values.push_back(2 * philox_normal({seed, 0, 0}, i));
  }
  return values;
}

std::vector<double> log_probabilities(const double* z) {
  double sum = 0;
  for (int64_t j = 0; j < kClasses; ++j) sum += std::exp(z[j]);
  std::vector<double> result;
  for (int64_t j = 0; j < kClasses; ++j) result.push_back(z[j] - std::log(sum));
  return result;
}

double kl(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (size_t j = 0; j < p.size(); ++j) sum += std::exp(p[j]) * (p[j] - q[j]);
  return sum;
}

TEST(RDropTest, IsTheMeanOfBothLossesAndTheirDivergence) {
  const std::vector<double> first = logits_of(1), second = logits_of(2);
  std::vector<double> all = first;
  all.insert(all.end(), second.begin(), second.end());
  const std::vector<int32_t> targets = {3, 0, 6, -1, 2};
  const std::vector<float> weights = {1, 2, 0.5, 1, 1};
  const double alpha = 5;
  double nll = 0, divergence = 0, weight = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    const auto row = static_cast<size_t>(i);
    if (targets[row] < 0) continue;
    const auto p = log_probabilities(first.data() + i * kClasses);
    const auto q = log_probabilities(second.data() + i * kClasses);
    const auto target = static_cast<size_t>(targets[row]);
    nll -= weights[row] * (p[target] + q[target]) / 2;
    divergence += weights[row] * (kl(p, q) + kl(q, p));
    weight += weights[row];
  }
  const Tensor ids = Tensor::from(targets, {kRows});
  const CrossEntropyOptions options{.weights = Tensor::from(weights, {kRows})};
  const Var z(Tensor::from(all, {2 * kRows, kClasses}));
  const CrossEntropy loss = r_drop_of_logits(z, ids, options, alpha);
  EXPECT_NEAR(loss.loss.value().item(), (nll + alpha / 4 * divergence) / weight, 1e-12);
  EXPECT_NEAR(loss.nll_sum(), nll, 1e-12);
  EXPECT_EQ(loss.tokens, kRows - 1);
  CrossEntropyOptions divided = options;
  divided.normalizer = 10;
  EXPECT_NEAR(r_drop_of_logits(z, ids, divided, alpha).loss.value().item(),
              (nll + alpha / 4 * divergence) / 10, 1e-12);
}

// The gradient of a loss by logits of one type, as double.
std::vector<double> gradient_by(DType dtype, const std::vector<double>& logits,
                                const CrossEntropyOptions& options, double alpha) {
  const int64_t rows = std::ssize(logits) / kManyClasses / 2;
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < rows; ++i) targets.push_back(static_cast<int32_t>(i % kManyClasses));
  const Var z =
      Var::parameter(Tensor::from(logits, {2 * rows, kManyClasses}).to(DType::kBFloat16).to(dtype));
  Tape tape;
  tape.backward(r_drop_of_logits(z, Tensor::from(targets, {rows}), options, alpha).loss);
  return z.grad().to_vector<double>();
}

// Passes with dropout differ by a tenth, which a softmax in bfloat16 would hardly show. Only the
// gradient is rounded: the parts of cross-entropy and divergence, and their sum.
TEST(RDropTest, OfLogitsInBFloat16IsComputedWider) {
  constexpr int64_t kRowsOfOne = 64;
  std::vector<double> logits;
  for (uint64_t i = 0; i < kRowsOfOne * kManyClasses; ++i) {
    logits.push_back(3 * philox_normal({1, 0, 0}, i));
  }
  for (uint64_t i = 0; i < kRowsOfOne * kManyClasses; ++i) {
    logits.push_back(logits[i] + 0.1 * philox_normal({2, 0, 0}, i));
  }
  const CrossEntropyOptions options{.label_smoothing = 0.1};
  constexpr double kAlpha = 1000;  // the divergence outweighs the cross-entropy
  const std::vector<double> wide = gradient_by(DType::kFloat64, logits, options, kAlpha);
  const std::vector<double> narrow = gradient_by(DType::kBFloat16, logits, options, kAlpha);
  double squares = 0, errors = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    squares += wide[i] * wide[i];
    errors += (narrow[i] - wide[i]) * (narrow[i] - wide[i]);
  }
  EXPECT_LT(std::sqrt(errors / squares), 0.004);
}

// Two passes without dropout predict the same: the divergence and its gradient are 0.
TEST(RDropTest, OfEqualPassesIsTheUsualLoss) {
  std::vector<double> all = logits_of(1);
  const std::vector<double> again = all;
  all.insert(all.end(), again.begin(), again.end());
  const Tensor ids = Tensor::from(std::vector<int32_t>{3, 0, 6, -1, 2}, {kRows});
  const CrossEntropyOptions options{.label_smoothing = 0.1};
  const Var one = Var::parameter(Tensor::from(logits_of(1), {kRows, kClasses}));
  const Var two = Var::parameter(Tensor::from(all, {2 * kRows, kClasses}));
  {
    Tape tape;
    tape.backward(cross_entropy(one, ids, options).loss);
  }
  {
    Tape tape;
    const CrossEntropy loss = r_drop_of_logits(two, ids, options, 5);
    EXPECT_NEAR(loss.loss.value().item(), cross_entropy(one, ids, options).loss.value().item(),
                1e-12);
    tape.backward(loss.loss);
  }
  const std::vector<double> expected = one.grad().to_vector<double>();
  const std::vector<double> actual = two.grad().to_vector<double>();
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i % expected.size()] / 2, 1e-15);
  }
}

TEST(RDropTest, DoublesRowsOfAnyType) {
  const Tensor ids = Tensor::from(std::vector<int32_t>{1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(twice(ids).shape(), Shape({4, 3}));
  EXPECT_EQ(twice(ids).to_vector<int32_t>(),
            (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
  const Tensor pixels = Tensor::from(std::vector<float>{1, 2}, {2});
  EXPECT_EQ(twice(pixels).to_vector<float>(), (std::vector<float>{1, 2, 1, 2}));
  EXPECT_FALSE(twice(Tensor()).defined());
}

}  // namespace
}  // namespace tapestry
