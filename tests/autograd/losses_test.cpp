// Cross-entropy, by itself and fused with the classifier, against a plain loop; accumulation.
#include "core/allocator.h"
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::distance;
using test::parameter;
using test::uniform;

struct NaiveLoss {
  double loss = 0, nll = 0;
  int64_t tokens = 0, correct = 0;
  test::Matrix gradient;  ///< of loss / normalizer by the logits
};

// PyTorch's label smoothing: the target distribution is (1 - e) one_hot + e / V.
NaiveLoss naive_cross_entropy(const test::Matrix& z, const Tensor& targets, double e,
                              int32_t ignored, double normalizer) {
  NaiveLoss r{0, 0, 0, 0, test::Matrix(z.rows, z.cols)};
  for (int64_t i = 0; i < z.rows; ++i) {
    const int32_t target = targets.data<int32_t>()[i];
    if (target == ignored) continue;
    ++r.tokens;
    double total = 0;
    int64_t best = 0;
    for (int64_t c = 0; c < z.cols; ++c) {
      total += std::exp(z(i, c));
      if (z(i, c) > z(i, best)) best = c;
    }
    r.correct += best == target;
    for (int64_t c = 0; c < z.cols; ++c) {
      const double wanted = (c == target ? 1 - e : 0) + e / z.cols;
      const double log_p = z(i, c) - std::log(total);
      r.loss -= wanted * log_p;
      if (c == target) r.nll -= log_p;
      r.gradient(i, c) = std::exp(log_p) - wanted;
    }
  }
  const double divisor = normalizer > 0 ? normalizer : std::max<double>(1, r.tokens);
  r.gradient = (1 / divisor) * r.gradient;
  return r;
}

struct LossSetting {
  const char* name;
  double smoothing;
  int32_t ignored;
  double normalizer;
  bool all_ignored = false;
};

void PrintTo(const LossSetting& setting, std::ostream* out) { *out << setting.name; }

class Losses : public ::testing::TestWithParam<LossSetting> {
 protected:
  static constexpr int64_t kRows = 3 * 47, kIn = 6, kClasses = 33;

  Losses() {
    for (const int64_t row : {0, 5, 46, 140}) targets_.data<int32_t>()[row] = GetParam().ignored;
    if (GetParam().all_ignored) targets_.fill(GetParam().ignored);
  }

  void expect_sums(const CrossEntropy& actual, const NaiveLoss& expected) {
    const LossSetting& s = GetParam();
    const double divisor = s.normalizer > 0 ? s.normalizer : std::max<double>(1, expected.tokens);
    EXPECT_EQ(actual.tokens, expected.tokens);
    EXPECT_EQ(actual.correct(), expected.correct);
    EXPECT_NEAR(actual.loss_sum(), expected.loss, 1e-11);
    EXPECT_NEAR(actual.nll_sum(), expected.nll, 1e-11);
    EXPECT_NEAR(actual.loss.value().item(), expected.loss / divisor, 1e-12);
  }

  const Tensor targets_ = test::uniform_ids({3, 47}, 2, 0, kClasses);
  const CrossEntropyOptions options_{.label_smoothing = GetParam().smoothing,
                                     .ignore_index = GetParam().ignored,
                                     .normalizer = GetParam().normalizer};
};

TEST_P(Losses, CrossEntropyEqualsTheNaiveLoop) {
  const Var logits = parameter({3, 47, kClasses}, 1, -4, 4);
  const NaiveLoss expected =
      naive_cross_entropy(test::Matrix(logits.value()), targets_, GetParam().smoothing,
                          GetParam().ignored, GetParam().normalizer);
  Tape tape;
  const CrossEntropy actual = cross_entropy(logits, targets_, options_);
  expect_sums(actual, expected);
  tape.backward(actual.loss);
  EXPECT_LT(distance(logits.grad(), expected.gradient.tensor(logits.shape())), 1e-14);
}

TEST_P(Losses, LinearCrossEntropyEqualsTheNaiveLoop) {
  const Var x = parameter({3, 47, kIn}, 3), w = parameter({kClasses, kIn}, 4);
  const Var b = parameter({kClasses}, 5);
  const test::Matrix mx(x.value()), mw(w.value());
  test::Matrix z = mx * test::transpose(mw);
  for (int64_t i = 0; i < z.rows; ++i) {
    for (int64_t c = 0; c < z.cols; ++c) z(i, c) += b.value().data<double>()[c];
  }
  const NaiveLoss expected = naive_cross_entropy(z, targets_, GetParam().smoothing,
                                                 GetParam().ignored, GetParam().normalizer);
  Tape tape;
  const CrossEntropy actual = linear_cross_entropy(x, w, b, targets_, options_);
  expect_sums(actual, expected);
  tape.backward(actual.loss, 3.0);
  const test::Matrix dz = 3.0 * expected.gradient;
  EXPECT_LT(distance(x.grad(), (dz * mw).tensor(x.shape())), 1e-13);
  EXPECT_LT(distance(w.grad(), (test::transpose(dz) * mx).tensor()), 1e-12);
  test::Matrix ones(1, z.rows);
  ones.values.assign(ones.values.size(), 1);
  EXPECT_LT(distance(b.grad(), (ones * dz).tensor({kClasses})), 1e-12);
}

