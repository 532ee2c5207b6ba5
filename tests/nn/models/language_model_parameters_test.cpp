// Names and shapes of the parameters of language models, and how they start.
#include <gmock/gmock.h>

#include <map>

#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the small models

using Shapes = std::map<std::string, std::string>;

Shapes parameter_shapes(const ParamStore& store) {
  Shapes shapes;
  for (const Parameter& p : store.parameters()) shapes[p.name] = p.var.shape().str();
  return shapes;
}

// The layers of a trunk with D = 16: `qkv` and `up` rows.
Shapes layer_shapes(const ModelOptions& o, const std::string& qkv, const std::string& up) {
  Shapes shapes;
  for (int64_t i = 0; i < o.num_hidden_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + '.';
    const std::pair<const char*, std::pair<std::string, std::string>> matrices[] = {
        {"self_attention.qkv", {qkv, "16"}},
        {"self_attention.out", {"16", "16"}},
        {"feed_forward.up", {up, "16"}},
        {"feed_forward.down", {"16", "24"}}};
    for (const auto& [name, sizes] : matrices) {
      shapes[layer + name + ".weight"] = '(' + sizes.first + ", " + sizes.second + ')';
      if (o.bias) shapes[layer + name + ".bias"] = '(' + sizes.first + ')';
    }
    for (const std::string norm : {"self_attention_norm", "feed_forward_norm"}) {
      shapes[layer + norm + ".weight"] = "(16)";
      if (o.bias) shapes[layer + norm + ".bias"] = "(16)";
    }
  }
  return shapes;
}

// These names are the keys of checkpoints.
TEST(LanguageModelParameters, Gpt2) {
  Shapes expected = layer_shapes(gpt2_options(), "48", "24");
  expected["embedding.weight"] = "(19, 16)";
  expected["positions.weight"] = "(48, 16)";
  expected["norm.weight"] = expected["norm.bias"] = "(16)";
  EXPECT_EQ(parameter_shapes(SmallLanguageModel(gpt2_options(), /*causal=*/true).store), expected);
}

TEST(LanguageModelParameters, Llama) {
  Shapes expected = layer_shapes(llama_options(), "32", "48");
  expected["embedding.weight"] = expected["output.weight"] = "(19, 16)";
  expected["norm.weight"] = "(16)";
  EXPECT_EQ(parameter_shapes(SmallLanguageModel(llama_options(), /*causal=*/true).store), expected);
}

TEST(LanguageModelParameters, Bert) {
  Shapes expected = layer_shapes(bert_options(), "48", "24");
  expected["embedding.weight"] = "(19, 16)";
  expected["positions.weight"] = "(48, 16)";
  expected["segments.weight"] = "(2, 16)";
  for (const std::string norm : {"embedding_norm", "head.norm"}) {
    expected[norm + ".weight"] = expected[norm + ".bias"] = "(16)";
  }
  expected["head.dense.weight"] = "(16, 16)";
  expected["head.dense.bias"] = "(16)";
  expected["head.bias"] = "(19)";
  EXPECT_EQ(parameter_shapes(SmallLanguageModel(bert_options(), /*causal=*/false).store), expected);

  for (const std::string name : {"head.dense.weight", "head.dense.bias", "head.norm.weight",
                                 "head.norm.bias", "head.bias"}) {
    expected.erase(name);
  }
  for (const std::string name : {"pooler", "classifier"}) {
    expected[name + ".weight"] = name == "pooler" ? "(16, 16)" : "(3, 16)";
    expected[name + ".bias"] = name == "pooler" ? "(16)" : "(3)";
  }
  ParamStore store;
  const SequenceClassifier classifier(bert_options(), {.size = kVocabulary}, 3, store.root());
  EXPECT_EQ(parameter_shapes(store), expected);
}

// ELECTRA's tables are narrow, and so is what reads them again; GPT-J has one norm in a layer.
TEST(LanguageModelParameters, NarrowEmbeddingsAndASharedNorm) {
  ModelOptions options = bert_options();
  options.embedding_size = 6;
  const Shapes narrow = parameter_shapes(SmallLanguageModel(options, /*causal=*/false).store);
  for (const auto& [name, shape] :
       {std::pair{"embedding.weight", "(19, 6)"}, std::pair{"positions.weight", "(48, 6)"},
        std::pair{"segments.weight", "(2, 6)"}, std::pair{"embedding_norm.weight", "(6)"},
        std::pair{"embedding_projection.weight", "(16, 6)"},
        std::pair{"embedding_projection.bias", "(16)"}, std::pair{"head.dense.weight", "(6, 16)"},
        std::pair{"head.norm.weight", "(6)"}, std::pair{"head.bias", "(19)"}}) {
    ASSERT_TRUE(narrow.contains(name)) << name;
    EXPECT_EQ(narrow.at(name), shape) << name;
  }
  ModelOptions parallel = gpt2_options();
  parallel.parallel_residual = parallel.shared_norm = true;
  Shapes expected = layer_shapes(parallel, "48", "24");
  for (const auto& [name, shape] : Shapes(expected)) {
    if (name.find("feed_forward_norm") != std::string::npos) expected.erase(name);
  }
  expected["embedding.weight"] = "(19, 16)";
  expected["positions.weight"] = "(48, 16)";
  expected["norm.weight"] = expected["norm.bias"] = "(16)";
  EXPECT_EQ(parameter_shapes(SmallLanguageModel(parallel, /*causal=*/true).store), expected);
}

