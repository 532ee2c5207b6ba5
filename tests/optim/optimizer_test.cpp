#include "optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/philox.h"
#include "core/cpu/parallel.h"
#include "tests/optim/problem.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing_optim::default_problem;
using testing_optim::Problem;
using testing_optim::set_gradient;
using enum OptimizerType;

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Var scalar(double value) { return Var::parameter(Tensor::from<double>({value}, {1})); }

// Two updates of p = 2 with gradients 3 and -1, lr 0.1, weight decay 0.5; the expected values spell
// out each rule in plain double arithmetic.
double after_two_updates(OptimizerType type) {
  OptimizerOptions options = optimizer_defaults(type);
  options.weight_decay = 0.5;
  const Var p = scalar(2);
  Optimizer optimizer(options, {{"p", p}});
  for (const double gradient : {3.0, -1.0}) {
    set_gradient(p, std::vector<double>{gradient});
    optimizer.step(0.1);
  }
  return p.value().item();
}

TEST(UpdateRule, Sgd) {
  const double p1 = 2 - 0.1 * (3 + 0.5 * 2);
  EXPECT_DOUBLE_EQ(after_two_updates(kSgd), p1 - 0.1 * (-1 + 0.5 * p1));
}

TEST(UpdateRule, Momentum) {
  const double v1 = 4, p1 = 2 - 0.1 * v1;
  const double v2 = 0.9 * v1 + (-1 + 0.5 * p1);
  EXPECT_DOUBLE_EQ(after_two_updates(kMomentum), p1 - 0.1 * v2);
}

TEST(UpdateRule, Nesterov) {
  const double v1 = 4, p1 = 2 - 0.1 * (4 + 0.9 * v1);
  const double g2 = -1 + 0.5 * p1, v2 = 0.9 * v1 + g2;
  EXPECT_DOUBLE_EQ(after_two_updates(kNesterov), p1 - 0.1 * (g2 + 0.9 * v2));
}

TEST(UpdateRule, Adagrad) {
  const double s1 = 16, p1 = 2 - 0.1 * 4 / (4 + 1e-8);
  const double g2 = -1 + 0.5 * p1;
  EXPECT_DOUBLE_EQ(after_two_updates(kAdagrad), p1 - 0.1 * g2 / (std::sqrt(s1 + g2 * g2) + 1e-8));
}

TEST(UpdateRule, Rmsprop) {
  const double s1 = 0.01 * 16, p1 = 2 - 0.1 * 4 / (std::sqrt(s1) + 1e-8);
  const double g2 = -1 + 0.5 * p1, s2 = 0.99 * s1 + 0.01 * g2 * g2;
  EXPECT_DOUBLE_EQ(after_two_updates(kRmsprop), p1 - 0.1 * g2 / (std::sqrt(s2) + 1e-8));
}

TEST(UpdateRule, Adadelta) {
  const double s1 = 0.1 * 16, u1 = std::sqrt(1e-6) / std::sqrt(s1 + 1e-6) * 4;
  const double a1 = 0.1 * u1 * u1, p1 = 2 - 0.1 * u1;
  const double g2 = -1 + 0.5 * p1, s2 = 0.9 * s1 + 0.1 * g2 * g2;
  EXPECT_DOUBLE_EQ(after_two_updates(kAdadelta),
                   p1 - 0.1 * std::sqrt(a1 + 1e-6) / std::sqrt(s2 + 1e-6) * g2);
}

TEST(UpdateRule, Adam) {
  const double m1 = 0.1 * 4, v1 = 0.001 * 16;
  const double p1 = 2 - 0.1 * (m1 / 0.1) / (std::sqrt(v1 / 0.001) + 1e-8);
  const double g2 = -1 + 0.5 * p1;
  const double m2 = 0.9 * m1 + 0.1 * g2, v2 = 0.999 * v1 + 0.001 * g2 * g2;
  const double expected =
      p1 - 0.1 * (m2 / (1 - 0.81)) / (std::sqrt(v2 / (1 - 0.999 * 0.999)) + 1e-8);
  EXPECT_NEAR(after_two_updates(kAdam), expected, 1e-14);
}

