// What a layer takes from earlier ones: residual_scalars and value_residual.
#include "nn/models/model_options.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::distance;
using test::some_ids;

ModelOptions with_both(ModelOptions options) {
  options.residual_scalars = true;
  options.value_residual = true;
  return options;
}

void set(const ParamStore& store, const std::string& name, double value) {
  store.at(name).var.value().copy_from(Tensor::full({1}, value, store.dtype()));
}

TEST(EarlierLayers, BeginAsSaid) {
  ParamStore store(5, DType::kFloat64);
  ModelOptions options = with_both(test::gpt2_options());
  options.num_hidden_layers = 3;
  const LanguageModel model(options, {.size = test::kVocabulary}, /*causal=*/true, store.root());
  for (const char* layer : {"layers.1.", "layers.2."}) {
    for (const auto& [name, value] : {std::pair{"residual_scalars.stream", 1.0},
                                      {"residual_scalars.embeddings", 0.0},
                                      {"self_attention.own_values", 0.5},
                                      {"self_attention.earlier_values", 0.5}}) {
      EXPECT_EQ(store.at(concat(layer, name)).var.value().item(), value) << layer << name;
    }
  }
  EXPECT_FALSE(store.contains("layers.0.residual_scalars.stream"));
  EXPECT_FALSE(store.contains("layers.0.self_attention.own_values"));
}

// The layers by hand, the second with the sums of its definition.
TEST(EarlierLayers, AreTheSumsOfTheFormulas) {
  const test::SmallLanguageModel built(with_both(test::gpt2_options()), /*causal=*/true);
  set(built.store, "layers.1.residual_scalars.stream", 0.8);
  set(built.store, "layers.1.residual_scalars.embeddings", -0.3);
  set(built.store, "layers.1.self_attention.own_values", 0.6);
  set(built.store, "layers.1.self_attention.earlier_values", 0.7);
  const Tensor ids = some_ids(9, 1);
  const std::vector<EncoderLayer>& layers = built.model.trunk.stack.layers;
  const auto attention_of = [](const EncoderLayer& layer) {
    return std::get<SelfAttention>(layer.self_attention.kind);
  };
  const auto normed = [](const EncoderLayer& layer, const Var& x) {
    return (*layer.self_attention_norm.norm)(x);
  };
  const Var x0 = built.model.trunk.embedding(ids);
  const Var v1 = slice(attention_of(layers[0]).qkv(normed(layers[0], x0)), 2, 32, 48);
  const Var x = 0.8 * layers[0](x0, {}, /*causal=*/true) - 0.3 * x0;
  const SelfAttention f = attention_of(layers[1]);
  const Var qkv = f.qkv(normed(layers[1], x));
  const Var v = 0.6 * slice(qkv, 2, 32, 48) + 0.7 * v1;
  const Var h = x + f.out(attention(slice(qkv, 2, 0, 16), slice(qkv, 2, 16, 32), v,
                                    {.heads = 4, .causal = true}));
  const Var y = layers[1].feed_forward_norm(h, layers[1].feed_forward);
  const Var wanted = built.model.trunk.stack.norm.front()(y);
  EXPECT_LT(distance(built.model.hidden(ids).value(), wanted.value()), 1e-12);
}

TEST(EarlierLayers, ChangeNothingWithNeutralNumbers) {
  const ModelOptions options = test::llama_options();
  const test::SmallLanguageModel plain(options, true), built(with_both(options), true);
  for (const Parameter& p : built.store.parameters()) {
    if (plain.store.contains(p.name)) {
      p.var.value().copy_from(plain.store.at(p.name).var.value());
    } else {
      const bool one = p.name.ends_with("stream") || p.name.ends_with("own_values");
      set(built.store, p.name, one ? 1 : 0);
    }
  }
  const Tensor ids = some_ids(9, 1);
  EXPECT_EQ(distance(built.model.hidden(ids).value(), plain.model.hidden(ids).value()), 0);
}

TEST(EarlierLayers, DecodeAsTheyLearn) {
  for (ModelOptions options : {test::gpt2_options(), test::llama_options()}) {
    options.num_hidden_layers = 3;
    const test::SmallLanguageModel built(with_both(options), /*causal=*/true);
    const Tensor ids = some_ids(9, 1);
    LanguageModel::State state = test::started(built.model, ids, 3);
    const Tensor logits = built.model.logits(built.model.hidden(ids)).value();
    for (int64_t t = 3; t < 9; ++t) {
      const Tensor step = test::step_of(built.model, ids, t, state);
      EXPECT_LT(distance(step, test::columns(logits, t, t + 1).reshape(step.shape())), 1e-12);
    }
  }
  ModelOptions options = with_both(test::pre_norm_options());
  const test::SmallModel pairs(options);
  const Tensor source = some_ids(7, 2), target = some_ids(5, 3);
  const Tensor lengths = test::lengths_tensor({7, 4});
  const Tensor logits =
      pairs.model.logits(pairs.model.decode(target, pairs.model.encode(source, lengths), lengths))
          .value();
  EncoderDecoder::State state = test::started(pairs.model, source, lengths);
  for (int64_t t = 0; t < 5; ++t) {
    const Tensor step = pairs.model.step(test::columns(target, t, t + 1).reshape({2}), state);
    EXPECT_LT(distance(step, test::columns(logits, t, t + 1).reshape(step.shape())), 1e-12);
  }
}

TEST(EarlierLayers, RecomputedHaveTheSameBits) {
  ModelOptions options = with_both(test::with_dropout(test::llama_options()));
  options.num_hidden_layers = 3;
  const test::SmallLanguageModel kept(options, true, DType::kFloat32);
  options.recompute = true;
  const test::SmallLanguageModel again(options, true, DType::kFloat32);
  const Tensor ids = some_ids(9, 1);
  const auto pass = [&](const test::SmallLanguageModel& built) {
    return test::train_pass(
        built.store, [&] { return built.model.loss({.ids = ids, .targets = ids}, {}).loss; });
  };
  EXPECT_TRUE(test::same_bits(pass(kept), pass(again)));
}

TEST(EarlierLayers, AreRefusedWhereTheyMeanNothing) {
  ModelOptions options = with_both(test::bert_options());
  EXPECT_EQ(test::error_of([&] { options.validate(); }),
            "[model] residual_scalars must be false with norm_position post, whose layers end in a "
            "norm.");
  options = test::llama_options();
  options.num_key_value_heads = 0;
  options.value_residual = true;
  options.kv_latent_size = 6;
  EXPECT_EQ(test::error_of([&] { options.validate(); }),
            "[model] value_residual must be false with kv_latent_size.");
}

}  // namespace
}  // namespace tapestry
