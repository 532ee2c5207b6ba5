// Options of models beside their sizes: the norm behind a stack, the bias of the classifier, how
// matrices start, and the running variance.
#include <cmath>
#include <set>

#include "nn/models/rnn_attention.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::distance;
using test::some_ids;

// ---- final_norm

// norm(x) of each row with the parameters of that name, in plain loops.
Tensor layer_norm_of(const Tensor& x, const ParamStore& store, const std::string& name) {
  const Tensor y = x.clone();
  const double* const gamma = store.at(name + ".weight").var.value().data<double>();
  const double* const beta = store.at(name + ".bias").var.value().data<double>();
  const int64_t size = x.shape()[-1];
  for (int64_t row = 0; row < x.numel() / size; ++row) {
    double* const values = y.data<double>() + row * size;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < size; ++i) mean += values[i] / static_cast<double>(size);
    for (int64_t i = 0; i < size; ++i) {
      variance += (values[i] - mean) * (values[i] - mean) / static_cast<double>(size);
    }
    for (int64_t i = 0; i < size; ++i) {
      values[i] = (values[i] - mean) / std::sqrt(variance + 1e-5) * gamma[i] + beta[i];
    }
  }
  return y;
}

// Models with and without the norm draw and disturb the parameters that both have differently:
// these get the others' values.
void copy_shared(const ParamStore& from, const ParamStore& to) {
  for (const Parameter& p : to.parameters()) {
    if (from.contains(p.name)) p.var.value().copy_from(from.at(p.name).var.value());
  }
}

TEST(FinalNorm, NormalizesWhatAPostNormStackGives) {
  ModelOptions options = test::bert_options();
  const test::SmallLanguageModel plain(options, /*causal=*/true);
  options.final_norm = true;
  const test::SmallLanguageModel normed(options, /*causal=*/true);
  EXPECT_FALSE(plain.store.contains("norm.weight"));
  ASSERT_TRUE(normed.store.contains("norm.weight"));
  copy_shared(plain.store, normed.store);
  const Tensor ids = some_ids(9, 1);
  const Tensor wanted = layer_norm_of(plain.model.hidden(ids).value(), normed.store, "norm");
  EXPECT_LT(distance(normed.model.hidden(ids).value(), wanted), 1e-12);
  // Token by token.
  LanguageModel::State state = test::started(normed.model, ids, 0);
  const Tensor logits = normed.model.logits(normed.model.hidden(ids)).value();
  for (int64_t t = 0; t < 9; ++t) {
    const Tensor step = test::step_of(normed.model, ids, t, state);
    EXPECT_LT(distance(step, test::columns(logits, t, t + 1).reshape(step.shape())), 1e-12);
  }
}

TEST(FinalNorm, NormalizesBothSidesOfAnEncoderDecoder) {
  ModelOptions options = test::post_norm_options();
  const test::SmallModel plain(options);
  options.final_norm = true;
  const test::SmallModel normed(options);
  copy_shared(plain.store, normed.store);
  const Tensor source = some_ids(7, 2), target = some_ids(5, 3);
  const Tensor lengths = test::lengths_tensor({7, 4});
  const Tensor memory =
      layer_norm_of(plain.model.encode(source, lengths).value(), normed.store, "encoder.norm");
  EXPECT_LT(distance(normed.model.encode(source, lengths).value(), memory), 1e-12);
  const Tensor hidden = layer_norm_of(plain.model.decode(target, memory, lengths).value(),
                                      normed.store, "decoder.norm");
  EXPECT_LT(distance(normed.model.decode(target, memory, lengths).value(), hidden), 1e-12);
  const Tensor wanted = normed.model.logits(hidden).value();
  EncoderDecoder::State state = test::started(normed.model, source, lengths);
  for (int64_t t = 0; t < 5; ++t) {
    const Tensor logits = normed.model.step(test::columns(target, t, t + 1).reshape({2}), state);
    EXPECT_LT(distance(logits, test::columns(wanted, t, t + 1).reshape(logits.shape())), 1e-12);
  }
}

