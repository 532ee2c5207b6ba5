// 100 float64 updates against PyTorch; the fixture is made by tests/fixtures/optim_trajectories.py.
#include <gtest/gtest.h>

#include <functional>

#include "tests/optim/problem.h"
#include "tests/optim/trajectories.h"

namespace tapestry {
namespace {

using testing_optim::Problem;
using Values = std::vector<double>;

const testing_optim::Trajectories& fixture() {
  static const auto loaded = testing_optim::read_trajectories("optim_trajectories.txt");
  return loaded;
}

void expect_equal(const Var& var, const Values& expected, int step) {
  const Values actual = var.value().to_vector<double>();
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-10) << "step " << step << ", element " << i;
  }
}

struct Case {
  std::string name;
  OptimizerOptions options;
  double learning_rate;
  ClipOptions clip = {};
  std::function<std::vector<ParamGroup>(const Problem&)> groups = nullptr;
  std::function<void(int step, const Problem&)> before_step = nullptr;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class Trajectory : public testing::TestWithParam<Case> {};

TEST_P(Trajectory, EqualsPyTorch) {
  const Case& c = GetParam();
  ASSERT_TRUE(fixture().contains(c.name));
  const auto& expected = fixture().at(c.name);
  const Problem problem(expected.at(0).at("w"), expected.at(0).at("b"));
  Optimizer optimizer(c.options,
                      c.groups ? c.groups(problem) : std::vector<ParamGroup>{{problem.params()}});
  int compared = 0;
  for (int step = 1; step <= 100; ++step) {
    optimizer.zero_grad();
    problem.backward();
    if (c.before_step) c.before_step(step, problem);
    ASSERT_TRUE(optimizer.step(c.learning_rate, c.clip).finite);
    if (!expected.contains(step)) continue;
    expect_equal(problem.w, expected.at(step).at("w"), step);
    expect_equal(problem.b, expected.at(step).at("b"), step);
    ++compared;
  }
  EXPECT_EQ(compared, 10);
}

// Ours are the same but for this eps.
OptimizerOptions pytorch_defaults(OptimizerType type) {
  OptimizerOptions options = optimizer_defaults(type);
  if (type == OptimizerType::kAdagrad) options.eps = 1e-10;
  return options;
}

OptimizerOptions with_decay(OptimizerType type, double weight_decay) {
  OptimizerOptions options = pytorch_defaults(type);
  options.weight_decay = weight_decay;
  return options;
}

std::vector<Case> cases() {
  using enum OptimizerType;
  constexpr double kDecay = 0.02;
  OptimizerOptions adam = with_decay(kAdam, kDecay);
  adam.betas = {0.9, 0.98};
  adam.eps = 1e-9;
  std::vector<Case> all = {
      {"sgd", with_decay(kSgd, kDecay), 0.05},
      {"momentum", with_decay(kMomentum, kDecay), 0.02},
      {"nesterov", with_decay(kNesterov, kDecay), 0.02},
      {"adagrad", with_decay(kAdagrad, kDecay), 0.1},
      {"rmsprop", with_decay(kRmsprop, kDecay), 0.01},
      {"adadelta", with_decay(kAdadelta, kDecay), 1.0},
      {"adam", adam, 0.02},
      {"adamw", with_decay(kAdamW, kDecay), 0.02},
      {"momentum_clip_norm", with_decay(kMomentum, kDecay), 0.02, {.max_grad_norm = 0.5}},
      {"momentum_clip_value", with_decay(kMomentum, kDecay), 0.02, {.clip_value = 0.3}},
  };
  // The learning rates, too, are PyTorch's defaults.
  for (const auto& [type, learning_rate] : {std::pair{kAdagrad, 1e-2},
                                            {kRmsprop, 1e-2},
                                            {kAdadelta, 1.0},
                                            {kAdam, 1e-3},
                                            {kAdamW, 1e-3}}) {
    all.push_back(
        {std::string(name_of(type)) + "_defaults", pytorch_defaults(type), learning_rate});
  }
  all.push_back({"adamw_groups", with_decay(kAdamW, 0.1), 0.02, {}, [](const Problem& problem) {
                   auto groups = weight_decay_groups(problem.params());
                   groups[1].learning_rate_scale = 0.5;
                   return groups;
                 }});
  all.push_back({"adam_gaps", adam, 0.02, {}, nullptr, [](int step, const Problem& problem) {
                   if (step % 3 == 0) problem.b.zero_grad();
                 }});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Rules, Trajectory, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tapestry
