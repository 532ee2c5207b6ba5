// Muon against PyTorch (tests/fixtures/muon_trajectories.py), and what it makes of a matrix.
#include "optim/muon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/base/philox.h"
#include "core/cpu/parallel.h"
#include "tests/optim/problem.h"
#include "tests/optim/trajectories.h"

namespace tapestry {
namespace {

using testing_optim::set_gradient;
using Numbers = std::vector<double>;
using Snapshot = std::map<std::string, Numbers>;

const testing_optim::Trajectories& muon_fixture() {
  static const auto loaded = testing_optim::read_trajectories("muon_trajectories.txt");
  return loaded;
}

// f of the script.
struct MuonProblem {
  explicit MuonProblem(const Snapshot& values, DType dtype = DType::kFloat64)
      : a(parameter(values.at("a"), {3, 4}, dtype)),
        b(parameter(values.at("b"), {6, 3}, dtype)),
        p(parameter(values.at("p"), {6, 4}, dtype)),
        u(parameter(values.at("u"), {4}, dtype)),
        v(parameter(values.at("v"), {3}, dtype)) {}

  static Var parameter(const Numbers& values, const Shape& shape, DType dtype) {
    return Var::parameter(Tensor::from(values, shape).to(dtype));
  }

  NamedVars params() const { return {{"a", a}, {"b", b}, {"p", p}, {"u", u}, {"v", v}}; }

  // Matrices decay; vectors have their own rate and decay.
  std::vector<ParamGroup> groups(double scale = 1, double vectors_decay = 0) const {
    std::vector<ParamGroup> groups(2);
    groups[0] = {.params = {{"a", a}, {"b", b}, {"p", p}}, .orthogonalize = true};
    groups[0].packed_rows["p"] = {2, 4};
    groups[1] = {.params = {{"u", u}, {"v", v}},
                 .learning_rate_scale = scale,
                 .weight_decay = vectors_decay};
    return groups;
  }

  void backward() const {
    const auto values = [](const Var& var) { return var.value().to_vector<double>(); };
    const Numbers x = values(a), y = values(b), z = values(p), s = values(u), t = values(v);
    Numbers da(12), db(18), dp(24), du(4), dv(3);
    for (size_t i = 0; i < 12; ++i) {
      da[i] = std::cos(x[i]) * s[i % 4] + 0.1 * x[i];
      du[i % 4] += std::sin(x[i]);
    }
    for (size_t i = 0; i < 18; ++i) {
      db[i] = std::cos(y[i]) * t[i % 3] + 0.1 * y[i];
      dv[i % 3] += std::sin(y[i]);
    }
    for (size_t i = 0; i < 24; ++i) {
      dp[i] = -0.5 * std::sin(z[i]) * s[i % 4] + 0.1 * z[i];
      du[i % 4] += 0.5 * std::cos(z[i]);
    }
    for (size_t j = 0; j < 4; ++j) du[j] += 0.4 * s[j] * s[j] * s[j];
    for (size_t j = 0; j < 3; ++j) dv[j] += 0.4 * t[j] * t[j] * t[j];
    const auto give = [](const Var& var, const Numbers& gradient) {
      set_gradient(var, Tensor::from(gradient, var.shape()).to(var.dtype()));
    };
    give(a, da), give(b, db), give(p, dp), give(u, du), give(v, dv);
  }

