// Updates in backward have the bits of updates after it, and hold few gradients at a time.
#include "optim/backward_steps.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "core/cpu/parallel.h"
#include "core/shapes_only.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using enum OptimizerType;

Tensor drawn(const Shape& shape, uint32_t stream, DType dtype) {
  Tensor x = Tensor::empty(shape, DType::kFloat64);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const PhiloxKey key{.seed = 5, .step = 0, .stream = stream};
    x.data<double>()[i] = to_uniform(philox_bits(key, static_cast<uint64_t>(i))) - 0.5;
  }
  return x.to(dtype);
}

// An embedding whose table is the classifier, too, two layers between them, one that no pass uses,
// and a frozen bias. Some are larger than a chunk of the sum of squares.
struct TinyNet {
  explicit TinyNet(DType dtype)
      : table(Var::parameter(drawn({300, 64}, 1, dtype))),
        first(Var::parameter(drawn({272, 64}, 2, dtype))),
        idle(Var::parameter(drawn({33, 7}, 3, dtype))),
        bias(Var::parameter(drawn({272}, 4, dtype))),
        second(Var::parameter(drawn({64, 272}, 5, dtype))),
        frozen(Var::parameter(drawn({64}, 6, dtype))),
        ids(Tensor::empty({2, 9}, DType::kInt32)) {
    frozen.set_requires_grad(false);
    for (int i = 0; i < 18; ++i) ids.data<int32_t>()[i] = (i * 53) % 300;
  }
  NamedVars params() const {
    return {{"table", table}, {"first", first},   {"idle", idle},
            {"bias", bias},   {"second", second}, {"frozen", frozen}};
  }
  CrossEntropy loss() const {
    const Var x = embedding(ids, table);
    const Var y = linear(gelu(linear(x, first, bias)), second, frozen);
    return linear_cross_entropy(reshape(y, {18, 64}), table, {}, ids.reshape({18}), {});
  }

  Var table, first, idle, bias, second, frozen;
  Tensor ids;
};

ParamGroup group_of(const TinyNet& net) {
  ParamGroup group{.params = net.params(), .packed_rows = {}};
  return group;
}

std::vector<ParamGroup> groups_of(const TinyNet& net, OptimizerType type) {
  if (type != kMuon) return {group_of(net)};
  ParamGroup matrices{.params = {{"first", net.first}, {"second", net.second}},
                      .orthogonalize = true,
                      .packed_rows = {{"first", {200, 72}}}};
  ParamGroup others{.params = {{"table", net.table}, {"idle", net.idle}, {"bias", net.bias}}};
  return {matrices, others};
}

// Updates of a net, in backward or after it.
struct NetTraining {
  NetTraining(const OptimizerOptions& options, DType dtype, bool in_backward)
      : net(dtype), optimizer(options, groups_of(net, options.type)) {
    if (in_backward) steps.emplace(optimizer);
  }
  StepResult update(double spoil_loss = 0) {
    const double rate = 0.01;
    {
      Tape tape;
      const CrossEntropy result = net.loss();
      std::vector<Tensor> losses = {result.sums.clone()};
      losses[0].data<double>()[0] += spoil_loss;
      if (steps) steps->open(rate, clip, losses);
      tape.backward(result.loss);
      if (steps) {
        steps->close();
      } else {
        optimizer.launch(rate, clip, 1, losses);
      }
    }
    const StepResult result = optimizer.outcome();
    if (!steps) optimizer.zero_grad();
    return result;
  }
  // Bytes of all parameters, masters and states.
  std::string everything() const {
    std::string bytes;
    const auto add = [&](const Tensor& tensor) {
      bytes.append(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes()));
    };
    for (const auto& [name, var] : net.params()) add(var.value());
    for (const auto& [name, tensor] : optimizer.masters()) add(tensor);
    for (const auto& [name, tensor] : optimizer.state()) add(tensor);
    return bytes;
  }

  TinyNet net;
  Optimizer optimizer;
  std::optional<BackwardSteps> steps;
  ClipOptions clip = {.clip_value = 0.02};
};