TEST(UpdateRule, AdamW) {
  const double m1 = 0.1 * 3, v1 = 0.001 * 9;
  const double p1 = 2 * (1 - 0.1 * 0.5) - 0.1 * (m1 / 0.1) / (std::sqrt(v1 / 0.001) + 1e-8);
  const double m2 = 0.9 * m1 - 0.1, v2 = 0.999 * v1 + 0.001;
  const double expected =
      p1 * (1 - 0.1 * 0.5) - 0.1 * (m2 / (1 - 0.81)) / (std::sqrt(v2 / (1 - 0.999 * 0.999)) + 1e-8);
  EXPECT_NEAR(after_two_updates(kAdamW), expected, 1e-14);
}

TEST(OptimizerDefaults, EachRuleHasARateAnEpsAndStatesOfItsOwn) {
  struct Row {
    OptimizerType type;
    double learning_rate, eps;
    int64_t states;
  };
  const Row rows[] = {
      {kSgd, 1e-3, 1e-8, 0},     {kMomentum, 1e-3, 1e-8, 1}, {kNesterov, 1e-3, 1e-8, 1},
      {kAdagrad, 1e-2, 1e-8, 1}, {kRmsprop, 1e-3, 1e-8, 1},  {kAdadelta, 1, 1e-6, 2},
      {kAdam, 1e-3, 1e-8, 2},    {kAdamW, 1e-3, 1e-8, 2},    {kMuon, 0.02, 1e-8, 1}};
  ASSERT_EQ(std::size(rows), kOptimizerTypes.size());
  for (const Row& row : rows) {
    EXPECT_EQ(default_learning_rate(row.type), row.learning_rate) << name_of(row.type);
    EXPECT_EQ(optimizer_defaults(row.type).eps, row.eps) << name_of(row.type);
    EXPECT_EQ(states_of(row.type), row.states) << name_of(row.type);
    const Problem problem = default_problem();
    const Optimizer optimizer(optimizer_defaults(row.type), problem.params());
    int64_t elements = 0;
    for (const auto& [name, tensor] : optimizer.state()) {
      if (!name.starts_with("step/")) elements += tensor.numel();
    }
    const int64_t of_vectors = states_of(elementwise_type(row.type));
    EXPECT_EQ(elements,
              row.states * problem.w.value().numel() + of_vectors * problem.b.value().numel())
        << name_of(row.type);
  }
}

TEST(Optimizer, ReportsTheNormBeforeClipping) {
  const Var a = scalar(1), b = scalar(1), c = scalar(1);
  Optimizer optimizer(optimizer_defaults(kSgd), {{"a", a}, {"b", b}, {"c", c}});
  set_gradient(a, std::vector<double>{3});
  set_gradient(b, std::vector<double>{-4});
  const StepResult result = optimizer.step(1.0, {.max_grad_norm = 2.5});
  EXPECT_DOUBLE_EQ(result.grad_norm, 5);
  EXPECT_TRUE(result.finite);
  EXPECT_DOUBLE_EQ(a.value().item(), 1 - 3 * 2.5 / (5 + 1e-6));
  EXPECT_DOUBLE_EQ(b.value().item(), 1 + 4 * 2.5 / (5 + 1e-6));
  EXPECT_EQ(c.value().item(), 1) << "no gradient reached it";
  EXPECT_DOUBLE_EQ(a.grad().item(), 3) << "clipping leaves the gradients alone";
}

TEST(Optimizer, DoesNotScaleASmallGradientUp) {
  const Var a = scalar(1);
  Optimizer optimizer(optimizer_defaults(kSgd), {{"a", a}});
  set_gradient(a, std::vector<double>{0.25});
  optimizer.step(1.0, {.max_grad_norm = 100});
  EXPECT_EQ(a.value().item(), 0.75);
}

TEST(Optimizer, ClipsTheNormBeforeTheValue) {
  const Var a = scalar(0), b = scalar(0);
  Optimizer optimizer(optimizer_defaults(kSgd), {{"a", a}, {"b", b}});
  set_gradient(a, std::vector<double>{30});
  set_gradient(b, std::vector<double>{40});
  optimizer.step(1.0, {.max_grad_norm = 5, .clip_value = 3.5});
  EXPECT_NEAR(a.value().item(), -3, 1e-6);
  EXPECT_EQ(b.value().item(), -3.5);
}

