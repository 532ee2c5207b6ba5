// A folder that does not fit: everything at once, with the nearest class.
#include "apps/interop/misfit_report.h"

#include <gmock/gmock.h>

#include "tests/apps/interop/huggingface_models.h"

namespace tapestry::interop {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string import_error(const BrokenFolder& folder) {
  try {
    import_folder(folder.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "";
}

TEST(MisfitReport, KeysTensorsAndTokenizerAreOneError) {
  const BrokenFolder folder("bert_classes");
  folder.set("hidden_act", "quick_gelu");
  folder.set("position_embedding_type", "relative_key");
  folder.rename([](const std::string& name) {
    return name == "bert.pooler.dense.weight" ? "bert.pooler.other.weight" : name;
  });
  EXPECT_THAT(import_error(folder),
              AllOf(HasSubstr("is no model of Tapestry's:\n  "),
                    HasSubstr("hidden_act is \"quick_gelu\", expected an activation"),
                    HasSubstr("position_embedding_type is \"relative_key\""),
                    HasSubstr("no tensor bert.pooler.dense.weight (16, 16)"),
                    HasSubstr("must have a tokenizer that Tapestry reads"), Not(HasSubstr(".."))));
}

TEST(MisfitReport, AnUnknownClassHasANearestOne) {
  const BrokenFolder folder("mistral");
  folder.set("model_type", "mixtral");
  folder.set("architectures", {"MixtralForCausalLM"});
  folder.set("rope_scaling", {{"rope_type", "su"}, {"factor", 2.0}});
  const size_t tensors = open_model_folder(folder.path()).tensors().size();
  EXPECT_THAT(import_error(folder),
              AllOf(HasSubstr("config.json has model_type \"mixtral\", expected one of gpt2, "),
                    HasSubstr(concat("the nearest class is MistralForCausalLM (mistral): ", tensors,
                                     " of the ", tensors, " tensors have a name there")),
                    HasSubstr("for a mistral rope_type \"su\"")));
  fs::rename(folder.path() + "/model.safetensors", folder.path() + "/pytorch_model.bin");
  EXPECT_THAT(import_error(folder),
              AllOf(HasSubstr("its weights are in pytorch_model.bin, expected safetensors"),
                    HasSubstr("the nearest class is MistralForCausalLM (mistral)")));
  folder.set("model_type", "whisper");
  EXPECT_THAT(import_error(folder), Not(HasSubstr("nearest")));
}

TEST(MisfitReport, AnUnknownHeadHasANearestClass) {
  const BrokenFolder folder("electra_tokens");
  folder.set("architectures", {"ElectraForMultipleChoice"});
  folder.set("position_embedding_type", "relative_key");
  EXPECT_THAT(import_error(folder),
              AllOf(HasSubstr("architectures names ElectraForMultipleChoice, Tapestry has "),
                    HasSubstr("; the nearest class is ElectraForMaskedLM (electra): "),
                    HasSubstr("position_embedding_type is \"relative_key\"")));
}

TEST(MisfitReport, WeightsInAnotherFormatAreNotTheOnlyReason) {
  const BrokenFolder folder("distilbert");
  fs::rename(folder.path() + "/model.safetensors", folder.path() + "/pytorch_model.bin");
  folder.set("sinusoidal_pos_embds", true);
  EXPECT_THAT(import_error(folder),
              AllOf(HasSubstr("has its weights in pytorch_model.bin, expected safetensors"),
                    HasSubstr("sinusoidal_pos_embds is true, Tapestry has false")));
}

}  // namespace
}  // namespace tapestry::interop