TEST(BackwardSteps, HaveTheBitsOfUpdatesAfterBackward) {
  for (const OptimizerType type : kOptimizerTypes) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
      for (const StateType state : kStateTypes) {
        OptimizerOptions options = optimizer_defaults(type);
        options.weight_decay = 0.1;
        if (state != StateType::kFloat32) {
          if (!reads_of(type).state_dtype || dtype == DType::kFloat64) continue;
          options.state_dtype = state;
        }
        for (const int threads : {1, 2}) {
          SCOPED_TRACE(concat(name_of(type), ' ', dtype, ' ', name_of(state), ' ', threads));
          set_num_threads(threads);
          NetTraining after(options, dtype, false), in(options, dtype, true);
          const std::string before = in.everything();
          after.optimizer.count_figures();
          in.optimizer.count_figures();
          for (int step = 0; step < 3; ++step) {
            const StepResult a = after.update(), b = in.update();
            EXPECT_TRUE(b.finite);
            EXPECT_EQ(a.grad_norm, b.grad_norm);
            for (size_t i = 0; i < after.optimizer.figures().size(); ++i) {
              const GradientFigures &x = after.optimizer.figures()[i],
                                    &y = in.optimizer.figures()[i];
              EXPECT_EQ(x.name, y.name);
              EXPECT_EQ(x.elements, y.elements) << x.name;
              if (x.elements == 0) continue;
              EXPECT_EQ(x.squares, y.squares) << x.name;
              EXPECT_EQ(x.zeros, y.zeros) << x.name;
            }
          }
          EXPECT_TRUE(after.everything() == in.everything());
          EXPECT_FALSE(before == in.everything());
          for (const auto& [name, var] : in.net.params()) {
            EXPECT_FALSE(var.grad().defined()) << name;
          }
        }
      }
    }
  }
  set_num_threads(0);
}

TEST(BackwardSteps, AreClippedByANormOfBefore) {
  // Of SGD, whose steps are as long as its gradients.
  const double norm =
      NetTraining(optimizer_defaults(kSgd), DType::kFloat64, false).update().grad_norm;
  const auto length = [&](const ClipOptions& clip, bool in_backward) {
    NetTraining training(optimizer_defaults(kSgd), DType::kFloat64, in_backward);
    const Tensor before = training.net.first.value().clone();
    training.clip = clip;
    EXPECT_EQ(training.update().grad_norm, norm);  // that before clipping
    double squares = 0;
    for (int64_t i = 0; i < before.numel(); ++i) {
      const double step = training.net.first.value().data<double>()[i] - before.data<double>()[i];
      squares += step * step;
    }
    return std::sqrt(squares);
  };
  const double whole = length({}, false);
  for (const bool in_backward : {false, true}) {
    const ClipOptions half = {.max_grad_norm = 0.5, .norm = 1.0};
    EXPECT_NEAR(length(half, in_backward) / whole, 0.5, 1e-5);
    EXPECT_EQ(length({.max_grad_norm = 0.5, .norm = 0.4}, in_backward), whole);
    EXPECT_EQ(length({.max_grad_norm = 0.5, .norm = 0.0}, in_backward), whole);
  }
  EXPECT_EQ(length({.max_grad_norm = norm, .norm = 2 * norm}, false),
            length({.max_grad_norm = norm, .norm = 2 * norm}, true));
  NetTraining training(optimizer_defaults(kSgd), DType::kFloat64, true);
  training.clip = {.max_grad_norm = 0.5};
  EXPECT_THROW(training.update(), Error);
}

TEST(BackwardSteps, ALossThatIsNotFiniteChangesNothing) {
  for (const OptimizerType type : kOptimizerTypes) {
    NetTraining training(optimizer_defaults(type), DType::kFloat32, true);
    training.update();
    const std::string before = training.everything();
    const StepResult result = training.update(std::numeric_limits<double>::infinity());
    EXPECT_FALSE(result.finite);
    EXPECT_FALSE(std::isfinite(result.grad_norm));
    EXPECT_EQ(result.updated_before, 0);
    EXPECT_TRUE(training.everything() == before) << name_of(type);
    EXPECT_TRUE(training.update().finite);
    EXPECT_FALSE(training.everything() == before) << name_of(type);
  }
}

