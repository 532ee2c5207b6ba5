#include "core/kernels/optimizer.h"
#include "core/kernels/sum_squares.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr AdamStep kAdam = {.learning_rate = 0.1,
                            .weight_decay = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.98,
                            .eps = 1e-9,
                            .decoupled = true,
                            .bias_correction1 = 1 - 0.9,
                            .bias_correction2 = 1 - 0.98};

// Master weights and states are those of a float update, bit for bit, and the weights are the
// rounded master weights.
TEST(OptimizerBFloat16, UpdatesTheMasterAndRoundsItToTheWeights) {
  for (const int64_t n : {1, 31, 5000}) {
    const auto grad = random_values<BFloat16>(n, 1);
    Values<float> wide_grad, master = random_values<float>(n, 2);
    for (const BFloat16 g : grad) wide_grad.push_back(static_cast<float>(g));
    Values<float> m = random_values<float>(n, 3), v = random_values<float>(n, 4, 0.1, 1);
    Values<float> expected = master, expected_m = m, expected_v = v;
    Values<BFloat16> param(n, BFloat16(123.0f));  // ignored if there is a master
    const GradientTransform transform{0.37, 0.4};
    kernels::optimizer_step<float>(
        TestDevice{},
        std::vector<ParameterUpdate<float>>{
            {kAdam, expected.data(), wide_grad.data(), {expected_m.data(), expected_v.data()}, n}},
        transform);
    kernels::optimizer_step<BFloat16>(
        TestDevice{},
        std::vector<ParameterUpdate<BFloat16>>{
            {kAdam, param.data(), grad.data(), {m.data(), v.data()}, n, master.data()}},
        transform);
    EXPECT_EQ(master, expected);
    EXPECT_EQ(m, expected_m);
    EXPECT_EQ(v, expected_v);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(param[i], BFloat16(expected[i])) << i;
  }
}

// Sums over ranks come in float, at any place of a flat array.
TEST(OptimizerBFloat16, TakesAGradientInFloat) {
  constexpr int64_t kN = 5000;
  for (const int64_t first : {0, 4, 1}) {
    const Values<float> sums = random_values<float>(first + kN, 1);
    Values<float> master = random_values<float>(kN, 2), expected = master;
    Values<BFloat16> param(kN, BFloat16(0.0f));
    const SgdStep sgd{.learning_rate = 0.5, .weight_decay = 0};
    kernels::optimizer_step<float>(
        TestDevice{},
        std::vector<ParameterUpdate<float>>{{sgd, expected.data(), sums.data() + first, {}, kN}},
        {});
    kernels::optimizer_step<BFloat16>(
        TestDevice{},
        std::vector<ParameterUpdate<BFloat16>>{
            {sgd, param.data(), nullptr, {}, kN, master.data(), sums.data() + first}},
        {});
    EXPECT_EQ(master, expected);
    for (int64_t i = 0; i < kN; ++i) ASSERT_EQ(param[i], BFloat16(expected[i])) << i;
  }
}

TEST(OptimizerBFloat16, WithoutAMasterTheWeightsThemselvesAreUpdated) {
  Values<BFloat16> param(9, BFloat16(1.0f)), grad(9, BFloat16(0.5f));
  kernels::optimizer_step<BFloat16>(
      TestDevice{},
      std::vector<ParameterUpdate<BFloat16>>{
          {SgdStep{.learning_rate = 0.5, .weight_decay = 0}, param.data(), grad.data(), {}, 9}},
      {});
  EXPECT_EQ(widen(param), std::vector<double>(9, 0.75));
}