TEST(Optimizer, GradientScaleEqualsScaledGradients) {
  for (const OptimizerType type : kOptimizerTypes) {
    const Problem a = default_problem(), b = default_problem();
    Optimizer one(optimizer_defaults(type), a.params());
    Optimizer two(optimizer_defaults(type), b.params());
    const ClipOptions clip{.max_grad_norm = 0.7};
    for (int step = 0; step < 5; ++step) {
      a.backward();
      b.backward();
      for (const Var& var : {b.w, b.b}) {
        std::vector<double> values = var.grad().to_vector<double>();
        for (double& x : values) x *= 64;
        set_gradient(var, values);
      }
      const StepResult plain = one.step(0.01, clip), scaled = two.step(0.01, clip, 1.0 / 64);
      EXPECT_EQ(plain.grad_norm, scaled.grad_norm);
    }
    EXPECT_EQ(a.w.value().to_vector<double>(), b.w.value().to_vector<double>()) << name_of(type);
  }
}

std::vector<double> everything(const Problem& problem, const Optimizer& optimizer) {
  std::vector<double> values = problem.w.value().to_vector<double>();
  const auto append = [&](const Tensor& tensor) {
    const auto more = tensor.to_vector<double>();
    values.insert(values.end(), more.begin(), more.end());
  };
  append(problem.b.value());
  for (const auto& [name, tensor] : optimizer.state()) append(tensor);
  return values;
}

