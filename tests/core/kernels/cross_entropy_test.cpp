#include "core/kernels/cross_entropy.h"

#include "core/kernels/matmul/gemm.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int32_t kIgnore = -1;

// The definition at the head of cross_entropy.h, row by row in double.
struct Reference {
  CrossEntropySums sums;
  std::vector<double> dz;

  Reference(const CrossEntropyShape& shape, const std::vector<double>& logits,
            const Values<int32_t>& targets, double grad_scale, const Values<double>& weights = {})
      : dz(logits.size(), 0.0) {
    for (int64_t r = 0; r < shape.rows; ++r) {
      if (targets[r] == shape.ignore_index) continue;
      add_row(shape, &logits[r * shape.classes], targets[r], weights.empty() ? 1 : weights[r],
              grad_scale, &dz[r * shape.classes]);
    }
  }

 private:
  void add_row(const CrossEntropyShape& shape, const double* z, int32_t target, double weight,
               double grad_scale, double* dz_row) {
    const int64_t classes = shape.classes;
    const double e = shape.label_smoothing, max = *std::max_element(z, z + classes);
    double sum = 0, mean = 0;
    for (int64_t j = 0; j < classes; ++j) {
      sum += std::exp(z[j] - max);
      mean += z[j] / static_cast<double>(classes);
    }
    const double log_sum_exp = max + std::log(sum), nll = log_sum_exp - z[target];
    sums.nll += weight * nll;
    sums.loss += weight * ((1 - e) * nll + (e == 0 ? 0 : e * (log_sum_exp - mean)));
    // The first of equals.
    if (std::max_element(z, z + classes) == z + target) sums.correct += weight;
    for (int64_t j = 0; j < classes; ++j) {
      const double softmax = std::exp(z[j] - log_sum_exp);
      dz_row[j] = weight * grad_scale *
                  (softmax - (j == target ? 1 - e : 0) - e / static_cast<double>(classes));
    }
  }
};

Values<int32_t> some_targets(int64_t rows, int64_t classes, int64_t ignore_every) {
  Values<int32_t> targets = random_ints(rows, 9, static_cast<int32_t>(classes));
  for (int64_t r = 0; ignore_every > 0 && r < rows; r += ignore_every) targets[r] = kIgnore;
  return targets;
}

// So that no digit is lost where they are added.
Values<double> some_weights(int64_t rows) {
  Values<double> weights(static_cast<size_t>(rows));
  for (size_t r = 0; r < weights.size(); ++r) weights[r] = 0.25 * static_cast<double>(1 + r % 9);
  return weights;
}

void expect_sums(const CrossEntropySums& got, const CrossEntropySums& expected, double relative) {
  EXPECT_NEAR(got.loss, expected.loss, relative * (1 + std::abs(expected.loss)));
  EXPECT_NEAR(got.nll, expected.nll, relative * (1 + std::abs(expected.nll)));
  EXPECT_EQ(got.correct, expected.correct);
}

template <class T>
CrossEntropySums cross_entropy(const CrossEntropyShape& shape, const Values<T>& logits,
                               const Values<int32_t>& targets, double grad_scale, T* dlogits,
                               const Values<double>& weights = {}) {
  Values<CrossEntropySums> sums(1);
  const RowTargets rows{targets.data(), weights.empty() ? nullptr : weights.data()};
  kernels::cross_entropy(TestDevice{}, shape, logits.data(), rows, grad_scale, dlogits,
                         sums.data());
  return sums[0];
}

// BFloat16 gradients are float's, rounded once: by 2^-8 of their size.
template <class T>
void expect_gradient(const Values<T>& actual, const std::vector<double>& expected, double units) {
  if constexpr (!std::is_same_v<T, BFloat16>) return expect_close(actual, expected, units);
  finish_work();
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double e = expected[i];
    ASSERT_NEAR(as_double(actual[i]), e, 0x1.02p-8 * std::abs(e) + 1e-6) << "element " << i;
  }
}

// CUDA's fused form of BFloat16 stores logits and dz as that.
template <class T>
constexpr bool kRoundsLogits = std::is_same_v<T, BFloat16>&& std::is_same_v<TestDevice, Cuda>;