// The squares of small gradients decay by a thousandth an update, a quarter of what bfloat16 can
// tell apart there: rounded to the nearest they would never move.
TEST(OptimizerBFloat16, MeansOfRoundedStatesAreRight) {
  constexpr int64_t kN = 5000, kUpdates = 200;
  AdamStep step = kAdam;
  step.beta2 = 0.999;
  Values<float> param(kN, 0.0f), exact_param = param;
  Values<float> exact_m(kN, 1.0f), exact_v = exact_m;
  Values<BFloat16> m(kN, BFloat16(1.0f)), v = m;
  for (uint32_t t = 1; t <= kUpdates; ++t) {
    const auto grad = random_values<float>(kN, t, -1e-3, 1e-3);
    kernels::optimizer_step<float>(
        TestDevice{},
        std::vector<ParameterUpdate<float>>{{.step = step,
                                             .param = exact_param.data(),
                                             .grad = grad.data(),
                                             .state = {exact_m.data(), exact_v.data()},
                                             .n = kN}},
        {});
    kernels::optimizer_step<float>(
        TestDevice{},
        std::vector<ParameterUpdate<float>>{{.step = step,
                                             .param = param.data(),
                                             .grad = grad.data(),
                                             .state = {},
                                             .n = kN,
                                             .rounded_state = {m.data(), v.data()},
                                             .number = t}},
        {});
  }
  finish_work();
  const auto mean_of = [&](const auto& values, auto f) {
    double sum = 0;
    for (const auto x : values) sum += f(static_cast<double>(static_cast<float>(x)));
    return sum / kN;
  };
  const auto itself = [](double x) { return x; };
  const double mean = mean_of(v, itself), square = mean_of(v, [](double x) { return x * x; });
  EXPECT_NEAR(mean, std::pow(0.999, kUpdates), 1e-3);
  EXPECT_NEAR(mean, exact_v[0], 1e-3);
  // Independent draws: a walk of so many steps of a unit of 2^-8 with variance p (1 - p).
  EXPECT_NEAR(std::sqrt(square - mean * mean), 0x1p-8 * std::sqrt(kUpdates * 0.25 * 0.75), 5e-3);
  const double way = mean_of(exact_param, itself);
  EXPECT_LT(way, -1);
  EXPECT_NEAR(mean_of(param, itself), way, 2e-3);
  for (int64_t i = 0; i < kN; ++i) ASSERT_NEAR(param[i], exact_param[i], 0.05) << i;
}

// Wherever an element lies, it is rounded alike; another update rounds it otherwise.
TEST(OptimizerBFloat16, RoundingDoesNotDependOnThePlace) {
  constexpr int64_t kN = 5000, kCut = 1235;
  const auto grad = random_values<float>(kN, 1);
  const auto begin = random_values<BFloat16>(kN, 3, 0.1, 1);
  const auto updated = [&](std::vector<int64_t> cuts, uint32_t number) {
    Values<float> param(kN, 0.0f);
    Values<BFloat16> m = begin, v = begin;
    std::vector<ParameterUpdate<float>> updates;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      updates.push_back({.step = kAdam,
                         .param = param.data() + cuts[i],
                         .grad = grad.data() + cuts[i],
                         .state = {},
                         .n = cuts[i + 1] - cuts[i],
                         .rounded_state = {m.data() + cuts[i], v.data() + cuts[i]},
                         .number = number});
    }
    kernels::optimizer_step<float>(TestDevice{}, updates, {});
    finish_work();
    return std::pair(widen(m), widen(v));
  };
  const auto whole = updated({0, kN}, 1);
  EXPECT_EQ(updated({0, kCut, kN}, 1), whole);
  EXPECT_NE(updated({0, kN}, 2), whole);
}

TEST(OptimizerBFloat16, MovingAverageStaysInFloat) {
  const int64_t n = 4099;
  const auto value = random_values<BFloat16>(n, 1);
  Values<float> average = random_values<float>(n, 2);
  std::vector<double> expected;
  for (int64_t i = 0; i < n; ++i) {
    expected.push_back(0.999 * average[i] + 0.001 * static_cast<float>(value[i]));
  }
  kernels::moving_average<BFloat16>(
      TestDevice{}, 0.999, std::vector<AverageUpdate<BFloat16>>{{average.data(), value.data(), n}});
  expect_close(average, expected, 2);
}

// A step without the host: the norm of bfloat16 gradients, left on the device, clips their update.
TEST(OptimizerBFloat16, TakesTheNormFromTheDevice) {
  const int64_t n = 10000;
  const auto grad = random_values<BFloat16>(n, 1);
  double sum = 0;
  for (const BFloat16 g : grad) {
    sum += static_cast<double>(static_cast<float>(g)) * static_cast<float>(g);
  }
  const std::vector<ElementSpan<BFloat16>> gradients = {{grad.data(), 7}, {grad.data() + 7, n - 7}};
  Values<double> squared_norm(1);
  kernels::sum_squares<BFloat16>(TestDevice{}, gradients, squared_norm.data());
  EXPECT_NEAR(squared_norm[0], sum, 1e-12 * sum);

  Values<float> master(n, 0.0f);
  Values<BFloat16> param(n);
  kernels::optimizer_step<BFloat16>(
      TestDevice{},
      std::vector<ParameterUpdate<BFloat16>>{{SgdStep{.learning_rate = 1, .weight_decay = 0},
                                              param.data(),
                                              grad.data(),
                                              {},
                                              n,
                                              master.data()}},
      {.scale = 0.5, .squared_norm = squared_norm.data(), .max_norm = 3});
  double clipped = 0;
  for (const float p : master) clipped += static_cast<double>(p) * p;
  EXPECT_NEAR(std::sqrt(clipped), 3, 1e-5);
}

}  // namespace
}  // namespace tapestry
