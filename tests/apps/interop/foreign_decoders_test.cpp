// What config.json and its neighbours say of a decoder is taken, told or refused.
#include <gmock/gmock.h>

#include "apps/interop/foreign_config.h"
#include "apps/interop/foreign_generation.h"
#include "apps/interop/huggingface_export.h"
#include "tests/apps/interop/huggingface_models.h"

namespace tapestry::interop {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Record = nlohmann::json;

ModelOptions model_of(const BrokenFolder& folder) { return files_of(folder.path()).config.model; }

// rope_scaling takes the place of rope_parameters, and what neither says is the class's.
TEST(ForeignDecoders, PositionsRotateAsTheClassReadsThem) {
  const BrokenFolder llama("llama");
  llama.set("rope_scaling", {{"rope_type", "linear"}, {"factor", 3.0}, {"rope_theta", 77.0}});
  EXPECT_EQ(model_of(llama).rope_theta, 77);
  EXPECT_EQ(model_of(llama).rope_scaling.factor, 3);
  llama.set("rope_scaling", {{"rope_type", "linear"}, {"factor", -2.0}});
  EXPECT_THAT(llama.error(), HasSubstr("factor of rope_parameters is -2.0, expected a number above "
                                       "0"));
  llama.set("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}, {"attention_factor", 0.0}});
  EXPECT_THAT(llama.error(), HasSubstr("attention_factor is 0.0, expected a number above 0"));
  llama.set("rope_scaling", {{"rope_type", "llama3"},
                             {"factor", 2.0},
                             {"low_freq_factor", nullptr},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 8}});
  EXPECT_THAT(llama.error(), HasSubstr("rope_parameters lacks low_freq_factor"));
  const BrokenFolder phi("phi");
  phi.set("rope_scaling",
          {{"rope_type", "default"}, {"rope_theta", 50.0}, {"partial_rotary_factor", 1.0}});
  EXPECT_EQ(model_of(phi).partial_rotary_factor, 1);
  const BrokenFolder smollm("smollm3");
  smollm.set("rope_parameters", {{"rope_type", "default"}});
  smollm.set("rope_theta", nullptr);
  EXPECT_EQ(model_of(smollm).rope_theta, 2e6);
}

TEST(ForeignDecoders, GemmasLayersRotateByTheirKind) {
  const BrokenFolder gemma("gemma3");
  gemma.set("rope_theta", nullptr);
  gemma.set("rope_parameters",
            {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 50.0}}}});
  EXPECT_EQ(model_of(gemma).rope_theta, 1e6);
  EXPECT_EQ(model_of(gemma).window_rope_theta, 50);
  gemma.set("rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}});
  EXPECT_EQ(model_of(gemma).rope_scaling.factor, 8);
  gemma.set("rope_scaling", nullptr);
  gemma.set("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 50.0}});
  EXPECT_THAT(gemma.error(), HasSubstr("rope_parameters has rope_theta, expected full_attention "
                                       "and sliding_attention"));
}

TEST(ForeignDecoders, WhatNoneOfOursComputesIsRefused) {
  for (const char* name : {"llama", "qwen3", "gemma2", "gpt2", "phi3"}) {
    const BrokenFolder folder(name);
    folder.set("is_causal", false);
    EXPECT_THAT(folder.error(), HasSubstr("is_causal is false, Tapestry has true")) << name;
  }
  const BrokenFolder gemma("gemma3");
  gemma.set("attn_logit_softcapping", 3.0);
  EXPECT_THAT(gemma.error(), HasSubstr("attn_logit_softcapping is 3.0: the class has it, and "
                                       "computes without"));
  const BrokenFolder llama("llama");
  for (const Record& types : {Record::array({"full_attention"}), Record::array({1, 2})}) {
    llama.set("layer_types", types);
    EXPECT_THAT(llama.error(), HasSubstr("llama has full_attention in each of its layers"));
  }
  llama.set("layer_types", {"full_attention", "full_attention"});
  EXPECT_EQ(llama.error(), "");
}

// As their class ministral, which such a config is there.
TEST(ForeignDecoders, LayersOfMistralMayDiffer) {
  const BrokenFolder mistral("mistral");
  mistral.set("layer_types", {"full_attention", "sliding_attention"});
  EXPECT_THAT(model_of(mistral).layer_types, ElementsAre(LayerType::kFull, LayerType::kWindow));
  mistral.set("layer_types", {"full_attention", "chunked_attention"});
  EXPECT_THAT(mistral.error(), HasSubstr("layer_types has \"chunked_attention\""));
  mistral.set("layer_types", {"full_attention", "sliding_attention"});
  EXPECT_THAT(misfits(*find_architecture("mistral"), files_of(mistral.path()).config),
              Contains(HasSubstr("model.layer_types has no place in mistral")));
  const Config smollm = files_of(fixture("smollm3")).config;
  for (const char* name : {"qwen3", "mistral", "gemma2"}) {
    EXPECT_THAT(misfits(*find_architecture(name), smollm),
                Contains(HasSubstr("model.layer_types: nope has no place in ")))
        << name;
  }
}

TEST(ForeignDecoders, GemmaSaysGeluAndMeansItsApproximation) {
  const BrokenFolder gemma("gemma");
  gemma.set("hidden_act", "gelu");
  EXPECT_STREQ(name_of(model_of(gemma).hidden_act), "geglu_tanh");
  gemma.set("hidden_act", "gelu_python");
  EXPECT_STREQ(name_of(model_of(gemma).hidden_act), "geglu");
  const auto files = huggingface_files(files_of(gemma.path()), "gemma");
  EXPECT_EQ(Record::parse(bytes_of(files.at("config.json")))["hidden_act"], "gelu_python");
}

// Their dataclasses take no other type.
TEST(ForeignDecoders, AScalarOfQueriesIsAnInteger) {
  ModelFiles model = files_of(fixture("gemma2"));
  const auto scalar = [&] {
    const auto files = huggingface_files(model, "gemma2");
    return Record::parse(bytes_of(files.at("config.json")))["query_pre_attn_scalar"];
  };
  EXPECT_TRUE(scalar().is_number_integer()) << scalar();
  model.config.model.attention_scale = 0.3;
  EXPECT_THAT(misfits(*find_architecture("gemma2"), model.config),
              Contains(HasSubstr("model.attention_scale: 0.3 has no place in query_pre_attn")));
}

TEST(ForeignDecoders, HeadsOfKeysThatAreNullAreThoseOfQueries) {
  Reasons reasons;
  const Json theirs = {{"num_attention_heads", 6}, {"num_key_value_heads", nullptr}};
  EXPECT_EQ(our_model(*find_architecture("qwen2"), theirs, reasons)["num_key_value_heads"], 0);
  EXPECT_THAT(reasons, IsEmpty());
}

TEST(ForeignDecoders, SearchOptionsOutOfBoundsAreTold) {
  Reasons notes;
  const Json ours = our_generation({{"top_p", 0.0},
                                    {"do_sample", true},
                                    {"min_p", 1.5},
                                    {"num_beams", 0},
                                    {"repetition_penalty", -1.0},
                                    {"max_length", 6},
                                    {"top_h", 0.5},
                                    {"forced_bos_token_id", 3}},
                                   ModelType::kDecoder, notes);
  EXPECT_EQ(ours["do_sample"], false);  // nothing but the most probable token is left to draw
  EXPECT_EQ(ours["min_p"], 0.0);
  EXPECT_EQ(ours["num_beams"], 1);
  for (const char* note :
       {"min_p is 1.5, it becomes 0.0.", "num_beams is 0, it becomes 1.",
        "repetition_penalty is -1.0, it becomes 1.0.", "max_length is 6, which counts the prompt",
        "top_h is 0.5, which searches here do not know.",
        "forced_bos_token_id is 3, which searches here do not know."}) {
    EXPECT_THAT(notes, Contains(HasSubstr(note)));
  }
  Reasons none;
  our_generation({{"max_length", 20}, {"min_length", 0}}, ModelType::kDecoder, none);
  EXPECT_THAT(none, IsEmpty());
}

// The error is about a file that the user has.
TEST(ForeignDecoders, ErrorsHaveTheirKeys) {
  const BrokenFolder llama("llama");
  llama.set("rms_norm_eps", -1.0);
  EXPECT_THAT(llama.error(), AllOf(HasSubstr("'rms_norm_eps' must be"), HasSubstr("got -1"),
                                   Not(HasSubstr(":1:"))));
}

TEST(ForeignDecoders, NumbersThatAreNoneAreFoundByTheImport) {
  const BrokenFolder llama("llama");
  llama.add_like("model.norm.weight", "model.norm.weight", std::nan(""));
  const ImportedModel model = import_model(llama.path());
  const auto norm = std::ranges::find(model.tensors, "norm.weight", &TensorToWrite::name);
  ASSERT_NE(norm, model.tensors.end());
  try {
    norm->content();
    FAIL() << "a checkpoint of it cannot be opened";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.norm.weight in "),
                                    HasSubstr("must hold finite numbers, got nan at element 0")));
  }
}

TEST(ForeignDecoders, APointerOfGitIsNoModel) {
  const BrokenFolder llama("llama");
  write_file(llama.path() + "/model.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 100\n");
  EXPECT_THAT(llama.error(),
              HasSubstr("it is the pointer that Git keeps in place of a large file"));
}

}  // namespace
}  // namespace tapestry::interop