template <class T>
class CrossEntropyTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(CrossEntropyTest, DeviceTypes);

TYPED_TEST(CrossEntropyTest, EqualsTheDefinition) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t classes : {1, 2, 31, 33, 257, 3000}) {
      for (const double smoothing : {0.0, 0.1}) {
        SCOPED_TRACE(testing::Message() << classes << " classes, smoothing " << smoothing);
        const CrossEntropyShape shape{13, classes, smoothing, kIgnore};
        const auto logits = random_values<T>(13 * classes, 1, -6, 6);
        const auto targets = some_targets(13, classes, 4);
        const Reference expected(shape, widen(logits), targets, 0.25);
        Values<T> dz(logits.size());
        const auto sums = cross_entropy(shape, logits, targets, 0.25, dz.data());
        expect_sums(sums, expected.sums, 40 * kEpsilon<Wider<T>>);
        expect_gradient(dz, expected.dz, 4);
        const auto forward = cross_entropy<T>(shape, logits, targets, 0.25, nullptr);
        EXPECT_EQ(forward.loss, sums.loss);
        EXPECT_EQ(forward.correct, sums.correct);
        const auto weights = some_weights(13);
        const Reference weighted(shape, widen(logits), targets, 0.25, weights);
        expect_sums(cross_entropy(shape, logits, targets, 0.25, dz.data(), weights), weighted.sums,
                    40 * kEpsilon<Wider<T>>);
        expect_gradient(dz, weighted.dz, 4);
      }
    }
  });
}

TYPED_TEST(CrossEntropyTest, LargeLogitsDoNotOverflow) {
  using T = TypeParam;
  const Values<T> logits = {T{1000}, T{996}, T{-1000}};
  const Values<int32_t> targets = {1};
  Values<T> dz(3);
  const auto sums = cross_entropy({1, 3, 0.0, kIgnore}, logits, targets, 1.0, dz.data());
  EXPECT_NEAR(sums.nll, 4 + std::log1p(std::exp(-4.0)), 1e-6);
  expect_gradient(dz, {1 / (1 + std::exp(-4.0)), 1 / (1 + std::exp(4.0)) - 1, 0}, 4);
  EXPECT_EQ(as_double(dz[2]), 0);
}

// Sums that would lose digits in T: 200,000 equal classes.
TEST(CrossEntropySumsTest, ManyClassesKeepTheirDigits) {
  const Values<float> logits(200000, 0.1f);
  const Values<int32_t> target = {7};
  const auto sums = cross_entropy<float>({1, 200000, 0.5, kIgnore}, logits, target, 1.0, nullptr);
  EXPECT_NEAR(sums.loss, std::log(200000.0), 2e-6);
  EXPECT_NEAR(sums.nll, std::log(200000.0), 2e-6);
}

TYPED_TEST(CrossEntropyTest, TheFirstOfEqualLogitsIsThePrediction) {
  using T = TypeParam;
  Values<T> logits(400, T{0});
  logits[100] = logits[300] = T{2};
  for (const auto& [target, correct] : {std::pair{100, 1}, {300, 0}, {0, 0}}) {
    const Values<int32_t> t = {target};
    EXPECT_EQ(cross_entropy<T>({1, 400, 0, kIgnore}, logits, t, 1, nullptr).correct, correct);
  }
}

// Classes masked by -inf have probability 0 and do no harm, even if they are all classes of a
// thread or a vector.
TYPED_TEST(CrossEntropyTest, MaskedLogits) {
  using T = TypeParam;
  Values<T> logits(3000, static_cast<T>(-kInf)), dz(3000);
  const Values<int32_t> target = {2000}, without_chance = {5};
  logits[2000] = logits[2999] = T{3};
  const CrossEntropyShape shape{1, 3000, 0, kIgnore};
  const auto sums = cross_entropy(shape, logits, target, 1, dz.data());
  EXPECT_NEAR(sums.loss, std::log(2.0), 1e-6);
  EXPECT_EQ(as_double(dz[0]), 0);
  EXPECT_NEAR(as_double(dz[2000]), -0.5, 1e-6);
  EXPECT_NEAR(as_double(dz[2999]), 0.5, 1e-6);
  EXPECT_EQ(cross_entropy<T>(shape, logits, without_chance, 1, nullptr).loss, kInf);
}

