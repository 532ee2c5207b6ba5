// Batch normalisation as a layer: PyTorch's values, running statistics, and models with it.
#include <map>

#include "nn/models/language_model.h"
#include "tests/nn/models/models.h"
#include "tests/nn/pytorch_fixture.h"

namespace tapestry {
namespace {

using test::distance;
using test::Json;

const Norm::Options kBatch{{.kind = NormKind::kBatch}, true};

Tensor doubles_of(const Json& json, const char* key) {
  return test::tensor_of<double>(json.at(key));
}

TEST(BatchNorm, EqualsPyTorchOverSeveralUpdates) {
  const Json fixture = test::read_fixture("batch_norm");
  const double rate = fixture.at("rate");
  ParamStore store(1, DType::kFloat64);
  const Norm layer(5, kBatch, store.root());
  ASSERT_EQ(layer.options.eps, fixture.at("eps").get<double>());
  ASSERT_EQ(BatchNormOptions().momentum, fixture.at("momentum").get<double>());
  layer.weight.value().copy_from(doubles_of(fixture, "weight"));
  layer.bias.value().copy_from(doubles_of(fixture, "bias"));
  ASSERT_GE(fixture.at("steps").size(), 3u);
  for (const Json& step : fixture.at("steps")) {
    const Var x = Var::parameter(doubles_of(step, "x"));
    Tape tape;
    const Var y = layer(x);
    tape.backward(y, doubles_of(step, "w"));
    EXPECT_LT(distance(y.value(), doubles_of(step, "y")), 1e-10);
    EXPECT_LT(distance(x.grad(), doubles_of(step, "dx")), 1e-10);
    EXPECT_LT(distance(layer.weight.grad(), doubles_of(step, "d_weight")), 1e-10);
    EXPECT_LT(distance(layer.bias.grad(), doubles_of(step, "d_bias")), 1e-10);
    EXPECT_LT(distance(layer.running_mean, doubles_of(step, "running_mean")), 1e-10);
    EXPECT_LT(distance(layer.running_var, doubles_of(step, "running_var")), 1e-10);
    for (const Var& p : {layer.weight, layer.bias}) {
      p.value().copy_from((p + -rate * Var(p.grad())).value());
      p.zero_grad();
    }
  }
  // Without a tape: the running statistics, which do not change.
  const Json& evaluation = fixture.at("evaluation");
  const Tensor mean = layer.running_mean.clone();
  EXPECT_LT(distance(layer(doubles_of(evaluation, "x")).value(), doubles_of(evaluation, "y")),
            1e-10);
  EXPECT_TRUE(test::same_bits(layer.running_mean, mean));
}

// The mean of a batch counts as much as the momentum says; it starts at 0.
TEST(BatchNorm, TheMomentumIsTheShareOfABatch) {
  ModelOptions options = test::post_norm_options();
  options.norm = NormKind::kBatch;
  options.norm_momentum = 0.25;
  ParamStore store(1, DType::kFloat64);
  const Norm layer(2, norm_options(options), store.root());
  const Var x = Tensor::from<double>({8, -4, 16, -4}, {2, 2});
  Tape tape;
  layer(x);
  EXPECT_EQ(layer.running_mean.to_vector<double>(), (std::vector<double>{3, -1}));
}

TEST(BatchNorm, RunningStatisticsAreStateButNotTrained) {
  ParamStore store;
  const Norm layer(5, kBatch, store.root() / "norm");
  std::map<std::string, bool> trained;
  for (const Parameter& p : store.parameters()) {
    trained[p.name] = p.trained;
    EXPECT_EQ(p.var.needs_grad(), p.trained) << p.name;
  }
  EXPECT_EQ(trained, (std::map<std::string, bool>{{"norm.weight", true},
                                                  {"norm.bias", true},
                                                  {"norm.running_mean", false},
                                                  {"norm.running_var", false}}));
  EXPECT_EQ(store.elements(), 10);
  Tape tape;
  const Var y = layer(test::uniform({4, 5}, 1).to(DType::kFloat32));
  tape.backward(y, Tensor::full({4, 5}, 1));
  EXPECT_FALSE(store.at("norm.running_mean").var.grad().defined());
  EXPECT_EQ(store.at("norm.running_mean").var.value().raw(), layer.running_mean.raw());
}

TEST(BatchNorm, WithoutBiasThereIsNoBeta) {
  ParamStore store;
  const Norm layer(5, {{.kind = NormKind::kBatch}, false}, store.root());
  EXPECT_FALSE(store.contains("bias"));
  EXPECT_TRUE(store.contains("running_var"));
}

// A batch of one row has a mean but no unbiased variance; one of no rows has neither. The caller
// must refuse a batch that is not finite; the statistics survive it.
TEST(BatchNorm, BatchesOfOneAndNoRowAndNotFiniteOnes) {
  ParamStore store(1, DType::kFloat64);
  const Norm layer(2, kBatch, store.root());
  const auto train_on = [&](const Tensor& x) {
    const Var input = Var::parameter(x);
    Tape tape;
    const Var y = layer(input);
    tape.backward(y, Tensor::full(x.shape(), 1, DType::kFloat64));
    return std::pair(y.value(), input.grad());
  };
  const auto [y, dx] = train_on(test::doubles({3, -4}, {1, 1, 2}));
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(dx.to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_LT(distance(layer.running_mean, test::doubles({0.3, -0.4}, {2})), 1e-15);
  EXPECT_EQ(layer.running_var.to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_EQ(train_on(Tensor::empty({0, 2}, DType::kFloat64)).first.numel(), 0);
  train_on(test::doubles({NAN, 1, 2, INFINITY}, {2, 2}));
  EXPECT_LT(distance(layer.running_mean, test::doubles({0.3, -0.4}, {2})), 1e-15);
  EXPECT_EQ(layer.running_var.to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(BatchNorm, ShapesMustFit) {
  const Var x = test::uniform({4, 5}, 1), gamma = test::uniform({5}, 2);
  EXPECT_EQ(test::error_of(
                [&] { batch_norm(x, gamma, {}, test::uniform({4}, 3), test::uniform({5}, 3)); }),
            "[batch_norm] gamma is (5), a running statistic (4).");
  EXPECT_EQ(test::error_of([&] { norm(x, gamma, {}, {.kind = NormKind::kBatch}); }),
            "[norm] expected kLayer or kRms, got kBatch; call batch_norm().");
}

// ---- In a model

ModelOptions batch_norm_options(NormPosition position) {
  ModelOptions options = test::post_norm_options();
  options.num_hidden_layers = 2;
  options.norm = NormKind::kBatch;
  options.norm_position = position;
  options.dropout = 0.1;
  return options;
}

class BatchNormModel : public ::testing::TestWithParam<NormPosition> {
 protected:
  struct Built {
    explicit Built(NormPosition position)
        : model(batch_norm_options(position), {.size = 19}, /*causal=*/true, store.root()) {}
    ParamStore store{3, DType::kFloat64};
    LanguageModel model;
  };

  // One step of gradient descent; another batch each step.
  static double train(Built& built, int step) {
    const auto stream = static_cast<uint32_t>(step);
    const LanguageModel::Batch batch{test::uniform_ids({3, 12}, 20 + stream, 1, 19),
                                     test::uniform_ids({3, 12}, 50 + stream, 1, 5)};
    Tape tape({.seed = 1, .step = stream, .stream = 0});
    const Var loss = built.model.loss(batch, {}).loss;
    tape.backward(loss);
    for (const Parameter& p : built.store.parameters()) {
      if (!p.trained) continue;
      p.var.value().copy_from((p.var + -0.1 * Var(p.var.grad())).value());
      p.var.zero_grad();
    }
    return loss.value().item();
  }

  static void expect_same(const Built& a, const Built& b) {
    for (const Parameter& p : a.store.parameters()) {
      EXPECT_TRUE(test::same_bits(p.var.value(), b.store.at(p.name).var.value())) << p.name;
    }
  }
};

TEST_P(BatchNormModel, LearnsAndDecodesStepByStepAsAtOnce) {
  Built built(GetParam());
  const double first = train(built, 0);
  double last = 0;
  for (int step = 1; step < 30; ++step) last = train(built, step);
  EXPECT_LT(last, 0.8 * first);
  const Tensor ids = test::uniform_ids({2, 9}, 5, 1, 19);
  const Tensor all = built.model.logits(built.model.hidden(ids)).value();
  LanguageModel::State state = test::started(built.model, ids, 3);
  for (int64_t t = 3; t < 9; ++t) {
    const Tensor logits = test::step_of(built.model, ids, t, state);
    EXPECT_LT(distance(logits, test::columns(all, t, t + 1).reshape({2, 19})), 1e-10);
  }
}

// A checkpoint needs only parameters and running statistics.
TEST_P(BatchNormModel, AResumedRunIsTheSameBitForBit) {
  Built straight(GetParam()), resumed(GetParam());
  for (int step = 0; step < 3; ++step) train(straight, step);
  for (const Parameter& p : straight.store.parameters()) {
    resumed.store.at(p.name).var.value().copy_from(p.var.value());
  }
  for (int step = 3; step < 6; ++step) EXPECT_EQ(train(straight, step), train(resumed, step));
  expect_same(straight, resumed);
}

TEST_P(BatchNormModel, SameBitsForAnyNumberOfThreads) {
  Built one(GetParam()), three(GetParam());
  {
    const test::WithThreads scope(1);
    for (int step = 0; step < 3; ++step) train(one, step);
  }
  const test::WithThreads scope(3);
  for (int step = 0; step < 3; ++step) train(three, step);
  expect_same(one, three);
}

INSTANTIATE_TEST_SUITE_P(Positions, BatchNormModel,
                         ::testing::Values(NormPosition::kPost, NormPosition::kPre),
                         [](const auto& info) {
                           return std::string(info.param == NormPosition::kPost ? "post" : "pre");
                         });

}  // namespace
}  // namespace tapestry