  Var a, b, p, u, v;
};

MuonProblem start_of_muon(DType dtype = DType::kFloat64) {
  return MuonProblem(muon_fixture().at("defaults").at(0), dtype);
}

OptimizerOptions muon_options() { return optimizer_defaults(OptimizerType::kMuon); }

struct MuonCase {
  std::string name;
  OptimizerOptions options = muon_options();
  double learning_rate = 0.02;
  double vectors_rate = 0.01;
  double vectors_decay = 0.1;
  ClipOptions clip = {};
};

void PrintTo(const MuonCase& value, std::ostream* out) { *out << value.name; }

std::vector<MuonCase> muon_cases() {
  OptimizerOptions fast = muon_options();
  fast.betas = {0.9, 0.95};
  fast.eps = 1e-9;
  const auto with = [&](auto&& change) {
    OptimizerOptions options = fast;
    change(options);
    return options;
  };
  return {
      {"defaults", muon_options(), 0.02, 1e-3, 0},
      {"original", with([](OptimizerOptions& o) {
         o.weight_decay = 0.2;
         o.momentum = 0.9;
         o.muon.ns_steps = 3;
       }),
       0.05},
      {"average_only", with([](OptimizerOptions& o) { o.muon.nesterov = false; }), 0.05},
      {"match_rms_adamw",
       with([](OptimizerOptions& o) { o.muon.adjust_lr_fn = RateByShape::kMatchRmsAdamW; })},
      {"spectral_unclamped",
       with([](OptimizerOptions& o) { o.muon.adjust_lr_fn = RateByShape::kSpectralUnclamped; })},
      {"clip_norm", fast, 0.02, 0.01, 0.1, {.max_grad_norm = 0.5}},
      {"restated", fast},
      {"polar_express",
       with([](OptimizerOptions& o) { o.muon.ns_coefficients = NewtonSchulz::kPolarExpress; })},
      {"cautious", with([](OptimizerOptions& o) {
         o.weight_decay = 0.5;
         o.muon.cautious_weight_decay = true;
       })},
      {"normuon", with([](OptimizerOptions& o) { o.muon.normuon_beta2 = 0.9; })},
  };
}

class MuonTrajectory : public testing::TestWithParam<MuonCase> {};

TEST_P(MuonTrajectory, EqualsPyTorch) {
  const MuonCase& c = GetParam();
  ASSERT_TRUE(muon_fixture().contains(c.name));
  const auto& expected = muon_fixture().at(c.name);
  const MuonProblem problem(expected.at(0));
  Optimizer optimizer(c.options, problem.groups(c.vectors_rate / c.learning_rate, c.vectors_decay));
  int compared = 0;
  for (int step = 1; step <= 20; ++step) {
    problem.backward();
    ASSERT_TRUE(optimizer.step(c.learning_rate, c.clip).finite);
    if (!expected.contains(step)) continue;
    for (const auto& [name, var] : problem.params()) {
      const Numbers actual = var.value().to_vector<double>();
      const Numbers& values = expected.at(step).at(name);
      ASSERT_EQ(actual.size(), values.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_NEAR(actual[i], values[i], 1e-10) << name << ", step " << step << ", element " << i;
      }
    }
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

INSTANTIATE_TEST_SUITE_P(Rules, MuonTrajectory, testing::ValuesIn(muon_cases()),
                         [](const auto& info) { return info.param.name; });

// What the orthogonal matrix of a random one has on the diagonal of its smaller product with
// itself, and beside it.
Tensor normal_matrix(int64_t rows, int64_t cols, DType dtype, uint32_t stream = 0) {
  const Tensor matrix = Tensor::empty({rows, cols}, DType::kFloat64);
  for (int64_t i = 0; i < matrix.numel(); ++i) {
    matrix.data<double>()[i] = philox_normal({3, 0, stream}, static_cast<uint64_t>(i));
  }
  return matrix.to(dtype);
}

Numbers gram_by_loops(const Tensor& matrix) {
  const int64_t rows = matrix.shape()[0], cols = matrix.shape()[1], n = std::min(rows, cols);
  const Numbers x = matrix.to_vector<double>();
  Numbers gram;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < std::max(rows, cols); ++k) {
        const auto at = [&](int64_t r) {
          return x[static_cast<size_t>(rows <= cols ? r * cols + k : k * cols + r)];
        };
        sum += at(i) * at(j);
      }
      gram.push_back(sum);
    }
  }
  return gram;
}

// Five steps bring singular values from 0.003 on between 0.68 and 1.21 (quintic), or 0.85 and 1.15:
// a matrix of whatever type and shape is near an orthogonal one afterwards. One is larger than a
// thread takes alone.
TEST(Orthogonalized, IsNearlyOrthogonal) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {7, 20}, {20, 7}, {64, 200}, {300, 400}}) {
      for (const NewtonSchulz polynomials : kNewtonSchulz) {
        SCOPED_TRACE(concat(rows, " x ", cols, ' ', name_of(dtype), ' ', name_of(polynomials)));
        const Tensor result =
            orthogonalized(normal_matrix(rows, cols, dtype), {.ns_coefficients = polynomials});
        EXPECT_EQ(result.dtype(), wider(dtype));
        const Numbers gram = gram_by_loops(result);
        const auto n = static_cast<size_t>(std::min(rows, cols));
        const bool polar = polynomials == NewtonSchulz::kPolarExpress;
        const double near = polar ? 0.35 : 0.6;
        for (size_t i = 0; i < n; ++i) {
          for (size_t j = 0; j < n; ++j) {
            ASSERT_NEAR(gram[i * n + j], i == j ? 1 : 0, near) << i << ", " << j;
          }
        }
      }
    }
  }
}