TEST_P(Losses, LinearCrossEntropyEqualsLinearAndCrossEntropy) {
  const Var x = parameter({3, 47, kIn}, 3), w = parameter({kClasses, kIn}, 4);
  const Var b = parameter({kClasses}, 5);
  const auto run = [&](auto&& loss_of) {
    for (const Var& p : {x, w, b}) p.zero_grad();
    Tape tape;
    const CrossEntropy loss = loss_of();
    tape.backward(loss.loss);
    return std::vector<Tensor>{loss.loss.value(), x.grad().clone(), w.grad().clone(),
                               b.grad().clone()};
  };
  const auto fused = run([&] { return linear_cross_entropy(x, w, b, targets_, options_); });
  const auto composed = run([&] { return cross_entropy(linear(x, w, b), targets_, options_); });
  for (size_t i = 0; i < fused.size(); ++i) {
    EXPECT_LT(distance(fused[i], composed[i]), 1e-12) << "part " << i;
  }
}

TEST_P(Losses, SameLossWithoutATape) {
  const Var x = parameter({3, 47, kIn}, 3), w = parameter({kClasses, kIn}, 4);
  double recorded = 0;
  {
    Tape tape;
    recorded = linear_cross_entropy(x, w, {}, targets_, options_).loss.value().item();
  }
  EXPECT_NEAR(linear_cross_entropy(x, w, {}, targets_, options_).loss.value().item(), recorded,
              1e-14 * std::abs(recorded));
}

