// Which class of llama.cpp's a model becomes, and what its engine computes for that class.
#include <gmock/gmock.h>

#include <array>
#include <bit>
#include <cmath>

#include "apps/checkpoint/file_names.h"
#include "apps/interop/gguf/gguf.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/interop/gguf/gguf_vocabulary.h"
#include "tests/apps/interop/huggingface_models.h"
#include "tests/data/files/files.h"

namespace tapestry::interop {
namespace {

using testing::HasSubstr;

class GgufClasses : public testing::Test {
 protected:
  static std::string written(const ModelFiles& model) {
    return bytes_of(gguf_files(model).at("model.gguf"));
  }
  std::string keep(const std::string& bytes) const { return folder_.write("model.gguf", bytes); }
  std::string class_of(const ModelFiles& model) const {
    return *GgufFile(open_source(keep(written(model)))).text(kGgufClassKey);
  }
  static std::string refusal_of(const ModelFiles& model) {
    try {
      written(model);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "";
  }
  // Of a file with these bytes.
  std::string import_error(const std::string& bytes) const {
    try {
      files_of(keep(bytes));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return error.what();
    }
    return "";
  }

  TempFolder folder_;
  const std::string path_ = folder_.path("model.gguf");
};

// Another text of the same length.
std::string changed(std::string bytes, const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return bytes.replace(at, from.size(), to);
}

std::string float_bytes(float value) {
  const auto bits = std::bit_cast<std::array<char, sizeof value>>(value);
  return {bits.begin(), bits.end()};
}

// A real key behind its type.
std::string real_pair(const std::string& key, float value) {
  return key + std::string("\6\0\0\0", 4) + float_bytes(value);
}

ModelFiles with_scaling(const std::string& name, const RopeScaling& scaling) {
  ModelFiles model = files_of(fixture(name));
  model.config.model.rope_scaling = scaling;
  return model;
}
RopeScaling yarn() {
  RopeScaling scaling{RopeScalingType::kYarn, 4};
  scaling.original_max_position_embeddings = 16;
  return scaling;
}

// Their engine has no biases of attention, and no classifier beside the table.
TEST_F(GgufClasses, CommandRHasNoBiases) {
  EXPECT_THAT(refusal_of(files_of(fixture("cohere"))),
              HasSubstr("nearest is command-r:\n  model.attention_bias has no place in cohere"));
  const BrokenFolder plain("cohere");
  plain.set("attention_bias", false);
  plain.rename([](const std::string& name) { return name.ends_with(".bias") ? "" : name; });
  const ModelFiles model = files_of(plain.path());
  const std::string bytes = written(model);
  const ModelFiles back = files_of(keep(bytes));
  EXPECT_EQ(GgufFile(open_source(path_)).text(kGgufClassKey), "command-r");
  EXPECT_EQ(back.config.model.logit_scale, 0.25);
  const auto input = parsed_json(fixture("cohere") + "/logits.json");
  EXPECT_LT(largest_difference(logits_of(back, input), logits_of(model, input)), 1e-12);
  EXPECT_TRUE(written(back) == bytes);
  EXPECT_THAT(import_error(changed(bytes, "logit_scale", "logit_xcale")),
              HasSubstr("command-r.logit_scale is missing"));
  ModelFiles large = model;
  large.config.model.num_hidden_layers = 64;
  EXPECT_THAT(refusal_of(large), HasSubstr("norms the heads of 64 layers and more"));
}

TEST_F(GgufClasses, Cohere2HasItsWindows) {
  EXPECT_THAT(refusal_of(files_of(fixture("cohere2"))),
              HasSubstr("layer 1 is nope, their program has window, and nope in every 4th layer"));
}

// Their converter copies these tensors: the pairs that are turned together lie in both alike.
TEST_F(GgufClasses, TensorsAreThoseOfTheFolder) {
  struct Row {
    const char *model, *name, *in_folder;
  };
  for (const Row& row : {
           Row{"phi", "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight"},
           Row{"phi", "blk.1.attn_k.bias", "model.layers.1.self_attn.k_proj.bias"},
           Row{"phi", "blk.0.ffn_up.weight", "model.layers.0.mlp.fc1.weight"},
           Row{"phi", "output.bias", "lm_head.bias"},
           Row{"phi3_longrope", "blk.0.attn_qkv.weight",
               "model.layers.0.self_attn.qkv_proj.weight"},
           Row{"phi3_longrope", "blk.1.ffn_up.weight", "model.layers.1.mlp.gate_up_proj.weight"},
           Row{"cohere2", "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"},
           Row{"cohere2", "blk.1.attn_k.weight", "model.layers.1.self_attn.k_proj.weight"},
           Row{"cohere2", "blk.1.ffn_gate.weight", "model.layers.1.mlp.gate_proj.weight"},
       }) {
    ModelFiles model = files_of(fixture(row.model));
    if (!model.config.model.layer_types.empty()) model.config.model.layer_types = {};
    const GgufFile file(open_source(keep(written(model))));
    const GgufTensor* const ours = file.find(row.name);
    ASSERT_NE(ours, nullptr) << row.name;
    const TensorReader folder = open_model_folder(fixture(row.model));
    const Tensor theirs = Tensor::empty(ours->shape, DType::kFloat32);
    folder.read(row.in_folder, theirs);
    EXPECT_EQ(file.read(*ours).to_vector<float>(), theirs.to_vector<float>()) << row.in_folder;
  }
}

// A Phi-3 without a part that rotates could be a llama; it stays what it was.
TEST_F(GgufClasses, AModelGoesHomeAsItCame) {
  ModelFiles model = files_of(fixture("phi3"));
  EXPECT_THAT(refusal_of(model), HasSubstr("model.attention_window: 4"));
  model.config.model.attention_window = model.config.model.max_position_embeddings;
  EXPECT_EQ(class_of(model), "phi3");  // one that leaves nothing out
  model.config.model.attention_window = 0;
  EXPECT_EQ(class_of(model), "llama");
  model.tokenizers.came_with[kConfigFile] = R"({"model_type": "phi3"})";
  EXPECT_EQ(class_of(model), "phi3");
  model.tokenizers.came_with = {{kGgufGeneralFile, R"({"general.architecture": "phi3"})"}};
  const std::string bytes = written(model);
  EXPECT_EQ(class_of(model), "phi3");
  model.config.model.rope_scaling = yarn();  // no longer a Phi-3
  EXPECT_EQ(class_of(model), "llama");
  ModelFiles back = files_of(keep(bytes));
  back.tokenizers.came_with = model.tokenizers.came_with;
  EXPECT_TRUE(written(back) == bytes);
}

// Only Llama's classes read factors of frequencies.
TEST_F(GgufClasses, Llama3ScalingIsOnlyLlamas) {
  const RopeScaling llama3 = files_of(fixture("llama_llama3")).config.model.rope_scaling;
  EXPECT_THAT(refusal_of(with_scaling("qwen2", llama3)),
              HasSubstr("nearest is qwen2:\n  model.rope_scaling.type: llama3, which their program "
                        "does not compute for qwen2"));
  std::string bytes = written(files_of(fixture("llama_llama3")));
  EXPECT_EQ(import_error(bytes), "");
  for (size_t at = bytes.find("llama"); at != std::string::npos; at = bytes.find("llama", at)) {
    bytes.replace(at, 5, "qwen2");
  }
  EXPECT_THAT(import_error(bytes), HasSubstr("rope_freqs.weight, which their program does not "
                                             "read for qwen2"));
}

TEST_F(GgufClasses, YarnHasTheNumbersOfTheirEngine) {
  EXPECT_THAT(refusal_of(files_of(fixture("llama_yarn"))),
              HasSubstr("model.rope_scaling.beta_fast: 2, their program computes with 32"));
  RopeScaling scaling = yarn();
  scaling.truncate = false;
  EXPECT_THAT(refusal_of(with_scaling("qwen2", scaling)),
              HasSubstr("model.rope_scaling.truncate: false"));
  // The usual factor of attention needs no key, another one is a part of it.
  scaling = yarn();
  scaling.attention_factor = 0.1 * std::log(4.0) + 1;
  const std::string key = "qwen2.rope.scaling.attn_factor";
  EXPECT_EQ(written(with_scaling("qwen2", scaling)).find(key), std::string::npos);
  scaling.attention_factor *= 1.5;
  const std::string bytes = written(with_scaling("qwen2", scaling));
  EXPECT_NE(bytes.find(real_pair(key, 1.5)), std::string::npos);
  const RopeScaling back = files_of(keep(bytes)).config.model.rope_scaling;
  EXPECT_DOUBLE_EQ(back.attention_factor, scaling.attention_factor);
  EXPECT_EQ(back.original_max_position_embeddings, 16);
}

// Keys of which their engine makes nothing, or something else.
TEST_F(GgufClasses, FilesMeanWhatTheirEngineComputes) {
  RopeScaling scaling = yarn();
  scaling.attention_factor = 3;
  const std::string bytes = written(with_scaling("llama", scaling));
  const auto as = [&](const std::string& from, const std::string& to) {
    return import_error(changed(bytes, from, to));
  };
  EXPECT_EQ(import_error(bytes), "");
  EXPECT_THAT(as("yarn", "none"), HasSubstr("llama.rope.scaling.attn_factor is 2.63"));
  EXPECT_THAT(as("yarn", "ntk2"), HasSubstr("llama.rope.scaling.type is 'ntk2', expected one of "
                                            "none, linear, yarn, longrope"));
  EXPECT_THAT(as("llama.rope.scaling.attn_factor", "llama.rope.scaling.attn_fictor"),
              HasSubstr("llama.rope.scaling.attn_fictor is 2.63"));
  EXPECT_THAT(as("llama.rope.scaling.factor", "llama.rope.scaling.fictor"),
              HasSubstr("no place for it"));
  const std::string stretched = written(files_of(fixture("llama_longrope")));
  EXPECT_THAT(import_error(changed(stretched, "longrope", "longrape")),
              HasSubstr("beside llama.rope.scaling.type 'longrape', expected longrope"));
  EXPECT_THAT(import_error(changed(stretched, "rope_factors_short", "rope_factors_shirt")),
              HasSubstr("no tensor rope_factors_short.weight"));
}

// Phi-3's converter writes no type, and a window that their engine does not use.
TEST_F(GgufClasses, Phi3sFactorsNeedNoType) {
  const std::string bytes = written(files_of(fixture("phi3_longrope")));
  const RopeScaling scaling = files_of(keep(bytes)).config.model.rope_scaling;
  EXPECT_EQ(scaling.long_factor, (std::vector<double>{1.5, 2, 8}));
  const std::string other = changed(bytes, "phi3.rope.scaling.type", "phi3.rope.scaling.tipe");
  EXPECT_THAT(import_error(other), HasSubstr("phi3.rope.scaling.tipe is 'longrope'"));
  EXPECT_THAT(import_error(other), testing::Not(HasSubstr("expected longrope")));
}

}  // namespace
}  // namespace tapestry::interop
