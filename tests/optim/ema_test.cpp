#include "optim/ema.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/optim/problem.h"

namespace tapestry {
namespace {

using testing_optim::default_problem;
using testing_optim::Problem;

std::vector<double> values_of(const Var& var) { return var.value().to_vector<double>(); }

// Moves every parameter, as an optimizer would.
void move(const Problem& problem, int step) {
  for (Tensor value : {problem.w.value(), problem.b.value()}) {
    for (int64_t i = 0; i < value.numel(); ++i) value.data<double>()[i] += 0.1 * (i + 1) / step;
  }
}

TEST(Ema, FollowsTheDefinition) {
  for (const bool warmup : {false, true}) {
    const Problem problem = default_problem();
    Ema ema({.decay = 0.6, .warmup = warmup}, problem.params());
    std::vector<double> expected = values_of(problem.w);
    for (int t = 1; t <= 20; ++t) {
      move(problem, t);
      ema.update();
      const double decay = warmup ? std::min(0.6, (1.0 + t) / (10.0 + t)) : 0.6;
      const std::vector<double> now = values_of(problem.w);
      for (size_t i = 0; i < now.size(); ++i) {
        expected[i] = decay * expected[i] + (1 - decay) * now[i];
      }
    }
    const NamedTensors state = ema.state();
    ASSERT_EQ(state.size(), 3u);
    EXPECT_EQ(state[0].first, "average/w");
    EXPECT_EQ(state[2].first, "num_updates");
    const std::vector<double> actual = state[0].second.to_vector<double>();
    for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-14);
  }
}

// A step that bfloat16 rounds away still moves the average of the master.
TEST(Ema, AveragesTheMastersOfMixedPrecision) {
  const Var weight = Var::parameter(Tensor::full({3}, 1, DType::kBFloat16));
  const Tensor master = weight.value().to(DType::kFloat32);
  Ema ema({.decay = 0.5}, {{"w", weight}}, {{"w", master}});
  for (int64_t i = 0; i < 3; ++i) master.data<float>()[i] = 1.001F;
  weight.value().copy_from(master.to(DType::kBFloat16));
  ASSERT_EQ(values_of(weight)[0], 1);
  ema.update();
  EXPECT_NEAR(ema.state()[0].second.to_vector<double>()[0], 1.0005, 1e-6);
}

TEST(Ema, SwapsInAndOutWithoutATrace) {
  const Problem problem = default_problem();
  Ema ema({.decay = 0.5}, problem.params());
  move(problem, 1);
  ema.update();
  const auto trained = values_of(problem.w);
  const auto average = ema.state()[0].second.to_vector<double>();
  EXPECT_NE(trained, average);
  {
    const EmaScope averaged(ema);
    EXPECT_EQ(values_of(problem.w), average);
    EXPECT_THROW(ema.update(), Error);
    EXPECT_THROW(ema.state(), Error);
  }
  EXPECT_EQ(values_of(problem.w), trained);
  EXPECT_EQ(ema.state()[0].second.to_vector<double>(), average);
}

TEST(Ema, ContinuesBitIdenticallyFromSavedState) {
  const EmaOptions options{.decay = 0.99, .warmup = true};
  const Problem straight = default_problem(), resumed = default_problem();
  Ema first(options, straight.params()), second(options, resumed.params());
  for (int t = 1; t <= 5; ++t) {
    move(straight, t);
    move(resumed, t);
    first.update();
  }
  NamedTensors saved;
  for (const auto& [name, tensor] : first.state()) saved.emplace_back(name, tensor.clone());
  second.load_state(saved);
  for (int t = 6; t <= 10; ++t) {
    move(straight, t);
    move(resumed, t);
    first.update();
    second.update();
  }
  for (size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(first.state()[i].second.to_vector<double>(),
              second.state()[i].second.to_vector<double>());
  }
  saved.pop_back();
  EXPECT_THROW(second.load_state(saved), Error);
}

TEST(Ema, RefusesAnImpossibleDecay) {
  EXPECT_NO_THROW(Ema({.decay = 0}, default_problem().params()));
  for (const double decay : {-0.1, 1.0, 2.0}) {
    EXPECT_THROW(Ema({.decay = decay}, default_problem().params()), Error);
  }
}

}  // namespace
}  // namespace tapestry