// Of the target's gradient, too, only the result is rounded: where its logit is far above the
// others both of its parts are near 1.
TYPED_TEST(CrossEntropyTest, ASmallGradientOfTheTarget) {
  using T = TypeParam;
  const Values<T> logits = {T{8}, T{1}, T{0}, T{-1}};
  const Values<int32_t> targets = {0};
  const CrossEntropyShape shape{1, 4, 0, kIgnore};
  const Reference expected(shape, widen(logits), targets, 1);
  Values<T> dz(4);
  cross_entropy(shape, logits, targets, 1.0, dz.data());
  expect_gradient(dz, expected.dz, 4);
}

// The fused form: everything against logits by three loops in double.
template <class T>
struct Classifier {
  Classifier(int64_t rows_in, int64_t classes_in, int64_t in_in, bool with_bias)
      : rows(rows_in), classes(classes_in), in(in_in) {
    x = random_values<T>(rows * in, 21, -1, 1);
    weight = random_values<T>(classes * in, 22, -1, 1);
    if (with_bias) bias = random_values<T>(classes, 23, -1, 1);
  }

  std::vector<double> logits() const {
    std::vector<double> z(static_cast<size_t>(rows * classes));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < classes; ++c) {
        double sum = bias.empty() ? 0 : as_double(bias[c]);
        for (int64_t i = 0; i < in; ++i) {
          sum += as_double(x[r * in + i]) * as_double(weight[c * in + i]);
        }
        z[r * classes + c] = sum;
      }
    }
    return z;
  }

  struct Result {
    CrossEntropySums sums;
    Values<T> dx, d_weight, d_bias;
  };

  Result run(double smoothing, const Values<int32_t>& targets, double grad_scale,
             bool gradients = true, bool weight_gradient = true) const {
    const T nan = static_cast<T>(std::nanf(""));  // must be overwritten
    Result result;
    const RowTargets all{targets.data(), weights.empty() ? nullptr : weights.data()};
    LinearCrossEntropy<T> args{.in = in,
                               .x = x.data(),
                               .weight = weight.data(),
                               .bias = bias.empty() ? nullptr : bias.data(),
                               .targets = all,
                               .host_targets = all,
                               .grad_scale = grad_scale,
                               .chunk_bytes = 0};  // the smallest chunks
    if (gradients) {
      result.dx.reserve(1);  // not null, even without rows
      result.dx.assign(x.size(), nan);
      if (weight_gradient) result.d_weight.assign(weight.size(), nan);
      result.d_bias.assign(bias.size(), nan);
      args.dx = result.dx.data();
      args.d_weight = weight_gradient ? result.d_weight.data() : nullptr;
      args.d_bias = bias.empty() ? nullptr : result.d_bias.data();
    }
    Values<CrossEntropySums> sums(1);
    CrossEntropyShape shape{rows, classes, smoothing, kIgnore};
    shape.softcap = softcap;
    kernels::linear_cross_entropy(TestDevice{}, shape, args, sums.data());
    result.sums = sums[0];
    return result;
  }

  int64_t rows, classes, in;
  Values<T> x, weight, bias;
  Values<double> weights = {};  // of rows; empty: each is 1
  double softcap = 0;
};

