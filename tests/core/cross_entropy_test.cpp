#include "core/kernels/cross_entropy.h"

#include "tests/core/cross_entropy_testing.h"

namespace tapestry {
namespace {

template <class T>
class CrossEntropyTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(CrossEntropyTest, FloatingTypes);

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
        const auto sums = kernels::cross_entropy(TestDevice{}, shape, logits.data(), targets.data(), 0.25,
                                                 dz.data());
        expect_sums(sums, expected.sums, 40 * std::numeric_limits<T>::epsilon());
        expect_close(dz, expected.dz, 4);
        const auto forward = kernels::cross_entropy<T>(TestDevice{}, shape, logits.data(), targets.data(),
                                                       0.25, nullptr);
        EXPECT_EQ(forward.loss, sums.loss);
        EXPECT_EQ(forward.correct, sums.correct);
      }
    }
  });
}

TYPED_TEST(CrossEntropyTest, LargeLogitsDoNotOverflow) {
  using T = TypeParam;
  const Values<T> logits = {1000, 999, -1000};
  const Values<int32_t> targets = {1};
  Values<T> dz(3);
  const auto sums = kernels::cross_entropy(TestDevice{}, {1, 3, 0.0, kIgnore}, logits.data(),
                                           targets.data(), 1.0, dz.data());
  EXPECT_NEAR(sums.nll, 1 + std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(dz[1], 1 / (1 + std::exp(1.0)) - 1, 1e-6);
  EXPECT_EQ(dz[2], 0);
}

// Sums that T alone would spoil: 200,000 equal classes.
TEST(CrossEntropySumsTest, ManyClassesKeepTheirDigits) {
  const Values<float> logits(200000, 0.1f);
  const Values<int32_t> target = {7};
  const auto sums = kernels::cross_entropy<float>(TestDevice{}, {1, 200000, 0.5, kIgnore}, logits.data(),
                                                  target.data(), 1.0, nullptr);
  EXPECT_NEAR(sums.loss, std::log(200000.0), 2e-6);
  EXPECT_NEAR(sums.nll, std::log(200000.0), 2e-6);
}

TYPED_TEST(CrossEntropyTest, TheFirstOfEqualLogitsIsThePrediction) {
  using T = TypeParam;
  Values<T> logits(400, T{0});
  logits[100] = logits[300] = 2;
  for (const auto& [target, correct] : {std::pair{100, 1}, {300, 0}, {0, 0}}) {
    const Values<int32_t> t = {target};
    EXPECT_EQ(kernels::cross_entropy<T>(TestDevice{}, {1, 400, 0, kIgnore}, logits.data(), t.data(), 1, nullptr)
                  .correct,
              correct);
  }
}

TYPED_TEST(CrossEntropyTest, IgnoredRowsHaveNoGradient) {
  using T = TypeParam;
  Values<T> dz(12, T{3});
  const Values<int32_t> ignored(3, kIgnore);
  kernels::cross_entropy<T>(TestDevice{}, {3, 4, 0, kIgnore}, dz.data(), ignored.data(), 1, dz.data());
  EXPECT_EQ(dz, Values<T>(12, T{0}));
}

TYPED_TEST(CrossEntropyTest, NonFiniteLogitsReachTheLoss) {
  using T = TypeParam;
  const Values<int32_t> target = {5};
  for (const double bad : {std::nan(""), kInf}) {
    for (const int64_t at : {0, 3, 299, 699}) {
      Values<T> logits(700, T{0});
      logits[at] = static_cast<T>(bad);
      EXPECT_TRUE(std::isnan(kernels::cross_entropy<T>(TestDevice{}, {1, 700, 0, kIgnore},
                                                       logits.data(), target.data(), 1, nullptr)
                                 .loss))
          << bad << " at " << at;
    }
  }
}

// Classes masked by -inf have probability 0 and do no harm, even where a thread sees no other.
TYPED_TEST(CrossEntropyTest, MaskedClasses) {
  using T = TypeParam;
  Values<T> logits(3000, static_cast<T>(-kInf)), dz(3000);
  const Values<int32_t> targets = {2000, 5};
  logits[2000] = logits[2999] = 3;
  const CrossEntropyShape shape{1, 3000, 0, kIgnore};
  const auto sums =
      kernels::cross_entropy(TestDevice{}, shape, logits.data(), targets.data(), 1, dz.data());
  EXPECT_NEAR(sums.loss, std::log(2.0), 1e-6);
  EXPECT_EQ(dz[0], 0);
  EXPECT_NEAR(dz[2000], -0.5, 1e-6);
  EXPECT_NEAR(dz[2999], 0.5, 1e-6);
  EXPECT_EQ(kernels::cross_entropy<T>(TestDevice{}, shape, logits.data(), &targets[1], 1, nullptr)
                .loss,
            kInf)
      << "a target without a chance";
}

}  // namespace
}  // namespace tapestry