// Behind the fifth come steps whose fixed point is 1.
TEST(Orthogonalized, MorePolarExpressComesNearer) {
  const Tensor result =
      orthogonalized(normal_matrix(7, 20, DType::kFloat64),
                     {.ns_steps = 9, .ns_coefficients = NewtonSchulz::kPolarExpress});
  const Numbers gram = gram_by_loops(result);
  for (size_t i = 0; i < 49; ++i) EXPECT_NEAR(gram[i], i % 8 == 0 ? 1 : 0, 1e-12) << i;
}

TEST(Orthogonalized, ZerosStayZeros) {
  const Tensor result = orthogonalized(Tensor::zeros({4, 3}), {});
  for (const float x : result.to_vector<float>()) EXPECT_EQ(x, 0);
}

// Its length does not matter.
TEST(Orthogonalized, OnlyTheDirectionCounts) {
  const Tensor matrix = normal_matrix(5, 9, DType::kFloat64);
  const Tensor small = matrix.clone();
  for (int64_t i = 0; i < small.numel(); ++i) small.data<double>()[i] *= 1.0 / 1024;
  EXPECT_EQ(orthogonalized(matrix, {}).to_vector<double>(),
            orthogonalized(small, {}).to_vector<double>());
}

TEST(RateFactor, FollowsTheShape) {
  using enum RateByShape;
  EXPECT_DOUBLE_EQ(rate_factor(kOriginal, 16, 4), 2);
  EXPECT_DOUBLE_EQ(rate_factor(kOriginal, 4, 16), 1);
  EXPECT_DOUBLE_EQ(rate_factor(kMatchRmsAdamW, 16, 4), 0.8);
  EXPECT_DOUBLE_EQ(rate_factor(kMatchRmsAdamW, 4, 16), 0.8);
  EXPECT_DOUBLE_EQ(rate_factor(kSpectralUnclamped, 4, 16), 0.5);
}

// Everything that an optimizer has and moved.
Numbers all_of(const MuonProblem& problem, const Optimizer& optimizer) {
  Numbers all;
  const auto append = [&](const Tensor& tensor) {
    const Numbers more = tensor.to_vector<double>();
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const auto& [name, var] : problem.params()) append(var.value());
  for (const auto& [name, tensor] : optimizer.state()) append(tensor);
  for (const auto& [name, tensor] : optimizer.masters()) append(tensor);
  return all;
}

std::vector<OptimizerOptions> muon_variants() {
  OptimizerOptions rows = muon_options();
  rows.muon.normuon_beta2 = 0.95;
  rows.muon.ns_coefficients = NewtonSchulz::kPolarExpress;
  rows.muon.cautious_weight_decay = true;
  return {muon_options(), rows};
}

TEST(Muon, KeepsOneNumberOfAnElementAndNamesIt) {
  std::vector<std::string> names;
  const MuonProblem problem = start_of_muon();
  const Optimizer optimizer(muon_variants()[1], problem.groups());
  for (const auto& [name, tensor] : optimizer.state()) {
    names.push_back(concat(name, ' ', tensor.shape()));
  }
  EXPECT_THAT(names, testing::ElementsAre("momentum_buffer/a (3, 4)", "row_square_avg/a (3)",
                                          "momentum_buffer/b (6, 3)", "row_square_avg/b (6)",
                                          "momentum_buffer/p (6, 4)", "row_square_avg/p (6)",
                                          "exp_avg/u (4)", "exp_avg_sq/u (4)", "step/u ()",
                                          "exp_avg/v (3)", "exp_avg_sq/v (3)", "step/v ()"));
}