TEST(Optimizer, SkipsTheWholeUpdateWhenAGradientIsNotFinite) {
  for (const OptimizerType type : kOptimizerTypes) {
    for (const double bad :
         {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      const Problem problem = default_problem();
      Optimizer optimizer(optimizer_defaults(type), problem.params());
      problem.backward();
      optimizer.step(0.01);
      const std::vector<double> before = everything(problem, optimizer);
      problem.backward();
      problem.b.grad().data<double>()[2] = bad;
      const StepResult result = optimizer.step(0.01, {.max_grad_norm = 1, .clip_value = 1});
      EXPECT_FALSE(result.finite) << name_of(type);
      EXPECT_FALSE(std::isfinite(result.grad_norm));
      EXPECT_EQ(everything(problem, optimizer), before) << name_of(type);
      problem.backward();
      EXPECT_TRUE(optimizer.step(0.01).finite);
      EXPECT_NE(everything(problem, optimizer), before);
    }
  }
}

TEST(Optimizer, SkipsTheWholeUpdateWhenALossIsNotFinite) {
  for (const OptimizerType type : kOptimizerTypes) {
    const Problem problem = default_problem();
    Optimizer optimizer(optimizer_defaults(type), problem.params());
    const std::vector<double> before = everything(problem, optimizer);
    std::vector<Tensor> losses = {
        Tensor::from<double>({1, 2, 3}, {3}),
        Tensor::from<double>({4, std::numeric_limits<double>::infinity(), 6}, {3})};
    problem.backward();
    optimizer.launch(0.01, {}, 1, losses);
    EXPECT_FALSE(optimizer.outcome().finite) << name_of(type);
    EXPECT_EQ(everything(problem, optimizer), before) << name_of(type);
    losses[1].fill(1e30);
    optimizer.launch(0.01, {}, 1, losses);
    const StepResult result = optimizer.outcome();
    EXPECT_TRUE(result.finite);
    EXPECT_NE(everything(problem, optimizer), before);
    EXPECT_LT(result.grad_norm, 1e6) << "a loss is no part of the norm";
  }
}

TEST(Optimizer, LaunchesAndOutcomesTakeTurns) {
  const Var a = scalar(1);
  Optimizer optimizer(optimizer_defaults(OptimizerType::kAdam), {{"a", a}});
  EXPECT_THROW(optimizer.outcome(), Error);
  set_gradient(a, std::vector<double>{1});
  optimizer.launch(0.1);
  EXPECT_THROW(optimizer.launch(0.1), Error);
  EXPECT_TRUE(optimizer.outcome().finite);
}

TEST(Optimizer, LeavesFrozenParametersAndTheirStateAlone) {
  for (const OptimizerType type : kOptimizerTypes) {
    const Problem problem = default_problem();
    Optimizer optimizer(optimizer_defaults(type), problem.params());
    problem.backward();
    problem.b.set_requires_grad(false);
    const auto w = problem.w.value().to_vector<double>(), b = problem.b.value().to_vector<double>();
    optimizer.step(0.01);
    EXPECT_NE(problem.w.value().to_vector<double>(), w);
    EXPECT_EQ(problem.b.value().to_vector<double>(), b);
    for (const auto& [name, tensor] : optimizer.state()) {
      if (!name.ends_with("/b")) continue;
      for (const double x : tensor.to_vector<double>()) EXPECT_EQ(x, 0) << name;
    }
  }
}

TEST(Optimizer, ContinuesBitIdenticallyFromSavedState) {
  for (const OptimizerType type : kOptimizerTypes) {
    const Problem straight = default_problem(), resumed = default_problem();
    Optimizer first(optimizer_defaults(type), straight.params());
    const auto run = [](const Problem& problem, Optimizer& optimizer) {
      for (int step = 0; step < 7; ++step) {
        problem.backward();
        optimizer.step(0.01, {.max_grad_norm = 1});
      }
    };
    run(straight, first);
    NamedTensors saved;
    for (const auto& [name, tensor] : first.state()) saved.emplace_back(name, tensor.clone());
    std::reverse(saved.begin(), saved.end());  // order does not matter
    Tensor w = resumed.w.value(), b = resumed.b.value();
    w.copy_from(straight.w.value());
    b.copy_from(straight.b.value());
    run(straight, first);
    Optimizer second(optimizer_defaults(type), resumed.params());
    second.load_state(saved);
    run(resumed, second);
    EXPECT_EQ(everything(resumed, second), everything(straight, first)) << name_of(type);
  }
}

TEST(Optimizer, RoundedStatesHaveACountAndContinueBitIdentically) {
  using Choice = std::pair<OptimizerType, StateType>;
  for (const auto& [type, state_type] :
       {Choice{kMomentum, StateType::kBFloat16}, Choice{kAdam, StateType::kBFloat16},
        Choice{kMomentum, StateType::kFloat8}, Choice{kAdam, StateType::kFloat8}}) {
    OptimizerOptions options = optimizer_defaults(type);
    options.state_dtype = state_type;
    const auto run = [&](const std::vector<int>& lengths) {
      const Var x = Var::parameter(Tensor::full({1000}, 1, DType::kFloat32));
      NamedTensors saved;
      int step = 0;
      for (const int length : lengths) {
        Optimizer optimizer(options, {{"x", x}});
        if (step > 0) optimizer.load_state(saved);
        for (const int end = step + length; step < end; ++step) {
          std::vector<float> gradient;
          for (const float value : x.value().to_vector<float>()) {
            gradient.push_back(std::sin(37.0F * static_cast<float>(gradient.size())) +
                               0.1F * value);
          }
          set_gradient(x, gradient);
          optimizer.step(0.01);
        }
        saved.clear();
        for (const auto& [name, tensor] : optimizer.state()) {
          const bool words = name == "step/x" || (options.state_dtype == StateType::kFloat8 &&
                                                  !name.ends_with("_scale/x"));
          const DType others =
              options.state_dtype == StateType::kFloat8 ? DType::kFloat32 : DType::kBFloat16;
          EXPECT_EQ(tensor.dtype(), words ? DType::kInt32 : others) << name;
          saved.emplace_back(name, tensor.clone());
        }
        EXPECT_EQ(saved.back().first, "step/x");
        EXPECT_EQ(saved.back().second.item(), step);
      }
      return x.value().to_vector<float>();
    };
    EXPECT_EQ(run({3, 4}), run({7})) << name_of(type);
  }
}

TEST(Optimizer, RefusesRoundedStatesWhereThereAreNone) {
  for (const StateType rounded : {StateType::kBFloat16, StateType::kFloat8}) {
    OptimizerOptions options = optimizer_defaults(kMuon);
    options.state_dtype = rounded;
    EXPECT_THAT(message_of([&] { validate(options); }), HasSubstr("must be float32 with muon"));
    options.type = kAdam;
    EXPECT_THAT(message_of([&] {
                  Optimizer(options, {{"x", scalar(1)}});
                }),
                HasSubstr("state_dtype must be float32 beside float64 parameters"));
  }
}

// Whole blocks of bytes, four in an int32, each with its scales.
TEST(Optimizer, NamesStatesOfBlocks) {
  OptimizerOptions options = optimizer_defaults(kAdam);
  options.state_dtype = StateType::kFloat8;
  const Optimizer optimizer(options,
                            {{"x", Var::parameter(Tensor::zeros({3, 100}, DType::kFloat32))}});
  std::vector<std::string> names;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : optimizer.state()) {
    names.push_back(concat(name, ' ', tensor.shape()));
    bytes += tensor.bytes();
  }
  EXPECT_THAT(names,
              testing::ElementsAre("exp_avg/x (2, 64)", "exp_avg_scale/x (2)",
                                   "exp_avg_sq/x (2, 64)", "exp_avg_sq_scale/x (2)", "step/x ()"));
  EXPECT_EQ(bytes, 2 * (512 + 8) + 4);
}