// A masked model keeps only the classifier's own bias.
TEST(LanguageModelParameters, WithoutBiases) {
  const auto biases = [](ModelOptions options, bool causal) {
    options.bias = false;
    std::vector<std::string> names;
    const SmallLanguageModel built(options, causal);
    for (const Parameter& p : built.store.parameters()) {
      if (p.name.ends_with("bias")) names.push_back(p.name);
    }
    return names;
  };
  EXPECT_EQ(biases(gpt2_options(), true), std::vector<std::string>());
  EXPECT_EQ(biases(bert_options(), false), std::vector<std::string>{"head.bias"});
  ModelOptions options = test::post_norm_options();
  options.bias = false;
  const test::SmallModel encoder_decoder(options);
  for (const Parameter& p : encoder_decoder.store.parameters()) {
    EXPECT_FALSE(p.name.ends_with("bias")) << p.name;
  }
}

double deviation_of(const Tensor& x) {
  double squares = 0;
  for (const double v : x.to_vector<double>()) squares += v * v;
  return std::sqrt(squares / static_cast<double>(x.numel()));
}

bool ends_a_branch(const std::string& name) {
  return name.ends_with("attention.out.weight") || name.ends_with("feed_forward.down.weight");
}

TEST(LanguageModelParameters, InitializerRange) {
  for (ModelOptions options : {gpt2_options(), llama_options(), bert_options()}) {
    options.hidden_size = 64;
    options.intermediate_size = 128;
    options.num_hidden_layers = 3;
    options.initializer_range = 0.03;
    const bool pre = options.norm_position == NormPosition::kPre;
    ParamStore store(7, DType::kFloat64);
    const LanguageModel model(options, {.size = 300}, /*causal=*/pre, store.root());
    for (const Parameter& p : store.parameters()) {
      if (p.var.shape().rank() == 1) {
        const double start = p.name.ends_with("bias") ? 0 : 1;
        for (const double v : p.var.value().to_vector<double>()) ASSERT_EQ(v, start) << p.name;
        continue;
      }
      // Three layers add two branches each to the residual stream of a pre-norm model.
      const double wanted = pre && ends_a_branch(p.name) ? 0.03 / std::sqrt(6.0) : 0.03;
      const auto n = static_cast<double>(p.var.value().numel());
      EXPECT_NEAR(deviation_of(p.var.value()) / wanted, 1, 4 / std::sqrt(2 * n)) << p.name;
    }
  }
}

// A decoder layer of an encoder-decoder has three branches.
TEST(LanguageModelParameters, InitializerRangeOfAnEncoderDecoder) {
  ModelOptions options = test::pre_norm_options();
  options.hidden_size = 64;
  options.intermediate_size = 128;
  options.encoder_layers = 1;
  options.decoder_layers = 3;
  options.initializer_range = 0.03;
  ParamStore store(7, DType::kFloat64);
  const EncoderDecoder model(options, {.source_size = 300, .target_size = 300}, store.root());
  for (const Parameter& p : store.parameters()) {
    if (p.var.shape().rank() == 1) continue;
    const double branches = !ends_a_branch(p.name) ? 1 : p.name.starts_with("encoder") ? 2 : 9;
    const auto n = static_cast<double>(p.var.value().numel());
    EXPECT_NEAR(deviation_of(p.var.value()) / (0.03 / std::sqrt(branches)), 1, 4 / std::sqrt(2 * n))
        << p.name;
  }
}

TEST(LanguageModelParameters, RotaryPositionsNeedHeadsOfEvenSize) {
  ModelOptions options = llama_options();
  options.hidden_size = 12;
  ParamStore store;
  EXPECT_EQ(
      test::error_of([&] { LanguageModel(options, {.size = 9}, true, store.root()); }),
      "[model] hidden_size must give heads of even size for rotary positions, got 12 and 4 heads.");
}

}  // namespace
}  // namespace tapestry