TEST(FinalNorm, IsTheDefaultOfPreNormModelsAndMayBeLeftOut) {
  ModelOptions options = test::gpt2_options();
  EXPECT_TRUE(test::SmallLanguageModel(options, true).store.contains("norm.weight"));
  options.final_norm = false;
  EXPECT_FALSE(test::SmallLanguageModel(options, true).store.contains("norm.weight"));
}

// ---- output_bias

template <class Built>
void set_output_bias(const Built& built, double step) {
  const Tensor& bias = built.store.at("output.bias").var.value();
  for (int64_t v = 0; v < bias.numel(); ++v) bias.data<double>()[v] = step * static_cast<double>(v);
}

// Logits of the model without a bias plus the bias.
Tensor biased(const Tensor& logits, double step) {
  const Tensor y = logits.clone();
  const int64_t vocab = y.shape()[-1];
  for (int64_t i = 0; i < y.numel(); ++i) {
    y.data<double>()[i] += step * static_cast<double>(i % vocab);
  }
  return y;
}

TEST(OutputBias, IsAddedToTheLogitsOfACausalModel) {
  for (const bool tied : {true, false}) {
    ModelOptions options = test::gpt2_options();
    options.tie_word_embeddings = tied;
    const test::SmallLanguageModel plain(options, /*causal=*/true);
    options.output_bias = true;
    const test::SmallLanguageModel built(options, /*causal=*/true);
    copy_shared(plain.store, built.store);
    set_output_bias(built, 0.1);
    const Tensor ids = some_ids(9, 1);
    const Tensor wanted = biased(plain.model.logits(plain.model.hidden(ids)).value(), 0.1);
    EXPECT_LT(distance(built.model.logits(built.model.hidden(ids)).value(), wanted), 1e-12);
    LanguageModel::State state = test::started(built.model, ids, 8);
    const Tensor last = test::step_of(built.model, ids, 8, state);
    EXPECT_LT(distance(last, test::columns(wanted, 8, 9).reshape(last.shape())), 1e-12);
    // The fused loss is that of the logits.
    const double loss = built.model.loss({.ids = ids, .targets = ids}, {}).loss.value().item();
    EXPECT_NEAR(loss, cross_entropy(wanted, ids).loss.value().item(), 1e-12);
  }
}

template <class Model>
void expect_bias_in_translation(bool tied) {
  ModelOptions options = test::post_norm_options();
  options.tie_word_embeddings = tied;
  const test::SmallModelOf<Model> plain(options);
  options.output_bias = true;
  const test::SmallModelOf<Model> built(options);
  copy_shared(plain.store, built.store);
  set_output_bias(built, 0.1);
  const Tensor source = some_ids(7, 2), target = some_ids(5, 3);
  const Tensor lengths = test::lengths_tensor({7, 4});
  const Var memory = plain.model.encode(source, lengths);
  const Tensor wanted =
      biased(plain.model.logits(plain.model.decode(target, memory, lengths)).value(), 0.1);
  EXPECT_LT(
      distance(built.model.logits(built.model.decode(target, memory, lengths)).value(), wanted),
      1e-12);
  typename Model::State state = test::started(built.model, source, lengths);
  for (int64_t t = 0; t < 5; ++t) {
    const Tensor logits = built.model.step(test::columns(target, t, t + 1).reshape({2}), state);
    EXPECT_LT(distance(logits, test::columns(wanted, t, t + 1).reshape(logits.shape())), 1e-12);
  }
  const CrossEntropy loss = built.model.loss({source, lengths, target, target}, {});
  EXPECT_NEAR(loss.loss.value().item(),
              cross_entropy(wanted, target, {.ignore_index = 0}).loss.value().item(), 1e-12);
}

TEST(OutputBias, IsAddedToTheLogitsOfATranslation) {
  for (const bool tied : {true, false}) {
    expect_bias_in_translation<EncoderDecoder>(tied);
    expect_bias_in_translation<RnnAttention>(tied);
  }
}

TEST(OutputBias, AMaskedModelKeepsThatOfItsHead) {
  ModelOptions options = test::bert_options();
  options.output_bias = true;
  const test::SmallLanguageModel built(options, /*causal=*/false);
  EXPECT_TRUE(built.store.contains("head.bias"));
  EXPECT_FALSE(built.store.contains("output.bias"));
}

// ---- initializer