INSTANTIATE_TEST_SUITE_P(Settings, Losses,
                         ::testing::Values(LossSetting{"plain", 0, -1, 0},
                                           LossSetting{"smoothed", 0.1, -1, 0},
                                           LossSetting{"padding_is_class_zero", 0.1, 0, 0},
                                           LossSetting{"normalizer", 0.2, 0, 1000},
                                           LossSetting{"all_ignored", 0.1, 0, 0, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(LossOfNothing, IsZeroAndItsGradientToo) {
  const Var x = parameter({2, 3, 4}, 1), w = parameter({7, 4}, 2);
  Tape tape;
  const CrossEntropy loss = linear_cross_entropy(x, w, {}, Tensor::full({2, 3}, -1, DType::kInt32));
  tape.backward(loss.loss);
  EXPECT_EQ(loss.loss.value().item(), 0.0);
  EXPECT_EQ(loss.tokens, 0);
  EXPECT_EQ(distance(x.grad(), Tensor::zeros(x.shape(), DType::kFloat64)), 0.0);
  EXPECT_EQ(distance(w.grad(), Tensor::zeros(w.shape(), DType::kFloat64)), 0.0);
}

// ---- A classifier that stays as it is

struct Gradients {
  std::vector<double> x, bias;
  int64_t bytes = 0;  ///< taken from the allocator at the most
};

Gradients through_classifier(const Tensor& x_value, const Tensor& weight, const Tensor& bias,
                             const Tensor& targets, bool frozen) {
  const test::WithThreads one(1);  // each thread has scratch memory of its own
  const Var x = Var::parameter(x_value), b = Var::parameter(bias);
  const Var w = frozen ? Var(weight) : Var::parameter(weight);
  const int64_t before = host_memory().bytes_in_use;
  reset_peak_bytes();
  Tape tape;
  tape.backward(linear_cross_entropy(x, w, b, targets).loss);
  EXPECT_EQ(w.grad().defined(), !frozen);
  return {x.grad().to_vector<double>(), b.grad().to_vector<double>(),
          host_memory().peak_bytes - before};
}

TEST(FrozenClassifier, HasNoGradientInMemoryAndTheOthersKeepTheirBits) {
  // Rows enough for two blocks, each of which has a part of dW.
  const int64_t rows = 600, in = 512, classes = 1800;
  const Tensor x = uniform({rows, in}, 1), weight = uniform({classes, in}, 2),
               bias = uniform({classes}, 3);
  const Tensor targets = test::uniform_ids({rows}, 4, 0, classes);
  through_classifier(x, weight, bias, targets, false);  // takes the scratch memory of the thread
  const Gradients learnt = through_classifier(x, weight, bias, targets, false);
  const Gradients frozen = through_classifier(x, weight, bias, targets, true);
  EXPECT_EQ(frozen.x, learnt.x);
  EXPECT_EQ(frozen.bias, learnt.bias);
  EXPECT_LE(frozen.bytes, learnt.bytes - weight.bytes());
  // Without dW: logits, dx and its parts for each of eight groups of classes.
  const int64_t logits = rows * (classes + 8 * 16) * 8, dx = rows * in * 8;
  EXPECT_LE(frozen.bytes, (logits + 9 * dx) * 5 / 4);
}

// ---- Weights

TEST(LossWeights, ARowOfWeightTwoStandsThereTwice) {
  const Tensor x = uniform({3, 6}, 1);
  const Tensor twice = Tensor::empty({6, 6}, DType::kFloat64);
  const int64_t from[] = {0, 0, 1, 2, 2, 2};
  for (int64_t i = 0; i < 6; ++i) twice.slice(i, i + 1).copy_from(x.slice(from[i], from[i] + 1));
  const Var head = parameter({9, 6}, 4);
  const auto gradient = [&](const CrossEntropy& loss, Tape& tape) {
    tape.backward(loss.loss);
    const Tensor result = head.grad().clone();
    head.zero_grad();
    return result;
  };
  Tensor weights = Tensor::full({3}, 1, DType::kFloat32);
  weights.data<float>()[0] = 2, weights.data<float>()[2] = 3;
  for (const bool fused : {true, false}) {
    const auto loss_of = [&](const Tensor& rows, const Tensor& targets, const Tensor& w) {
      const CrossEntropyOptions options{.label_smoothing = 0.1, .weights = w};
      return fused ? linear_cross_entropy(Var(rows), head, {}, targets, options)
                   : cross_entropy(linear(Var(rows), head), targets, options);
    };
    Tape tape;
    const CrossEntropy weighted = loss_of(x, test::ints({4, 0, 8}, {3}), weights);
    const Tensor actual = gradient(weighted, tape);
    Tape again;
    const CrossEntropy repeated = loss_of(twice, test::ints({4, 4, 0, 8, 8, 8}, {6}), {});
    const Tensor expected = gradient(repeated, again);
    EXPECT_EQ(weighted.tokens, 3);
    EXPECT_NEAR(weighted.loss.value().item(), repeated.loss.value().item(), 1e-14);
    EXPECT_NEAR(weighted.loss_sum(), repeated.loss_sum(), 1e-13);
    EXPECT_NEAR(weighted.nll_sum(), repeated.nll_sum(), 1e-13);
    EXPECT_EQ(weighted.correct(), repeated.correct());
    EXPECT_LT(distance(actual, expected), 1e-14);
  }
}

// ---- Accumulation: an accumulated gradient equals that of the big batch

TEST(Accumulation, MicroBatchesEqualTheBigBatch) {
  const int64_t rows = 12, d = 6, classes = 9;
  const Tensor x = uniform({rows, d}, 1);
  Tensor targets = test::uniform_ids({rows}, 2, 0, classes);
  for (const int64_t ignored : {1, 2, 3, 10}) targets.data<int32_t>()[ignored] = -1;
  const Var w = parameter({d, d}, 3), head = parameter({classes, d}, 4),
            b = parameter({classes}, 5);
  // The micro-batches hold 2 and 6 real tokens.
  const auto pass = [&](int64_t begin, int64_t end) {
    Tape tape;
    const CrossEntropy loss =
        linear_cross_entropy(tanh(linear(Var(x.slice(begin, end)), w)), head, b,
                             targets.slice(begin, end), {.label_smoothing = 0.1, .normalizer = 8});
    tape.backward(loss.loss);
    return loss;
  };
  const CrossEntropy big = pass(0, rows);
  EXPECT_EQ(big.tokens, 8);
  std::vector<Tensor> expected;
  for (const Var& p : {w, head, b}) {
    expected.push_back(p.grad().clone());
    p.zero_grad();
  }
  const CrossEntropy first = pass(0, 5), second = pass(5, rows);
  EXPECT_EQ(first.tokens, 2);
  EXPECT_EQ(second.tokens, 6);
  EXPECT_NEAR(first.loss.value().item() + second.loss.value().item(), big.loss.value().item(),
              1e-14);
  EXPECT_LT(distance(w.grad(), expected[0]), 1e-14);
  EXPECT_LT(distance(head.grad(), expected[1]), 1e-14);
  EXPECT_LT(distance(b.grad(), expected[2]), 1e-14);
}

}  // namespace
}  // namespace tapestry