template <class T>
void expect_fused(int64_t rows, int64_t classes, int64_t in, bool with_bias, double smoothing,
                  int64_t ignore_every, bool weighted = false, double softcap = 0) {
  SCOPED_TRACE(testing::Message() << rows << " rows, " << classes << " classes, in " << in);
  Classifier<T> model(rows, classes, in, with_bias);
  if (weighted) model.weights = some_weights(rows);
  model.softcap = softcap;
  const auto targets = some_targets(rows, classes, ignore_every);
  const double scale = 0.5;
  std::vector<double> logits = model.logits(), slopes(logits.size(), 1);
  for (size_t i = 0; softcap > 0 && i < logits.size(); ++i) {
    const double tanh = std::tanh(logits[i] / softcap);
    logits[i] = softcap * tanh;
    slopes[i] = 1 - tanh * tanh;
  }
  const Reference expected({rows, classes, smoothing, kIgnore}, logits, targets, scale,
                           model.weights);
  std::vector<double> dx(rows * in, 0.0), dw(classes * in, 0.0), db(classes, 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < classes; ++c) {
      const double dz = expected.dz[r * classes + c] * slopes[r * classes + c];
      db[c] += dz;
      for (int64_t i = 0; i < in; ++i) {
        dx[r * in + i] += dz * as_double(model.weight[c * in + i]);
        dw[c * in + i] += dz * as_double(model.x[r * in + i]);
      }
    }
  }
  const auto got = model.run(smoothing, targets, scale);
  // Logits that are rounded may change their order.
  if (kRoundsLogits<T>) {
    EXPECT_NEAR(got.sums.loss, expected.sums.loss, 1.6e-2 * expected.sums.loss);
    EXPECT_NEAR(got.sums.nll, expected.sums.nll, 1.6e-2 * expected.sums.nll);
  } else {
    expect_sums(got.sums, expected.sums, 40 * kEpsilon<Wider<T>>);
  }
  // BFloat16: the results are rounded, and dz as a factor of products.
  const double units = kRoundsLogits<T> ? 2 : std::is_same_v<T, BFloat16> ? 1 : 60;
  expect_close(got.dx, dx, units);
  expect_close(got.d_weight, dw, units);
  if (!with_bias) return;
  if (kRoundsLogits<T>) return expect_close(got.d_bias, db, units);
  expect_gradient(got.d_bias, db, units);
}

// Sizes below, at and beyond tiles of 256 classes, blocks of 512 rows and their groups.
TYPED_TEST(CrossEntropyTest, FusedEqualsItsParts) {
  using T = TypeParam;
  on_every_target([] { expect_fused<T>(33, 300, 17, true, 0.1, 5); });
  expect_fused<T>(1, 1, 1, false, 0, 0);
  expect_fused<T>(7, 65, 33, true, 0, 3);
  expect_fused<T>(40, 31, 1, false, 0.2, 0);
  expect_fused<T>(1100, 65, 8, true, 0.1, 7);   // several blocks of rows, one group
  expect_fused<T>(4500, 20, 4, true, 0.1, 11);  // several chunks of several blocks
  expect_fused<T>(600, 2100, 9, true, 0.1, 3);  // several groups, one block
  expect_fused<T>(1200, 2309, 5, false, 0, 0);  // several groups and chunks
  expect_fused<T>(540, 700, 6, true, 0.3, 2);   // several of both
}

TYPED_TEST(CrossEntropyTest, FusedRowsHaveWeights) {
  using T = TypeParam;
  on_every_target([] { expect_fused<T>(33, 300, 17, true, 0.1, 5, /*weighted=*/true); });
  expect_fused<T>(1100, 65, 8, true, 0, 7, /*weighted=*/true);
  expect_fused<T>(540, 700, 6, false, 0.3, 2, /*weighted=*/true);  // half of the rows are ignored
}

TYPED_TEST(CrossEntropyTest, FusedLogitsHaveASoftcap) {
  using T = TypeParam;
  on_every_target([] { expect_fused<T>(33, 300, 17, true, 0.1, 5, /*weighted=*/true, 1.5); });
  expect_fused<T>(7, 65, 33, true, 0, 3, false, 0.4);
  expect_fused<T>(40, 31, 1, false, 0.2, 0, false, 3);
  expect_fused<T>(1100, 65, 8, true, 0.1, 7, false, 1);   // several blocks of rows
  expect_fused<T>(1200, 2309, 5, false, 0, 0, false, 2);  // several groups and chunks
}

// At sizes that matter on CUDA.
TEST(CrossEntropyBFloat16Test, FusedEqualsItsParts) {
  expect_fused<BFloat16>(33, 300, 17, true, 0.1, 5);
  expect_fused<BFloat16>(70, 304, 24, true, 0, 3);  // aligned rows
  expect_fused<BFloat16>(7, 65, 33, false, 0.2, 0);
  expect_fused<BFloat16>(2100, 40, 8, true, 0.1, 7);  // several chunks
  expect_fused<BFloat16>(300, 40, 8, true, 0.1, 2);   // without the ignored rows
  expect_fused<BFloat16>(300, 40, 8, true, 0.1, 2, /*weighted=*/true);
  expect_fused<BFloat16>(33, 300, 17, true, 0.1, 5, /*weighted=*/true, 1.5);
}

