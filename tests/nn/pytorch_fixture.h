// Fixtures of tests/fixtures, written by PyTorch: a model's options, batch, outputs, parameters and
// gradients.
#pragma once

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "nn/models/model_options.h"
#include "tests/autograd/support.h"
#include "tests/paths.h"

namespace tapestry::test {

using Json = nlohmann::json;

inline Json read_fixture(const std::string& name) {
  const std::string path = project_file("tests/fixtures/" + name + ".json");
  std::ifstream file(path);
  check(file.good(), "fixture", "cannot read ", path, '.');
  return Json::parse(file);
}

inline ModelOptions options_of(const Json& o) {
  static const std::map<std::string, Activation> activations = [] {
    std::map<std::string, Activation> result;
    for (const Activation f : kActivations) result.emplace(name_of(f), f);
    return result;
  }();
  static const std::map<std::string, PositionEmbedding> positions = {
      {"sinusoidal", PositionEmbedding::kSinusoidal},
      {"learned", PositionEmbedding::kLearned},
      {"rope", PositionEmbedding::kRope}};
  ModelOptions options;
  options.hidden_size = o.at("hidden_size");
  options.intermediate_size = o.value("intermediate_size", 0);
  options.num_attention_heads = o.value("heads", 1);
  options.num_key_value_heads = o.value("kv_heads", 0);
  options.encoder_layers = options.decoder_layers = options.num_hidden_layers = o.at("layers");
  options.hidden_act = {activations.at(o.value("activation", "relu")), o.value("gated", false)};
  options.norm = o.value("norm", "layernorm") == "rmsnorm" ? NormKind::kRms : NormKind::kLayer;
  options.norm_position =
      o.value("norm_position", "") == "pre" ? NormPosition::kPre : NormPosition::kPost;
  options.norm_eps = o.value("norm_eps", options.norm_eps);
  options.bias = o.value("bias", true);
  options.position_embedding = positions.at(o.value("position_embedding", "sinusoidal"));
  options.max_position_embeddings = o.value("positions", 16);
  options.rope_theta = o.value("rope_theta", 10000.0);
  options.type_vocab_size = o.value("type_vocab_size", 0);
  options.embedding_norm = o.value("embedding_norm", false);
  options.tie_word_embeddings = o.at("tied");
  options.scale_embeddings = o.value("scale_embeddings", true);
  options.dropout = 0;
  return options;
}

template <class T>
Tensor tensor_of(const Json& tensor) {
  const auto sizes = tensor.at("shape").get<std::vector<int64_t>>();
  return Tensor::from<T>(tensor.at("values").get<std::vector<T>>(),
                         Shape(sizes.data(), static_cast<int>(sizes.size())));
}

/// Tests of a model against the fixture named by the parameter. The model is built on store_.
class PyTorchFixture : public ::testing::TestWithParam<const char*> {
 protected:
  /// Gives the model the fixture's parameters, and expects that it has all of them.
  void load_parameters() {
    for (const Parameter& p : store_.parameters()) {
      p.var.value().copy_from(in_fixture(p, "parameters"));
    }
    for (const auto& [name, _] : fixture_.at("parameters").items()) {
      EXPECT_TRUE(used_.contains(name)) << name;
    }
  }

  void expect_gradients() {
    for (const Parameter& p : store_.parameters()) {
      EXPECT_LT(distance(p.var.grad(), in_fixture(p, "gradients")), 1e-10) << p.name;
    }
  }

  Tensor doubles_of(const char* key) const { return tensor_of<double>(fixture_.at(key)); }
  Tensor ints_of(const char* key) const { return tensor_of<int32_t>(fixture_.at(key)); }

  const Json fixture_ = read_fixture(GetParam());
  const Json& options_ = fixture_.at("options");
  const CrossEntropyOptions loss_options_{.label_smoothing = options_.at("label_smoothing")};
  ParamStore store_{1, DType::kFloat64};

 private:
  Tensor in_fixture(const Parameter& parameter, const char* table) {
    std::vector<double> values;
    for (const std::string& part : parts_of(parameter.name)) {
      used_.insert(part);
      const auto one = fixture_.at(table).at(part).at("values").get<std::vector<double>>();
      values.insert(values.end(), one.begin(), one.end());
    }
    return Tensor::from<double>(values, parameter.var.shape());
  }

  // Our parameters pack those of the fixture: the rows of qkv are those of q, k and v.
  std::vector<std::string> parts_of(const std::string& name) const {
    std::vector<std::pair<std::string, std::vector<std::string>>> packings = {
        {"qkv", {"q", "k", "v"}}, {"kv", {"k", "v"}}};
    if (options_.value("gated", false)) packings.push_back({"up", {"gate", "up"}});
    for (const auto& [packed, names] : packings) {
      const size_t at = name.find('.' + packed + '.');
      if (at == std::string::npos) continue;
      std::vector<std::string> parts;
      for (const std::string& part : names) {
        parts.push_back(name.substr(0, at + 1) + part + name.substr(at + 1 + packed.size()));
      }
      return parts;
    }
    return {name};
  }

  std::set<std::string> used_;
};

}  // namespace tapestry::test