TEST(Muon, GoesOnBitForBitFromItsState) {
  for (const OptimizerOptions& options : muon_variants()) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
      const MuonProblem straight = start_of_muon(dtype), resumed = start_of_muon(dtype);
      const auto run = [](const MuonProblem& problem, Optimizer& optimizer) {
        for (int step = 0; step < 5; ++step) {
          problem.backward();
          ASSERT_TRUE(optimizer.step(0.02, {.max_grad_norm = 1}).finite);
        }
      };
      const auto copy = [](const NamedTensors& tensors) {
        NamedTensors copies;
        for (const auto& [name, tensor] : tensors) copies.emplace_back(name, tensor.clone());
        return copies;
      };
      Optimizer first(options, straight.groups());
      run(straight, first);
      const NamedTensors saved = copy(first.state()), masters = copy(first.masters());
      for (size_t i = 0; i < 5; ++i) {
        resumed.params()[i].second.value().copy_from(straight.params()[i].second.value());
      }
      run(straight, first);
      Optimizer second(options, resumed.groups());
      second.load_state(saved);
      for (size_t i = 0; i < masters.size(); ++i) {
        second.masters()[i].second.copy_from(masters[i].second);
      }
      run(resumed, second);
      EXPECT_EQ(all_of(resumed, second), all_of(straight, first)) << name_of(dtype);
    }
  }
}

TEST(Muon, SkipsTheWholeUpdateWhenAGradientIsNotFinite) {
  for (const OptimizerOptions& options : muon_variants()) {
    const MuonProblem problem = start_of_muon();
    Optimizer optimizer(options, problem.groups());
    problem.backward();
    optimizer.step(0.02);
    const Numbers before = all_of(problem, optimizer);
    problem.backward();
    problem.v.grad().data<double>()[1] = NAN;
    EXPECT_FALSE(optimizer.step(0.02).finite);
    EXPECT_EQ(all_of(problem, optimizer), before);
    problem.backward();
    EXPECT_TRUE(optimizer.step(0.02).finite);
    EXPECT_NE(all_of(problem, optimizer), before);
  }
}

TEST(Muon, LeavesWhatIsFrozenAlone) {
  const MuonProblem problem = start_of_muon();
  Optimizer optimizer(muon_variants()[1], problem.groups());
  problem.backward();
  problem.b.set_requires_grad(false);
  const Numbers a = problem.a.value().to_vector<double>(),
                b = problem.b.value().to_vector<double>();
  optimizer.step(0.02);
  EXPECT_NE(problem.a.value().to_vector<double>(), a);
  EXPECT_EQ(problem.b.value().to_vector<double>(), b);
  for (const auto& [name, tensor] : optimizer.state()) {
    if (!name.ends_with("/b")) continue;
    for (const double x : tensor.to_vector<double>()) EXPECT_EQ(x, 0) << name;
  }
}

// Mixed precision: the weights that move are float32, and the model has their roundings.
TEST(Muon, MovesTheMastersOfBfloat16) {
  const MuonProblem problem = start_of_muon(DType::kBFloat16),
                    wide = start_of_muon(DType::kFloat32);
  Optimizer optimizer(muon_options(), problem.groups()), other(muon_options(), wide.groups());
  for (int step = 0; step < 3; ++step) {
    problem.backward(), wide.backward();
    optimizer.step(0.02), other.step(0.02);
  }
  const NamedTensors masters = optimizer.masters();
  ASSERT_EQ(masters.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const Var var = problem.params()[i].second;
    EXPECT_EQ(masters[i].second.to(DType::kBFloat16).to_vector<double>(),
              var.value().to_vector<double>());
    const Numbers moved = masters[i].second.to_vector<double>();
    const Numbers expected = wide.params()[i].second.value().to_vector<double>();
    for (size_t j = 0; j < moved.size(); ++j) {
      // Three steps of 0.02 times at most sqrt(2), of which bfloat16 leaves some percent open.
      EXPECT_NEAR(moved[j], expected[j], 0.03) << problem.params()[i].first << ", element " << j;
    }
  }
}