struct Moments {
  double deviation = 0, largest = 0, count = 0;
};

// Of rows [begin, end) of a parameter.
Moments moments_of(const ParamStore& store, const std::string& name, int64_t begin, int64_t end) {
  Moments moments;
  for (const double v : store.at(name).var.value().slice(begin, end).to_vector<double>()) {
    moments.deviation += v * v;
    moments.largest = std::max(moments.largest, std::abs(v));
    ++moments.count;
  }
  moments.deviation = std::sqrt(moments.deviation / moments.count);
  return moments;
}

// Rows of a parameter that are one projection from `in` numbers.
struct Projection {
  std::string name;
  int64_t begin, end, in;
};

// D = 48 in heads of 8 with half as many keys and values, F = 80, gated.
const std::vector<Projection> kProjections = {
    {"layers.0.self_attention.qkv.weight", 0, 48, 48},
    {"layers.0.self_attention.qkv.weight", 48, 72, 48},
    {"layers.0.self_attention.qkv.weight", 72, 96, 48},
    {"layers.0.self_attention.out.weight", 0, 48, 48},
    {"layers.0.feed_forward.up.weight", 0, 80, 48},
    {"layers.0.feed_forward.up.weight", 80, 160, 48},
    {"layers.0.feed_forward.down.weight", 0, 48, 80},
    {"embedding.weight", 0, 300, 48},
    {"positions.weight", 0, 60, 48},
    {"output.weight", 0, 300, 48},
};

void with_initializer(Initializer initializer, double range,
                      const std::function<void(const ParamStore&)>& check) {
  ModelOptions options = test::gpt2_options();
  options.norm_position = NormPosition::kPost;
  options.hidden_size = 48;
  options.num_attention_heads = 6;
  options.num_key_value_heads = 3;
  options.intermediate_size = 80;
  options.hidden_act = {Activation::kSilu, /*gated=*/true};
  options.max_position_embeddings = 60;
  options.num_hidden_layers = 1;
  options.tie_word_embeddings = false;
  options.initializer = initializer;
  options.initializer_range = range;
  ParamStore store(7, DType::kFloat64);
  const LanguageModel model(options, {.size = 300}, /*causal=*/true, store.root());
  check(store);
}

// Glorot and Bengio 2010, (16): U(-b, b) with b = sqrt(6 / (in + out)), of each projection.
TEST(InitializerTest, XavierUniformIsThatOfEachProjection) {
  with_initializer(Initializer::kXavierUniform, 0, [](const ParamStore& store) {
    for (const auto& [name, begin, end, in] : kProjections) {
      const double bound = std::sqrt(6.0 / static_cast<double>(in + end - begin));
      const Moments found = moments_of(store, name, begin, end);
      EXPECT_LE(found.largest, bound) << name;
      EXPECT_GT(found.largest, 0.98 * bound) << name;
      EXPECT_NEAR(found.deviation / (bound / std::sqrt(3.0)), 1, 4 / std::sqrt(2 * found.count))
          << name;
    }
  });
}

TEST(InitializerTest, XavierNormalKaimingAndNormalHaveTheirVariances) {
  const auto expect = [](Initializer initializer, double range, auto variance) {
    with_initializer(initializer, range, [&](const ParamStore& store) {
      for (const auto& [name, begin, end, in] : kProjections) {
        const Moments found = moments_of(store, name, begin, end);
        const double wanted =
            std::sqrt(variance(static_cast<double>(end - begin), static_cast<double>(in)));
        EXPECT_NEAR(found.deviation / wanted, 1, 4 / std::sqrt(2 * found.count)) << name;
        EXPECT_GT(found.largest, 2.5 * wanted) << name << " is not uniform";
      }
    });
  };
  expect(Initializer::kXavierNormal, 0, [](double out, double in) { return 2 / (in + out); });
  expect(Initializer::kKaiming, 0, [](double, double in) { return 2 / in; });
  expect(Initializer::kNormal, 0.03, [](double, double) { return 0.03 * 0.03; });
}

