// A step of AdamW from a batch: every tensor becomes what transformers and PyTorch make of it
// (tests/fixtures/huggingface.py).
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/interop/architectures/architectures.h"
#include "apps/interop/architectures/tensor_names.h"
#include "apps/interop/export_source.h"
#include "data/files/files.h"
#include "optim/optimizer.h"
#include "tests/apps/interop/huggingface_models.h"

namespace tapestry::interop {
namespace {

class HuggingFaceStep : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, HuggingFaceStep,
                         testing::Values("t5", "t5_gated_untied", "mt5", "m2m_100", "gemma2",
                                         "gemma2_full", "gpt_neox", "gpt_neox_serial", "opt",
                                         "qwen3_step", "llama_step", "distilbert_classes",
                                         "distilbert_tokens", "starcoder2", "electra_small",
                                         "electra_small_classes", "modernbert_tokens",
                                         "modernbert_mean_classes", "gptj", "phi", "phi3", "cohere",
                                         "cohere2", "gpt_bigcode"),
                         [](const auto& info) { return std::string(info.param); });

// The sum with weights cos(0), cos(1), ...
double weighed(const Tensor& tensor) {
  double sum = 0, place = 0;
  for (const double value : tensor.to_vector<double>()) sum += value * std::cos(place++);
  return sum;
}

CrossEntropy loss_of(const EncoderDecoder& model, const Json& input) {
  const Tensor ids = ids_of(input["ids"]);
  return model.loss({.source = ids,
                     .source_lengths = full_lengths(ids),
                     .target_in = ids_of(input["decoder_ids"]),
                     .target_out = ids_of(input["labels"])},
                    {});
}
CrossEntropy loss_of(const LanguageModel& model, const Json& input) {
  return model.loss({.ids = ids_of(input["ids"]), .targets = ids_of(input["labels"])}, {});
}

CrossEntropy loss_of(const SequenceClassifier& model, const Json& input) {
  const Tensor ids = ids_of(input["ids"]);
  const auto labels = input["labels"].get<std::vector<int32_t>>();
  return cross_entropy(model(ids, full_lengths(ids)), Tensor::from(labels, {std::ssize(labels)}));
}

CrossEntropy loss_of(const TokenClassifier& model, const Json& input) {
  const Tensor ids = ids_of(input["ids"]);
  return model.loss(model.hidden(ids, full_lengths(ids)), ids_of(input["labels"]), {});
}

// A step of the model in the fixture, and every tensor compared.
template <class Model>
void expect_step(ModelFiles files, const std::string& name) {
  const Json input = Json::parse(read_file(fixture(name) + "/logits.json"));
  files.config.dtype = DType::kFloat64;
  files.config.device = "cpu";
  for (double* dropout : {&files.config.model.dropout, &files.config.model.attention_dropout,
                          &files.config.model.activation_dropout}) {
    *dropout = 0;
  }
  const Loaded<Model> loaded(files);
  const ParamStore& store = loaded.bundle.store;
  NamedVars params;
  for (const Parameter& parameter : store.parameters()) {
    params.emplace_back(parameter.name, parameter.var);
  }
  OptimizerOptions options = optimizer_defaults(OptimizerType::kAdamW);
  options.betas = {0.9, 0.98};
  options.eps = 1e-4;
  options.weight_decay = 0.1;
  Optimizer optimizer(options, params);
  {
    Tape tape;
    const CrossEntropy loss = loss_of(loaded.bundle.model, input);
    EXPECT_NEAR(loss.loss.value().item(), input["loss"].get<double>(), 1e-10);
    tape.backward(loss.loss);
  }
  EXPECT_TRUE(optimizer.step(0.01).finite);
  const auto type = parsed_json(fixture(name) + "/config.json")["model_type"];
  const Architecture& architecture = *find_architecture(type.get<std::string>());
  const ModelFacts facts = facts_for(architecture, files.config, counts_of(files));
  size_t compared = 0;
  for (const TensorPair& pair : tensor_pairs(architecture, facts)) {
    for (size_t i = 0; i < pair.theirs.size(); ++i) {
      const Tensor theirs = to_theirs(pair, layout_of(facts), store.at(pair.ours).var.value(), i);
      const std::string& stored = pair.theirs[i];
      const bool same = input["step"].contains(stored);
      const std::string module = same ? stored : todays_spelling(architecture, stored);
      ASSERT_TRUE(input["step"].contains(module)) << module;
      EXPECT_NEAR(weighed(theirs), input["step"][module].get<double>(), 1e-9) << module;
      ++compared;
    }
  }
  EXPECT_EQ(compared, input["step"].size());
}

TEST_P(HuggingFaceStep, IsPyTorchs) {
  const std::string name = GetParam();
  const ModelFiles files = files_of(fixture(name));
  if (name.ends_with("_classes")) return expect_step<SequenceClassifier>(files, name);
  if (name.ends_with("_tokens")) return expect_step<TokenClassifier>(files, name);
  if (files.config.model_type != ModelType::kEncoderDecoder) {
    return expect_step<LanguageModel>(files, name);
  }
  expect_step<EncoderDecoder>(files, name);
}

}  // namespace
}  // namespace tapestry::interop