// Matrices of many sizes, so that one thread alone takes some and all take others, in several
// launches.
TEST(Muon, SameBitsForAnyNumberOfThreads) {
  const std::vector<Shape> shapes = {{70, 30}, {30, 70},    {1, 9},      {330, 600}, {128, 128},
                                     {9, 1},   {4100, 520}, {520, 4100}, {64, 64}};
  for (OptimizerOptions options : muon_variants()) {
    options.muon.ns_steps = 2;
    const auto run = [&](int threads) {
      set_num_threads(threads);
      NamedVars params;
      for (size_t i = 0; i < shapes.size(); ++i) {
        const auto stream = static_cast<uint32_t>(i);
        const Tensor value = Tensor::empty(shapes[i]), gradient = Tensor::empty(shapes[i]);
        for (int64_t j = 0; j < value.numel(); ++j) {
          value.data<float>()[j] =
              static_cast<float>(philox_normal({9, 0, stream}, static_cast<uint64_t>(j)));
          gradient.data<float>()[j] =
              static_cast<float>(philox_normal({9, 1, stream}, static_cast<uint64_t>(j)));
        }
        params.emplace_back(std::to_string(i), Var::parameter(value));
        set_gradient(params.back().second, gradient);
      }
      Optimizer optimizer(options, params);
      for (int step = 0; step < 2; ++step) optimizer.step(0.02, {.max_grad_norm = 1});
      std::vector<float> values;
      for (const auto& [name, var] : params) {
        const auto more = var.value().to_vector<float>();
        values.insert(values.end(), more.begin(), more.end());
      }
      set_num_threads(0);
      return values;
    };
    const std::vector<float> one = run(1);
    EXPECT_EQ(one, run(2));
    EXPECT_EQ(one, run(3));
  }
}

std::string error_of_muon(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(Muon, RefusesWhatItCannotDo) {
  const MuonProblem problem = start_of_muon();
  const auto with = [&](auto&& change) {
    return error_of_muon([&] {
      OptimizerOptions options = muon_options();
      auto groups = problem.groups();
      change(options, groups);
      const Optimizer optimizer(options, groups);
    });
  };
  EXPECT_EQ(with([](OptimizerOptions& o, auto&) { o.muon.ns_steps = 0; }),
            "[optimizer] ns_steps must be from 1 to 99, got 0.");
  EXPECT_EQ(with([](OptimizerOptions& o, auto&) { o.muon.normuon_beta2 = 1; }),
            "[optimizer] normuon_beta2 must be in [0, 1), got 1.");
  EXPECT_EQ(with([](OptimizerOptions&, auto& groups) { groups[1].orthogonalize = true; }),
            "[optimizer] muon makes matrices orthogonal, 'u' is (4).");
  EXPECT_EQ(with([](OptimizerOptions&, auto& groups) {
              groups[0].packed_rows["p"] = {2, 3};
            }),
            "[optimizer] 'p' has 6 rows, 5 of them are packed.");
  EXPECT_EQ(with([](OptimizerOptions& o, auto&) { o = optimizer_defaults(OptimizerType::kAdam); }),
            "[optimizer] only muon makes matrices orthogonal, got adam.");
}

TEST(Muon, CountsItsProducts) {
  const MuonProblem problem = start_of_muon();
  // Of n x k: 2 n n k twice and 2 n n n, five times.
  const auto of = [](double n, double k) { return 5 * 2 * n * n * (2 * k + n); };
  EXPECT_DOUBLE_EQ(Optimizer(muon_options(), problem.groups()).product_flops(),
                   of(3, 4) + of(3, 6) + of(2, 4) + of(4, 4));
  EXPECT_EQ(Optimizer(optimizer_defaults(OptimizerType::kAdamW), problem.params()).product_flops(),
            0);
}

}  // namespace
}  // namespace tapestry