// The input is as large as the first weights are small: what comes behind them is as usual, and
// only their own gradient is too large to be squared.
TEST(BackwardSteps, NameTheGradientThatIsNotFinite) {
  const Var last = Var::parameter(drawn({4, 4}, 1, DType::kFloat64));
  Tensor small = drawn({4, 4}, 2, DType::kFloat64);
  for (int i = 0; i < 16; ++i) small.data<double>()[i] *= 1e-200;
  const Var early = Var::parameter(small);
  Optimizer optimizer(optimizer_defaults(kAdam), {{"early", early}, {"last", last}});
  BackwardSteps steps(optimizer);
  const Tensor before = early.value().clone(), of_last = last.value().clone();
  const auto update = [&](double x) {
    {
      Tape tape;
      const Var input(Tensor::full({2, 4}, x, DType::kFloat64));
      const Var y = sum(linear(gelu(linear(input, early)), last));
      steps.open(0.1);
      tape.backward(y);
      steps.close();
    }
    return optimizer.outcome();
  };
  const StepResult result = update(1e200);
  EXPECT_FALSE(result.finite);
  EXPECT_EQ(result.culprit, "early");
  EXPECT_EQ(result.updated_before, 1);
  EXPECT_EQ(early.value().to_vector<double>(), before.to_vector<double>());
  EXPECT_NE(last.value().to_vector<double>(), of_last.to_vector<double>());
  // Where the first one is not finite, nothing has changed.
  const Tensor then = last.value().clone();
  const StepResult first = update(std::numeric_limits<double>::infinity());
  EXPECT_FALSE(first.finite);
  EXPECT_EQ(first.culprit, "");
  EXPECT_EQ(first.updated_before, 0);
  EXPECT_EQ(last.value().to_vector<double>(), then.to_vector<double>());
}

// A chain of layers, of which one has a gradient at a time.
TEST(BackwardSteps, HoldFewGradients) {
  const ShapesOnly dry;
  constexpr int kLayers = 8;
  std::vector<Var> layers;
  NamedVars params;
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(Var::parameter(Tensor::zeros({64, 64})));
    params.emplace_back(concat("layer", i), layers.back());
  }
  Optimizer optimizer(optimizer_defaults(kAdam), params);
  BackwardSteps steps(optimizer);
  const int64_t before = dry.bytes_in_use();
  {
    Tape tape;
    Var x(Tensor::zeros({2, 64}));
    for (const Var& layer : layers) x = gelu(linear(x, layer));
    steps.open(0.1);
    tape.backward(sum(x));
    steps.close();
  }
  EXPECT_EQ(steps.most_bytes(), 4 * 64 * 64);
  EXPECT_LT(dry.bytes_in_use() - before, 4 * 64 * 64) << "gradients stay in memory";
}

TEST(BackwardSteps, PassesWhileTheyAreClosedKeepTheirGradients) {
  NetTraining training(optimizer_defaults(kAdam), DType::kFloat32, true);
  const std::string before = training.everything();
  {
    Tape tape;
    tape.backward(training.net.loss().loss);
  }
  EXPECT_TRUE(training.net.first.grad().defined());
  EXPECT_TRUE(training.everything() == before);
}

TEST(BackwardSteps, AreForOnePass) {
  NetTraining training(optimizer_defaults(kAdam), DType::kFloat32, true);
  training.steps->open(0.1);
  const auto pass = [&] {
    Tape tape;
    tape.backward(training.net.loss().loss);
  };
  pass();
  try {
    pass();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected one backward pass in an update, got another one "
                                        "that reaches '"));
  }
}

}  // namespace
}  // namespace tapestry