// On the CPU dz is rounded, as a factor, but no partial sum: equal rows give a sum that float has
// exactly, over several chunks of several blocks.
TEST(CrossEntropyBFloat16Test, SumsOverRowsAreRoundedOnce) {
  if constexpr (std::is_same_v<TestDevice, Cpu>) {
    const int64_t rows = 9001;
    Classifier<BFloat16> model(rows, 2, 1, false);
    model.x.assign(rows, BFloat16(1));
    model.weight = {BFloat16(0.75F), BFloat16(-0.5F)};
    const auto got = model.run(0, Values<int32_t>(rows, 0), 1);
    const float dz = static_cast<float>(BFloat16(1 / (1 + std::exp(1.25F))));
    EXPECT_EQ(got.d_weight[0], BFloat16(-dz * rows));
    EXPECT_EQ(got.d_weight[1], BFloat16(dz * rows));
  }
}

TYPED_TEST(CrossEntropyTest, IgnoredRowsAreAsIfTheyWereNotThere) {
  using T = TypeParam;
  if (kRoundsLogits<T>) return;  // by products that depend on the number of rows
  Classifier<T> model(50, 300, 12, true);
  const Values<int32_t> targets = some_targets(50, 300, 3);
  const auto got = model.run(0.1, targets, 1);
  Classifier<T> dense = model;
  Values<int32_t> real;
  dense.x.clear();
  for (int64_t r = 0; r < 50; ++r) {
    if (targets[r] == kIgnore) continue;
    real.push_back(targets[r]);
    dense.x.insert(dense.x.end(), &model.x[r * 12], &model.x[r * 12] + 12);
  }
  dense.rows = static_cast<int64_t>(real.size());
  const auto expected = dense.run(0.1, real, 1);
  expect_same<double>({got.sums.loss}, {expected.sums.loss}, 60);
  expect_same(got.d_weight, expected.d_weight, 60);
  expect_same(got.d_bias, expected.d_bias, 60);
  Values<T> dx;
  for (int64_t r = 0, next = 0; r < 50; ++r) {
    const bool ignored = targets[r] == kIgnore;
    for (int64_t i = 0; i < 12; ++i) dx.push_back(ignored ? T{0} : expected.dx[next * 12 + i]);
    next += !ignored;
  }
  expect_same(got.dx, dx, 60);
}

TYPED_TEST(CrossEntropyTest, NothingToCount) {
  using T = TypeParam;
  for (const int64_t rows : {0, 6, 200}) {
    const Classifier<T> model(rows, 40, 5, true);
    const auto got = model.run(0.1, Values<int32_t>(rows, kIgnore), 1);
    EXPECT_EQ(got.sums.loss, 0);
    EXPECT_EQ(got.sums.correct, 0);
    EXPECT_EQ(got.dx, Values<T>(rows * 5, T{0}));
    EXPECT_EQ(got.d_weight, Values<T>(40 * 5, T{0}));
    EXPECT_EQ(got.d_bias, Values<T>(40, T{0}));
  }
  Values<T> dz(12, T{3});
  const Values<int32_t> ignored(3, kIgnore);
  cross_entropy<T>({3, 4, 0, kIgnore}, dz, ignored, 1, dz.data());
  EXPECT_EQ(dz, Values<T>(12, T{0}));
}

// A frozen classifier: the other gradients keep their bits.
TYPED_TEST(CrossEntropyTest, TheWeightsGradientMayBeLeftOut) {
  using T = TypeParam;
  if (kRoundsLogits<T>) return;  // by other products
  on_every_target([] {
    for (const bool with_bias : {true, false}) {
      for (const int64_t rows : {0, 70, 1100}) {  // the last: several blocks of rows
        SCOPED_TRACE(testing::Message() << rows << " rows, bias " << with_bias);
        const Classifier<T> model(rows, 300, 9, with_bias);
        const auto targets = some_targets(rows, 300, 4);
        const auto all = model.run(0.1, targets, 0.5);
        const auto without = model.run(0.1, targets, 0.5, true, /*weight_gradient=*/false);
        EXPECT_EQ(without.sums.loss, all.sums.loss);
        EXPECT_EQ(without.dx, all.dx);
        if (with_bias) {
          EXPECT_EQ(without.d_bias, all.d_bias);
        }
        EXPECT_TRUE(without.d_weight.empty());
      }
    }
  });
}

