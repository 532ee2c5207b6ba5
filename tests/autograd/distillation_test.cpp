// The distilled loss against a naive loop over softmax(t / T) and softmax(z / T), and its limits.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/ops.h"
#include "core/base/philox.h"

namespace tapestry {
namespace {

constexpr int64_t kRows = 5, kClasses = 7;
const std::vector<int32_t> kTargets = {3, 0, 6, -1, 2};
const std::vector<float> kWeights = {1, 2, 0.5, 1, 1};

std::vector<double> draws(uint64_t seed, int64_t count = kRows * kClasses) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(2 * philox_normal({seed, 0, 0}, static_cast<uint64_t>(i)));
  }
  return values;
}

std::vector<double> probabilities(const double* z, double temperature) {
  double sum = 0;
  for (int64_t j = 0; j < kClasses; ++j) sum += std::exp(z[j] / temperature);
  std::vector<double> result;
  for (int64_t j = 0; j < kClasses; ++j) result.push_back(std::exp(z[j] / temperature) / sum);
  return result;
}

Distillation teacher_of(const std::vector<double>& logits, double weight, double temperature) {
  const Tensor all = Tensor::from(logits, {std::ssize(logits) / kClasses, kClasses});
  return {.weight = weight,
          .temperature = temperature,
          .logits = [all](int64_t begin, int64_t end) { return all.slice(begin, end); }};
}

struct Expected {
  double loss = 0, nll = 0, divergence = 0;
  std::vector<double> gradient = std::vector<double>(kRows * kClasses);
};

Expected naive(const std::vector<double>& student, const std::vector<double>& teacher, double a,
               double temperature, double smoothing, double normalizer) {
  Expected all;
  for (int64_t i = 0; i < kRows; ++i) {
    const auto row = static_cast<size_t>(i);
    if (kTargets[row] < 0) continue;
    const double weight = kWeights[row];
    const auto p = probabilities(teacher.data() + i * kClasses, temperature);
    const auto q = probabilities(student.data() + i * kClasses, temperature);
    const auto hard = probabilities(student.data() + i * kClasses, 1);
    for (size_t j = 0; j < static_cast<size_t>(kClasses); ++j) {
      const double truth = (static_cast<int32_t>(j) == kTargets[row] ? 1 - smoothing : 0) +
                           smoothing / static_cast<double>(kClasses);
      all.loss -= weight * (1 - a) * truth * std::log(hard[j]);
      all.divergence += weight * p[j] * std::log(p[j] / q[j]);
      all.gradient[row * kClasses + j] =
          weight * ((1 - a) * (hard[j] - truth) + a * temperature * (q[j] - p[j])) / normalizer;
    }
    all.nll -= weight * std::log(hard[static_cast<size_t>(kTargets[row])]);
  }
  all.loss = (all.loss + a * temperature * temperature * all.divergence) / normalizer;
  return all;
}

class DistillationTest : public testing::TestWithParam<std::tuple<double, double>> {};
INSTANTIATE_TEST_SUITE_P(WeightAndTemperature, DistillationTest,
                         testing::Combine(testing::Values(0.3, 1.), testing::Values(1., 0.5, 4.)));

TEST_P(DistillationTest, IsTheFormulasLossAndGradient) {
  const auto [a, temperature] = GetParam();
  const std::vector<double> student = draws(1), teacher = draws(2);
  for (const double normalizer : {0., 10.}) {
    const Expected expected =
        naive(student, teacher, a, temperature, 0.1, normalizer > 0 ? normalizer : 4.5);
    const CrossEntropyOptions options{.label_smoothing = 0.1,
                                      .weights = Tensor::from(kWeights, {kRows}),
                                      .normalizer = normalizer};
    const Var z = Var::parameter(Tensor::from(student, {kRows, kClasses}));
    Tape tape;
    const CrossEntropy loss = distilled_cross_entropy(z, Tensor::from(kTargets, {kRows}), options,
                                                      teacher_of(teacher, a, temperature));
    EXPECT_NEAR(loss.loss.value().item(), expected.loss, 1e-12);
    EXPECT_NEAR(loss.nll_sum(), expected.nll, 1e-12);
    EXPECT_NEAR(loss.divergence(), expected.divergence, 1e-12);
    EXPECT_EQ(loss.tokens, kRows - 1);
    tape.backward(loss.loss);
    const std::vector<double> gradient = z.grad().to_vector<double>();
    for (size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_NEAR(gradient[i], expected.gradient[i], 1e-15) << i;
    }
  }
}

