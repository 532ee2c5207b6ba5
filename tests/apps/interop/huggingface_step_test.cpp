// A step of AdamW from a batch: every tensor becomes what transformers and PyTorch make of it
// (tests/fixtures/huggingface.py).
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/interop/architectures/architectures.h"
#include "apps/interop/export_source.h"
#include "data/files/files.h"
#include "optim/optimizer.h"
#include "tests/apps/interop/huggingface_models.h"

namespace tapestry::interop {
namespace {

class HuggingFaceStep : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, HuggingFaceStep,
                         testing::Values("t5", "t5_gated_untied", "mt5", "m2m_100"),
                         [](const auto& info) { return std::string(info.param); });

// The sum with weights cos(0), cos(1), ...
double weighed(const Tensor& tensor) {
  double sum = 0, place = 0;
  for (const double value : tensor.to_vector<double>()) sum += value * std::cos(place++);
  return sum;
}

TEST_P(HuggingFaceStep, IsPyTorchs) {
  const auto input = parsed_json(fixture(GetParam()) + "/logits.json");
  ModelFiles files = files_of(fixture(GetParam()));
  files.config.dtype = DType::kFloat64;
  files.config.device = "cpu";
  for (double* dropout : {&files.config.model.dropout, &files.config.model.attention_dropout,
                          &files.config.model.activation_dropout}) {
    *dropout = 0;
  }
  const Loaded<EncoderDecoder> loaded(files);
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
    const Tensor ids = ids_of(input["ids"]);
    const CrossEntropy loss = loaded.bundle.model.loss({.source = ids,
                                                        .source_lengths = full_lengths(ids),
                                                        .target_in = ids_of(input["decoder_ids"]),
                                                        .target_out = ids_of(input["labels"])},
                                                       {});
    EXPECT_NEAR(loss.loss.value().item(), input["loss"].get<double>(), 1e-10);
    tape.backward(loss.loss);
  }
  EXPECT_TRUE(optimizer.step(0.01).finite);
  const auto type = parsed_json(fixture(GetParam()) + "/config.json")["model_type"];
  const Architecture& architecture = *find_architecture(type.get<std::string>());
  const ModelFacts facts = facts_for(architecture, files.config, counts_of(files));
  size_t compared = 0;
  for (const TensorPair& pair : tensor_pairs(architecture, facts)) {
    for (size_t i = 0; i < pair.theirs.size(); ++i) {
      const Tensor theirs = to_theirs(pair, layout_of(facts), store.at(pair.ours).var.value(), i);
      ASSERT_TRUE(input["step"].contains(pair.theirs[i])) << pair.theirs[i];
      EXPECT_NEAR(weighed(theirs), input["step"][pair.theirs[i]].get<double>(), 1e-9)
          << pair.theirs[i];
      ++compared;
    }
  }
  EXPECT_EQ(compared, input["step"].size());
}

}  // namespace
}  // namespace tapestry::interop