TEST(Optimizer, NamesItsStateAsPyTorchDoes) {
  const auto names = [](OptimizerType type) {
    std::vector<std::string> result;
    Optimizer optimizer(optimizer_defaults(type), {{"x.weight", scalar(1)}});
    for (const auto& [name, tensor] : optimizer.state()) result.push_back(name);
    return result;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(kSgd), Names{});
  EXPECT_EQ(names(kNesterov), Names{"momentum_buffer/x.weight"});
  EXPECT_EQ(names(kAdagrad), Names{"sum/x.weight"});
  EXPECT_EQ(names(kRmsprop), Names{"square_avg/x.weight"});
  EXPECT_EQ(names(kAdadelta), (Names{"square_avg/x.weight", "acc_delta/x.weight"}));
  EXPECT_EQ(names(kAdam), (Names{"exp_avg/x.weight", "exp_avg_sq/x.weight", "step/x.weight"}));
  EXPECT_EQ(names(kMuon), names(kAdamW)) << "a vector";
}

TEST(Optimizer, LoadStateNamesWhatDoesNotFitAndChangesNothing) {
  const Problem problem = default_problem();
  Optimizer optimizer(optimizer_defaults(kAdam), problem.params());
  problem.backward();
  optimizer.step(0.01);
  const auto before = everything(problem, optimizer);
  const auto load_with = [&](auto&& change) {
    NamedTensors state;
    for (const auto& [name, tensor] : optimizer.state()) {
      state.emplace_back(name, Tensor::zeros(tensor.shape(), tensor.dtype()));
    }
    change(state);
    return message_of([&] { optimizer.load_state(state); });
  };
  EXPECT_EQ(load_with([](NamedTensors& s) { s[3].second = Tensor::zeros({5}, DType::kFloat64); }),
            "[optimizer] exp_avg/b is (5) in the file, the model needs (4).");
  EXPECT_EQ(load_with([](NamedTensors& s) {
              s[1].second = Tensor::zeros({3, 4});
            }),
            "[optimizer] exp_avg_sq/w is float32 in the file, the model needs float64.");
  EXPECT_EQ(load_with([](NamedTensors& s) { s.pop_back(); }),
            "[optimizer] step/b is needed, the file does not hold it.");
  EXPECT_EQ(load_with([](NamedTensors& s) { s.emplace_back("sum/w", Tensor::zeros({1})); }),
            "[optimizer] sum/w is in the file, but nothing here needs it.");
  EXPECT_EQ(load_with([](NamedTensors& s) { s.push_back(s[0]); }),
            "[optimizer] exp_avg/w is in the file twice.");
  EXPECT_EQ(everything(problem, optimizer), before);
}

TEST(Optimizer, SameBitsForAnyNumberOfThreads) {
  const auto run = [](OptimizerType type, int threads) {
    set_num_threads(threads);
    std::vector<float> values;
    NamedVars params;
    for (const int64_t n : {50000, 3, 70001}) {
      Tensor value = Tensor::empty({n}), gradient = Tensor::empty({n});
      for (int64_t i = 0; i < n; ++i) {
        value.data<float>()[i] = static_cast<float>(philox_normal({1, 0, 0}, i));
        gradient.data<float>()[i] = static_cast<float>(philox_normal({1, 1, 0}, i));
      }
      params.emplace_back(std::to_string(n), Var::parameter(value));
      set_gradient(params.back().second, gradient);
    }
    Optimizer optimizer(optimizer_defaults(type), params);
    for (int step = 0; step < 3; ++step) optimizer.step(0.01, {.max_grad_norm = 1});
    for (const auto& [name, var] : params) {
      const auto more = var.value().to_vector<float>();
      values.insert(values.end(), more.begin(), more.end());
    }
    set_num_threads(0);
    return values;
  };
  for (const OptimizerType type : kOptimizerTypes)
    EXPECT_EQ(run(type, 1), run(type, 2)) << name_of(type);
}