// A student that predicts what its teacher does has nothing to learn from it.
TEST(DistillationLimitTest, OfTheTeacherItselfIsTheUsualLoss) {
  const Tensor ids = Tensor::from(kTargets, {kRows});
  const Var z(Tensor::from(draws(1), {kRows, kClasses}));
  const CrossEntropy loss = distilled_cross_entropy(z, ids, {}, teacher_of(draws(1), 0.25, 2));
  EXPECT_NEAR(loss.divergence(), 0, 1e-13);
  EXPECT_NEAR(loss.loss.value().item(), 0.75 * cross_entropy(z, ids).loss.value().item(), 1e-13);
}

// The rows come in several chunks of a large vocabulary, each asked of the teacher once, without a
// tape; and a student of few bits is compared in float32.
TEST(DistillationLimitTest, GoesThroughManyRowsInChunks) {
  constexpr int64_t kMany = 9, kLarge = 300000;
  std::vector<int32_t> targets;
  for (int32_t i = 0; i < kMany; ++i) targets.push_back(i % 4 == 3 ? -1 : 31 * i);
  const Tensor ids = Tensor::from(targets, {kMany});
  Tensor student = Tensor::empty({kMany, kLarge}), teacher = Tensor::empty({kMany, kLarge});
  for (int64_t i = 0; i < student.numel(); ++i) {
    student.data<float>()[i] = static_cast<float>(i % 1013) / 300;
    teacher.data<float>()[i] = static_cast<float>(i % 2017) / 700;
  }
  std::vector<int64_t> asked;
  const Distillation distillation{
      .weight = 0.5, .temperature = 1, .logits = [&](int64_t begin, int64_t end) {
        EXPECT_EQ(Tape::current(), nullptr);
        asked.push_back(begin);
        return teacher.slice(begin, end);
      }};
  Tape tape;
  const Var z = Var::parameter(student);
  const CrossEntropy loss = distilled_cross_entropy(z, ids, {}, distillation);
  tape.backward(loss.loss);
  EXPECT_GT(asked.size(), 1U);
  const Var p = softmax(Var(teacher.to(DType::kFloat64))), q(student.to(DType::kFloat64));
  const Var each = sum(p * (log(p) - log_softmax(q)), 1);
  double divergence = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] >= 0) divergence += each.value().data<double>()[i];
  }
  EXPECT_NEAR(loss.divergence(), divergence, 1e-4 * divergence);
  EXPECT_NEAR(loss.loss.value().item(),
              0.5 * (loss.nll_sum() + divergence) / static_cast<double>(loss.tokens), 1e-4);
  Tape narrow;
  const Var rounded = Var::parameter(student.to(DType::kBFloat16));
  const CrossEntropy of_rounded = distilled_cross_entropy(rounded, ids, {}, distillation);
  narrow.backward(of_rounded.loss);
  EXPECT_EQ(rounded.grad().dtype(), DType::kBFloat16);
  EXPECT_NEAR(of_rounded.divergence(), loss.divergence(), 1e-2 * divergence);
}

TEST(DistillationLimitTest, RefusesWhatDoesNotFit) {
  const Tensor ids = Tensor::from(kTargets, {kRows});
  const Var z(Tensor::from(draws(1), {kRows, kClasses}));
  EXPECT_THROW(distilled_cross_entropy(z, ids, {}, teacher_of(draws(1), 0, 1)), Error);
  EXPECT_THROW(distilled_cross_entropy(z, ids, {}, teacher_of(draws(1), 0.5, 0)), Error);
  Distillation narrow = teacher_of(draws(1), 0.5, 1);
  narrow.logits = [](int64_t begin, int64_t end) {
    return Tensor::zeros({end - begin, kClasses - 1}, DType::kFloat64);
  };
  EXPECT_THROW(distilled_cross_entropy(z, ids, {}, narrow), Error);
}

}  // namespace
}  // namespace tapestry
