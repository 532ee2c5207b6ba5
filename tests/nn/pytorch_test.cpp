// Forward, loss and all gradients against PyTorch (tests/fixtures/encoder_decoder*.py).
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "nn/transformer.h"
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using test::distance;

Json read_fixture(const std::string& name) {
  const std::string path =
      std::string(TAPESTRY_SOURCE_DIR) + "/tests/fixtures/encoder_decoder_" + name + ".json";
  std::ifstream file(path);
  check(file.good(), "fixture", "cannot read ", path, '.');
  return Json::parse(file);
}

ModelOptions options_of(const Json& o) {
  static const std::map<std::string, Activation> activations = {
      {"relu", Activation::kRelu}, {"gelu", Activation::kGelu}, {"silu", Activation::kSilu}};
  ModelOptions options;
  options.hidden_size = o.at("hidden_size");
  options.intermediate_size = o.at("intermediate_size");
  options.num_attention_heads = o.at("heads");
  options.num_key_value_heads = o.value("kv_heads", 0);
  options.encoder_layers = o.at("layers");
  options.decoder_layers = o.at("layers");
  options.hidden_act = activations.at(o.at("activation"));
  options.norm = o.value("norm", "layernorm") == "rmsnorm" ? NormKind::kRms : NormKind::kLayer;
  options.norm_position = o.at("norm_position") == "pre" ? NormPosition::kPre : NormPosition::kPost;
  options.norm_eps = o.at("norm_eps");
  options.position_embedding = o.value("position_embedding", "sinusoidal") == "learned"
                                   ? PositionEmbedding::kLearned
                                   : PositionEmbedding::kSinusoidal;
  options.max_position_embeddings = o.value("positions", 16);
  options.tie_word_embeddings = o.at("tied");
  options.dropout = 0;
  return options;
}

Vocabulary vocabulary_of(const Json& o) {
  return {.source_size = o.value("source_vocab", o.at("vocab").get<int64_t>()),
          .target_size = o.at("vocab"),
          .shared = o.value("shared", true),
          .pad_id = o.at("pad_id")};
}

template <class T>
Tensor tensor_of(const Json& tensor) {
  const auto sizes = tensor.at("shape").get<std::vector<int64_t>>();
  return Tensor::from<T>(tensor.at("values").get<std::vector<T>>(),
                         Shape(sizes.data(), static_cast<int>(sizes.size())));
}

EncoderDecoder::Batch batch_of(const Json& fixture) {
  return {
      tensor_of<int32_t>(fixture.at("source")), tensor_of<int32_t>(fixture.at("source_lengths")),
      tensor_of<int32_t>(fixture.at("target_in")), tensor_of<int32_t>(fixture.at("target_out"))};
}

class PyTorch : public ::testing::TestWithParam<const char*> {
 protected:
  PyTorch() {
    for (const Parameter& p : store_.parameters()) {
      p.var.value().copy_from(in_fixture(p.name, p.var.shape(), "parameters"));
    }
  }

  // A parameter's values or gradient. Ours pack what the fixture writes one by one: qkv is the rows
  // of q, k and v, kv those of k and v.
  Tensor in_fixture(const std::string& name, const Shape& shape, const char* table) {
    std::vector<double> values;
    for (const std::string& part : parts_of(name)) {
      used_.insert(part);
      const auto one = fixture_.at(table).at(part).at("values").get<std::vector<double>>();
      values.insert(values.end(), one.begin(), one.end());
    }
    return Tensor::from<double>(values, shape);
  }

  static std::vector<std::string> parts_of(const std::string& name) {
    for (const std::string packed : {"qkv", "kv"}) {
      const size_t at = name.find('.' + packed + '.');
      if (at == std::string::npos) continue;
      std::vector<std::string> parts;
      for (const char letter : packed) {
        parts.push_back(name.substr(0, at + 1) + letter + name.substr(at + 1 + packed.size()));
      }
      return parts;
    }
    return {name};
  }

  const Json fixture_ = read_fixture(GetParam());
  ParamStore store_{1, DType::kFloat64};
  const EncoderDecoder model_{options_of(fixture_.at("options")),
                              vocabulary_of(fixture_.at("options")), store_.root()};
  const EncoderDecoder::Batch batch_ = batch_of(fixture_);
  const CrossEntropyOptions loss_options_{.label_smoothing =
                                              fixture_.at("options").at("label_smoothing")};
  std::set<std::string> used_;
};

TEST_P(PyTorch, EveryParameterOfTheFixtureIsUsed) {
  for (const auto& [name, _] : fixture_.at("parameters").items()) {
    EXPECT_TRUE(used_.contains(name)) << name;
  }
}

TEST_P(PyTorch, Forward) {
  const Var memory = model_.encode(batch_.source, batch_.source_lengths);
  const Var hidden = model_.decode(batch_.target_in, memory, batch_.source_lengths);
  const Var logits = model_.logits(hidden);
  EXPECT_LT(distance(memory.value(), tensor_of<double>(fixture_.at("memory"))), 1e-10);
  EXPECT_LT(distance(logits.value(), tensor_of<double>(fixture_.at("logits"))), 1e-10);
}

TEST_P(PyTorch, LossAndAllGradients) {
  Tape tape;
  const CrossEntropy loss = model_.loss(batch_, loss_options_);
  EXPECT_NEAR(loss.loss.value().item(), fixture_.at("loss").get<double>(), 1e-12);
  EXPECT_NEAR(loss.nll_sum / loss.tokens, fixture_.at("nll").get<double>(), 1e-12);
  tape.backward(loss.loss);
  for (const Parameter& p : store_.parameters()) {
    EXPECT_LT(distance(p.var.grad(), in_fixture(p.name, p.var.shape(), "gradients")), 1e-10)
        << p.name;
  }
}

// Logits of cached decoding are those that PyTorch gives under teacher forcing.
TEST_P(PyTorch, CachedDecoding) {
  const int64_t count = batch_.target_in.shape()[0], steps = batch_.target_in.shape()[1];
  const auto tokens = batch_.target_in.to_vector<int32_t>();
  const auto wanted = tensor_of<double>(fixture_.at("logits")).to_vector<double>();
  const int64_t classes = model_.vocabulary.target_size;
  EncoderDecoder::State state = model_.start(batch_.source, batch_.source_lengths);
  for (int64_t t = 0; t < steps; ++t) {
    std::vector<int32_t> column;
    for (int64_t b = 0; b < count; ++b) column.push_back(tokens[b * steps + t]);
    const auto logits =
        model_.step(Tensor::from<int32_t>(column, {count}), state).to_vector<double>();
    for (int64_t b = 0; b < count; ++b) {
      for (int64_t v = 0; v < classes; ++v) {
        ASSERT_NEAR(logits[b * classes + v], wanted[(b * steps + t) * classes + v], 1e-10);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PyTorch, ::testing::Values("post", "pre", "grouped"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tapestry