TEST(Optimizer, RefusesImpossibleOptionsAndParameters) {
  const Var a = scalar(1);
  const auto error_with = [&](auto&& change) {
    OptimizerOptions options = optimizer_defaults(kAdam);
    change(options);
    return message_of([&] { Optimizer(options, {{"a", a}}); });
  };
  EXPECT_EQ(error_with([](OptimizerOptions& o) {
              o.betas = {0.9, 1.0};
            }),
            "[optimizer] betas must be in [0, 1), got 1.");
  EXPECT_EQ(error_with([](OptimizerOptions& o) { o.weight_decay = -1; }),
            "[optimizer] weight_decay must be 0 or more, got -1.");
  EXPECT_EQ(error_with([](OptimizerOptions& o) { o.eps = NAN; }),
            "[optimizer] eps must be 0 or more, got nan.");
  const OptimizerOptions sgd = optimizer_defaults(kSgd);
  EXPECT_EQ(message_of([&] {
              Optimizer(sgd, {{"a", a}, {"tied", a}});
            }),
            "[optimizer] parameters 'a' and 'tied' are the same tensor; list it once.");
  EXPECT_EQ(message_of([&] {
              Optimizer(sgd, {{"a", a}, {"a", scalar(2)}});
            }),
            "[optimizer] parameter 'a' is listed twice.");
  const Var ids = Var::parameter(Tensor::zeros({2}, DType::kInt32));
  EXPECT_EQ(message_of([&] {
              Optimizer(sgd, {{"ids", ids}});
            }),
            "[optimizer] expected floating parameters, 'ids' is int32.");
  const Var narrow = Var::parameter(Tensor::zeros({2}));
  EXPECT_THAT(message_of([&] {
                Optimizer(sgd, {{"a", a}, {"narrow", narrow}});
              }),
              HasSubstr("'narrow' is float32 on cpu, 'a' float64 on cpu."));
  Optimizer fine(sgd, {{"a", a}});
  EXPECT_THAT(message_of([&] { fine.step(NAN); }),
              HasSubstr("learning rate of 0 or more, got nan"));
}

TEST(Optimizer, EveryRuleHasItsName) {
  std::string names;
  for (const OptimizerType type : kOptimizerTypes) names += concat(name_of(type), ' ');
  EXPECT_EQ(names, "sgd momentum nesterov adagrad rmsprop adadelta adam adamw muon ");
  EXPECT_STREQ(name_of(OptimizerType::kAdamW), "adamw");
}

TEST(WeightDecayGroups, MatricesDecayUnlessAPredicateSaysOtherwise) {
  const Problem problem = default_problem();
  const auto by_rank = weight_decay_groups(problem.params());
  ASSERT_EQ(by_rank.size(), 2u);
  EXPECT_EQ(by_rank[0].params.at(0).first, "w");
  EXPECT_EQ(by_rank[0].weight_decay, std::nullopt);
  EXPECT_EQ(by_rank[1].params.at(0).first, "b");
  EXPECT_EQ(by_rank[1].weight_decay, 0.0);
  const auto by_name = weight_decay_groups(
      problem.params(), [](const std::string& name, const Var&) { return name == "b"; });
  EXPECT_EQ(by_name[0].params.at(0).first, "b");

  // A gradient of zero: only decay moves a parameter.
  OptimizerOptions options = optimizer_defaults(kSgd);
  options.weight_decay = 0.5;
  Optimizer optimizer(options, by_rank);
  set_gradient(problem.w, std::vector<double>(12, 0.0));
  set_gradient(problem.b, std::vector<double>(4, 0.0));
  const double w = problem.w.value().data<double>()[0], b = problem.b.value().data<double>()[0];
  optimizer.step(0.1);
  EXPECT_DOUBLE_EQ(problem.w.value().data<double>()[0], w * (1 - 0.05));
  EXPECT_EQ(problem.b.value().data<double>()[0], b);
}

}  // namespace
}  // namespace tapestry
