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