TYPED_TEST(CrossEntropyTest, LossAloneIsTheSameLoss) {
  using T = TypeParam;
  const Classifier<T> model(70, 600, 9, true);
  const auto targets = some_targets(70, 600, 4);
  const auto with = model.run(0.1, targets, 1), without = model.run(0.1, targets, 1, false);
  EXPECT_EQ(with.sums.loss, without.sums.loss);
  EXPECT_EQ(with.sums.nll, without.sums.nll);
  EXPECT_EQ(with.sums.correct, without.sums.correct);
}

// A one-hot x picks a column of W, so every logit is set exactly: here equal ones in several tiles.
TYPED_TEST(CrossEntropyTest, FusedTieGoesToTheFirstClass) {
  using T = TypeParam;
  Classifier<T> model(1, 1000, 1, false);
  model.x = {T{1}};
  model.weight.assign(1000, T{0});
  for (const int64_t c : {310, 390, 800}) model.weight[c] = T{2};
  for (const auto& [target, correct] : {std::pair{310, 1}, {390, 0}, {800, 0}, {5, 0}}) {
    EXPECT_EQ(model.run(0, {target}, 1).sums.correct, correct) << target;
  }
}

TYPED_TEST(CrossEntropyTest, NonFiniteLogitsReachTheLoss) {
  using T = TypeParam;
  for (const double bad : {std::nan(""), kInf}) {
    for (const int64_t at : {0, 3, 299, 699}) {
      Classifier<T> model(1, 700, 1, false);
      model.x = {T{1}};
      model.weight[at] = static_cast<T>(bad);
      EXPECT_TRUE(std::isnan(model.run(0.1, {5}, 1).sums.loss)) << bad << " at " << at;
      EXPECT_TRUE(std::isnan(as_double(model.run(0.1, {5}, 1).d_weight[1]))) << bad << " at " << at;
      const Values<int32_t> target = {5};
      EXPECT_TRUE(std::isnan(
          cross_entropy<T>({1, 700, 0, kIgnore}, model.weight, target, 1, nullptr).loss));
    }
  }
}

// Classes masked by -inf, even a whole tile of them, have probability 0 and do no harm.
TYPED_TEST(CrossEntropyTest, MaskedClasses) {
  using T = TypeParam;
  Classifier<T> model(1, 700, 1, true);
  model.x = {T{1}};
  for (int64_t c = 0; c < 600; ++c) model.bias[c] = static_cast<T>(-kInf);
  Classifier<T> rest(1, 100, 1, true);
  rest.x = {T{1}};
  rest.weight.assign(model.weight.begin() + 600, model.weight.end());
  rest.bias.assign(model.bias.begin() + 600, model.bias.end());
  const auto got = model.run(0, {650}, 1), expected = rest.run(0, {50}, 1);
  EXPECT_NEAR(got.sums.loss, expected.sums.loss, 1e-5);
  EXPECT_EQ(as_double(got.d_bias[0]), 0);
  EXPECT_NEAR(as_double(got.d_bias[650]), as_double(expected.d_bias[50]),
              std::max(1e-5, kEpsilon<T>));
  EXPECT_EQ(model.run(0, {5}, 1).sums.loss, kInf) << "a target without a chance";
}

TYPED_TEST(CrossEntropyTest, BitsDoNotDependOnThreads) {
  using T = TypeParam;
  for (const auto& [rows, classes] : {std::pair<int64_t, int64_t>{600, 65}, {530, 1500}}) {
    const Classifier<T> model(rows, classes, 24, true);
    const auto targets = some_targets(rows, classes, 6);
    expect_same_for_any_threads([&] {
      auto result = model.run(0.1, targets, 1);
      Values<T> all = {static_cast<T>(result.sums.loss)};
      for (const auto& part : {result.dx, result.d_weight, result.d_bias}) {
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    });
  }
}

}  // namespace
}  // namespace tapestry