// What happened before there was a choice.
TEST(InitializerTest, PackedIsTheDefault) {
  with_initializer(Initializer::kXavierPacked, 0, [](const ParamStore& store) {
    const Moments qkv = moments_of(store, "layers.0.self_attention.qkv.weight", 0, 96);
    const double bound = std::sqrt(6.0 / (48 + 96));
    EXPECT_LE(qkv.largest, bound);
    EXPECT_GT(moments_of(store, "layers.0.self_attention.qkv.weight", 0, 48).largest, 0.98 * bound);
    EXPECT_NEAR(moments_of(store, "embedding.weight", 0, 300).deviation, std::sqrt(1.0 / 48),
                0.03 * std::sqrt(1.0 / 48));
  });
  EXPECT_EQ(ModelOptions().chosen_initializer(), Initializer::kXavierPacked);
  EXPECT_EQ(ModelOptions{.initializer_range = 0.02}.chosen_initializer(), Initializer::kNormal);
}

// Each layer begins as the identity: the hidden states are those of the embeddings.
TEST(InitializerTest, ZeroBranchesLeaveTheEmbeddings) {
  ModelOptions options = test::gpt2_options();
  options.zero_branches = true;
  ParamStore store(7, DType::kFloat64), shallow_store(7, DType::kFloat64);
  const LanguageModel model(options, {.size = 300}, /*causal=*/true, store.root());
  options.num_hidden_layers = 1;
  const LanguageModel shallow(options, {.size = 300}, /*causal=*/true, shallow_store.root());
  const Tensor ids = Tensor::from<int32_t>({4, 7, 99, 2}, {1, 4});
  EXPECT_EQ(model.hidden(ids).value().to_vector<double>(),
            shallow.hidden(ids).value().to_vector<double>());
  EXPECT_EQ(moments_of(store, "layers.1.feed_forward.down.weight", 0, 8).largest, 0);
  EXPECT_GT(moments_of(store, "layers.1.feed_forward.up.weight", 0, 8).largest, 0);
}

TEST(InitializerTest, RangeAndInitializerMustAgree) {
  ModelOptions options = test::gpt2_options();
  options.initializer = Initializer::kKaiming;
  options.initializer_range = 0.02;
  EXPECT_EQ(test::error_of([&] { options.validate(); }),
            "[model] initializer_range must be 0 with initializer: kaiming, got 0.02.");
  options.initializer = Initializer::kNormal;
  options.initializer_range = 0;
  EXPECT_EQ(test::error_of([&] { options.validate(); }),
            "[model] initializer_range must be more than 0 with initializer: normal, got 0.");
}

// ---- norm_running_variance

TEST(RunningVarianceTest, IsUnbiasedOrBiased) {
  const Tensor x = test::doubles({1, 5, 3, -2, 8, 0}, {3, 2});
  // Column 0 is 1, 3, 8: mean 4, squares 9 + 1 + 16. Column 1 is 5, -2, 0: mean 1, 16 + 9 + 1.
  for (const bool biased : {false, true}) {
    ParamStore store(1, DType::kFloat64);
    const Norm layer(2, {{.kind = NormKind::kBatch}, true, biased}, store.root());
    const Tape tape;
    layer(Var::parameter(x));
    const double variance = 26.0 / (biased ? 3 : 2);
    EXPECT_LT(distance(layer.running_var,
                       test::doubles({0.9 + 0.1 * variance, 0.9 + 0.1 * variance}, {2})),
              1e-14);
  }
  // The model's option reaches its norms.
  ModelOptions options = test::bert_options();
  options.norm = NormKind::kBatch;
  EXPECT_FALSE(norm_options(options).biased_running_variance);
  options.norm_running_variance = RunningVariance::kBiased;
  EXPECT_TRUE(norm_options(options).biased_running_variance);
}

// One row has a biased variance, 0, and no unbiased one.
TEST(RunningVarianceTest, OfOneRow) {
  for (const bool biased : {false, true}) {
    ParamStore store(1, DType::kFloat64);
    const Norm layer(2, {{.kind = NormKind::kBatch}, true, biased}, store.root());
    const Tape tape;
    layer(Var::parameter(test::doubles({3, -4}, {1, 2})));
    EXPECT_EQ(layer.running_var.to_vector<double>(), (std::vector<double>(2, biased ? 0.9 : 1.0)));
  }
}

}  // namespace
}  // namespace tapestry
