// Models made by Hugging Face's transformers (tests/fixtures/huggingface.py): their logits in our
// models, and their tensors after an import and an export.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/interop/architectures/architectures.h"
#include "apps/interop/huggingface_export.h"
#include "apps/interop/huggingface_import.h"
#include "data/files/files.h"
#include "tests/apps/interop/huggingface_models.h"
#include "tests/data/files/files.h"

namespace tapestry::interop {
namespace {

using testing::HasSubstr;

struct Case {
  const char* name;
  const char* architecture;
  double tolerance = 1e-10;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class HuggingFace : public testing::TestWithParam<Case> {};

// llama's norms, softmax and angles are float32 in transformers whatever the model's type; where
// the fixture has a step of AdamW they were made float64.
INSTANTIATE_TEST_SUITE_P(
    Models, HuggingFace,
    testing::Values(
        Case{"gpt2", "gpt2"}, Case{"gpt2_untied", "gpt2"}, Case{"llama", "llama", 1e-5},
        Case{"llama_tied_bias", "llama", 1e-5}, Case{"llama_linear", "llama", 1e-5},
        Case{"llama_llama3", "llama", 1e-5}, Case{"mistral", "mistral", 1e-5},
        Case{"llama_yarn", "llama", 1e-5}, Case{"llama_longrope", "llama", 1e-5},
        Case{"llama_dynamic", "llama", 1e-5}, Case{"gemma2", "gemma2"},
        Case{"gemma2_full", "gemma2"}, Case{"gpt_neox", "gpt_neox"},
        Case{"gpt_neox_serial", "gpt_neox"}, Case{"opt", "opt"}, Case{"starcoder2", "starcoder2"},
        Case{"gptj", "gptj"}, Case{"gptj_whole", "gptj"}, Case{"phi", "phi"}, Case{"phi3", "phi3"},
        Case{"phi3_longrope", "phi3", 1e-5}, Case{"cohere", "cohere"}, Case{"cohere2", "cohere2"},
        Case{"gpt_bigcode", "gpt_bigcode"}, Case{"opt_post", "opt"}, Case{"llama_step", "llama"},
        Case{"qwen3_step", "qwen3"}, Case{"gemma", "gemma", 1e-5},
        Case{"gemma3", "gemma3_text", 1e-5}, Case{"olmo2", "olmo2", 1e-5},
        Case{"smollm3", "smollm3", 1e-5}, Case{"qwen2", "qwen2", 1e-5},
        Case{"qwen2_windows", "qwen2", 1e-5}, Case{"qwen3", "qwen3", 1e-5},
        Case{"qwen3_bias", "qwen3", 1e-5}, Case{"bert", "bert"}, Case{"bert_untied", "bert"},
        Case{"bert_classes", "bert"}, Case{"bert_questions", "bert"}, Case{"roberta", "roberta"},
        Case{"roberta_classes", "roberta"}, Case{"roberta_questions", "roberta"},
        Case{"bert_rating", "bert"}, Case{"roberta_several", "roberta"},
        Case{"bert_tokens", "bert"}, Case{"roberta_tokens", "roberta"}, Case{"electra", "electra"},
        Case{"electra_classes", "electra"}, Case{"electra_tokens", "electra"},
        Case{"electra_questions", "electra"}, Case{"distilbert", "distilbert"},
        Case{"distilbert_classes", "distilbert"}, Case{"distilbert_tokens", "distilbert"},
        Case{"distilbert_questions", "distilbert"}, Case{"modernbert", "modernbert", 1e-5},
        Case{"modernbert_classes", "modernbert", 1e-5}, Case{"modernbert_tokens", "modernbert"},
        Case{"modernbert_questions", "modernbert", 1e-5},
        Case{"modernbert_mean_classes", "modernbert"}, Case{"electra_small", "electra"},
        Case{"electra_small_classes", "electra"}, Case{"electra_small_untied", "electra"},
        Case{"modernbert_untied", "modernbert", 1e-5}, Case{"deit", "deit"},
        Case{"xlm_roberta", "xlm-roberta"}, Case{"roberta_camembert", "camembert"},
        Case{"marian", "marian"}, Case{"marian_separate", "marian"}, Case{"pegasus", "pegasus"},
        Case{"bart", "bart"}, Case{"mbart", "mbart"}, Case{"m2m_100", "m2m_100"},
        Case{"m2m_100_unscaled", "m2m_100"}, Case{"t5", "t5"}, Case{"t5_gated_untied", "t5"},
        Case{"t5_gated_tied", "t5"}, Case{"mt5", "mt5"}, Case{"mt5_untied", "mt5"},
        Case{"vit", "vit"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(HuggingFace, LogitsAreTransformers) {
  const auto input = nlohmann::json::parse(read_file(fixture(GetParam().name) + "/logits.json"));
  const Tensor expected = tensor_of(input["logits"]);
  Tensor logits = logits_of(files_of(fixture(GetParam().name)), input);
  if (std::string_view(GetParam().name).ends_with("_questions")) {
    // Ours has no bias: it is the same for all places of a text.
    const Tensor bias = Tensor::empty({2}, DType::kFloat32);
    const TensorReader reader = open_model_folder(fixture(GetParam().name));
    const bool modern = GetParam().architecture == std::string("modernbert");
    reader.read(modern ? "classifier.bias" : "qa_outputs.bias", bias);
    const Tensor columns = bias.to(DType::kFloat64).reshape({2, 1, 1});
    logits = add(Var(logits), Var(columns)).value();
  }
  EXPECT_LT(largest_difference(logits, expected), GetParam().tolerance);
}

TEST_P(HuggingFace, ExportGivesTheFileBack) {
  const std::string folder = fixture(GetParam().name);
  CheckpointContent files = huggingface_files(files_of(folder), GetParam().architecture);
  const TensorReader before = open_model_folder(folder);
  const TensorReader after(source_of(bytes_of(files["model.safetensors"]), "exported"));
  for (const StoredTensor& tensor : after.tensors()) {
    std::string name = tensor.name;
    const StoredTensor* found = before.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->shape, tensor.shape) << name;
    if (name.ends_with("embed_positions.weight") &&
        GetParam().architecture == std::string("pegasus")) {
      continue;  // a table of sinusoids; the import compares it
    }
    const bool of_spans = std::string_view(GetParam().name).ends_with("_questions");
    const bool unread = name == "qa_outputs.bias" || (of_spans && name == "classifier.bias");
    if (unread) continue;  // comes back beside a tokenizer (ForeignMeaning)
    // Two rows that no token reads come back as zeros.
    const bool drops = (name.ends_with("embed_positions.weight") ||
                        name == "roberta.embeddings.position_embeddings.weight");
    const size_t skipped = drops ? 2 * sizeof(float) * static_cast<size_t>(tensor.shape[1]) : 0;
    EXPECT_TRUE(values_of(before, *found).substr(skipped) ==
                values_of(after, tensor).substr(skipped))
        << name;
  }
  EXPECT_EQ(before.tensors().size(), after.tensors().size());
}

TEST_P(HuggingFace, ExportedConfigIsTheirs) {
  const std::string folder = fixture(GetParam().name);
  CheckpointContent files = huggingface_files(files_of(folder), GetParam().architecture);
  const auto before = nlohmann::json::parse(read_file(folder + "/config.json"));
  const auto after = nlohmann::json::parse(bytes_of(files["config.json"]));
  // The tokenizer of files_of() has its own ids, which are not those of every folder.
  const bool same_ids = before.value("eos_token_id", 3) == 3;
  for (const auto& [key, value] : after.items()) {
    if (!before.contains(key) || before[key].is_null()) continue;
    if (!same_ids && key.ends_with("token_id")) continue;
    // Of T5 it says whether logits are scaled; the file says whether there is a classifier.
    if (key == "tie_word_embeddings" && before["model_type"].get<std::string>().ends_with("t5")) {
      continue;
    }
    if (key == "pad_token_id" || key == "bos_token_id" || key == "rope_parameters" ||
        key == "activation_function" || key == "hidden_act" || key == "label2id")
      continue;
    if (value.is_number()) {
      EXPECT_NEAR(before[key].get<double>(), value.get<double>(), 1e-12) << key;
    } else {
      EXPECT_EQ(before[key], value) << key;
    }
  }
}

// What their classes take where a key is absent.
TEST(HuggingFaceDefaults, AreThoseOfTheClasses) {
  const auto all = nlohmann::json::parse(read_file(fixture("defaults.json")));
  for (const Architecture* architecture : architectures()) {
    const auto& defaults = all.at(architecture->name);
    for (const KeyRow& row : architecture->keys) {
      const auto fallback = nlohmann::json::parse(row.fallback);
      if (fallback.is_null()) continue;
      ASSERT_TRUE(defaults.contains(row.theirs)) << architecture->name << ' ' << row.theirs;
      EXPECT_EQ(defaults[row.theirs], fallback) << architecture->name << ' ' << row.theirs;
    }
  }
}

TEST(HuggingFaceImport, SaysEverythingThatDoesNotFit) {
  const BrokenFolder folder("gpt2");
  folder.set("scale_attn_weights", false);
  folder.set("activation_function", "quick_gelu");
  EXPECT_THAT(folder.error(), HasSubstr("scale_attn_weights is false, Tapestry has true"));
  EXPECT_THAT(folder.error(), HasSubstr("activation_function is \"quick_gelu\""));
}

TEST(HuggingFaceImport, NamesTensorsThatAreMissingWrongOrUnknown) {
  const BrokenFolder folder("gpt2");
  folder.rename([](const std::string& name) {
    if (name == "transformer.h.1.ln_2.weight") return std::string();
    if (name == "transformer.ln_f.bias") return std::string("transformer.ln_g.bias");
    return name;
  });
  folder.set("n_inner", 20);
  const std::string error = folder.error();
  EXPECT_THAT(error, HasSubstr("no tensor transformer.h.1.ln_2.weight (16)"));
  EXPECT_THAT(error, HasSubstr("no tensor transformer.ln_f.bias (16)"));
  EXPECT_THAT(error, HasSubstr("tensor transformer.ln_g.bias has no place in Tapestry"));
  EXPECT_THAT(error,
              HasSubstr("transformer.h.0.mlp.c_fc.weight is float32 (16, 64), expected (16, 20)"));
}

// One clear error for each way in which a file can be broken.
TEST(HuggingFaceImport, NamesAFileThatIsBroken) {
  const BrokenFolder folder("gpt2");
  const std::string whole = read_file(folder.path() + "/model.safetensors");
  const auto with = [&](const std::string& bytes) {
    write_file(folder.path() + "/model.safetensors", bytes);
    return folder.error();
  };
  EXPECT_THAT(with(whole.substr(0, whole.size() - 100)), HasSubstr("model.safetensors"));
  EXPECT_THAT(with(whole.substr(0, 4)), HasSubstr("model.safetensors"));
  EXPECT_THAT(with("<html>not found</html>"), HasSubstr("model.safetensors"));
  EXPECT_EQ(with(whole), "");
  write_file(folder.path() + "/config.json", "{\"model_type\": ");
  EXPECT_THAT(folder.error(), HasSubstr("config.json:1: is no JSON."));
}

TEST(HuggingFaceImport, NamesAShardThatIsBroken) {
  const BrokenFolder folder("gpt2");
  const auto in_second = [](const std::string& name) { return name.find(".h.1.") != name.npos; };
  const std::string first = "model-00001-of-00002.safetensors",
                    second = "model-00002-of-00002.safetensors";
  nlohmann::json index = {{"metadata", nlohmann::json::object()}};
  const TensorReader reader = open_model_folder(folder.path());
  for (const StoredTensor& tensor : reader.tensors()) {
    index["weight_map"][tensor.name] = in_second(tensor.name) ? second : first;
  }
  for (const std::string& shard : {first, second}) {
    fs::copy(folder.path() + "/model.safetensors", folder.path() + "/" + shard);
    folder.rename(
        [&](const std::string& name) {
          return in_second(name) == (shard == second) ? name : std::string();
        },
        shard);
  }
  fs::remove(folder.path() + "/model.safetensors");
  const std::string index_file = folder.path() + "/model.safetensors.index.json";
  write_file(index_file, index.dump());
  EXPECT_EQ(folder.error(), "");
  const std::string whole = read_file(folder.path() + "/" + second);
  write_file(folder.path() + "/" + second, whole.substr(0, whole.size() / 2));
  EXPECT_THAT(folder.error(), HasSubstr(second));
  fs::remove(folder.path() + "/" + second);
  EXPECT_THAT(folder.error(), HasSubstr(second));
  write_file(folder.path() + "/" + second, whole);
  index["weight_map"]["transformer.ln_f.weight"] = second;
  write_file(index_file, index.dump());
  EXPECT_THAT(folder.error(), HasSubstr("transformer.ln_f.weight"));
}

TEST(HuggingFaceImport, RefusesOtherModels) {
  const BrokenFolder folder("llama");
  folder.set("model_type", "mixtral");
  EXPECT_THAT(folder.error(), HasSubstr("has model_type \"mixtral\", expected one of gpt2, llama"));
  folder.set("model_type", "llama");
  folder.set("head_dim", 5);
  EXPECT_THAT(folder.error(), HasSubstr("'model.head_size' must give heads of even size"));
  folder.set("head_dim", "5");
  EXPECT_THAT(folder.error(), HasSubstr("head_dim is \"5\", expected a size"));
}

TEST(HuggingFaceImport, WindowsOfSomeLayersAreRead) {
  using Types = std::vector<LayerType>;
  const BrokenFolder folder("qwen3");
  const auto types = [&] { return import_model(folder.path()).config.model.layer_types; };
  folder.set("layer_types", {"full_attention", "sliding_attention"});
  EXPECT_THAT(folder.error(),
              HasSubstr("sliding_window is null, and layer_types has sliding_attention"));
  folder.set("use_sliding_window", true);
  folder.set("sliding_window", 3);
  EXPECT_EQ(types(), (Types{LayerType::kFull, LayerType::kWindow}));
  EXPECT_EQ(import_model(folder.path()).config.model.attention_window, 3);
  folder.set("layer_types", {"full_attention", "chunked_attention"});
  EXPECT_THAT(folder.error(), HasSubstr("layer_types has \"chunked_attention\", expected "));
  folder.set("layer_types", {"full_attention"});
  EXPECT_THAT(folder.error(), HasSubstr("layer_types has 1 entries for 2 layers"));
  // Without the list the first layers see all tokens; here more of them than there are.
  folder.set("layer_types", nullptr);
  EXPECT_EQ(types(), Types{});
  folder.set("max_window_layers", 1);
  EXPECT_EQ(types(), (Types{LayerType::kFull, LayerType::kWindow}));
  folder.set("max_window_layers", 0);
  EXPECT_EQ(types(), Types{});
  EXPECT_EQ(import_model(folder.path()).config.model.attention_window, 3);
  const BrokenFolder mistral("mistral");
  mistral.set("sliding_window", nullptr);
  EXPECT_EQ(import_model(mistral.path()).config.model.attention_window, 0);
}

// Older files of Gemma 3 have a number for the pattern, and two bases beside each other.
TEST(HuggingFaceImport, PatternsOfLayersHaveOlderNames) {
  const BrokenFolder gemma("gemma3");
  gemma.set("layer_types", nullptr);
  gemma.set("rope_parameters", nullptr);
  EXPECT_EQ(import_model(gemma.path()).config.model.rope_theta, 1e6);
  gemma.set("sliding_window_pattern", 2);
  gemma.set("rope_theta", 5e5);
  gemma.set("rope_local_base_freq", 2e4);
  const ModelOptions model = import_model(gemma.path()).config.model;
  EXPECT_EQ(model.layer_types, (std::vector{LayerType::kWindow, LayerType::kFull}));
  EXPECT_EQ(model.rope_theta, 5e5);
  EXPECT_EQ(model.window_rope_theta, 2e4);
  gemma.set("query_pre_attn_scalar", "many");
  EXPECT_THAT(gemma.error(), HasSubstr("query_pre_attn_scalar is \"many\", expected a number"));
  const BrokenFolder smol("smollm3");
  smol.set("no_rope_layers", {0, 1});
  EXPECT_EQ(import_model(smol.path()).config.model.layer_types,
            (std::vector{LayerType::kNope, LayerType::kFull}));
  smol.set("no_rope_layers", {0, 0});
  EXPECT_EQ(import_model(smol.path()).config.model.layer_types, std::vector{LayerType::kNope});
  smol.set("no_rope_layers", {1});
  EXPECT_THAT(smol.error(), HasSubstr("no_rope_layers has 1 entries for 2 layers"));
}

// What a class has no place for does not go home as one.
TEST(HuggingFaceExport, AClassOfTheFamilyHasItsOwnFeatures) {
  const auto error_as = [](const char* folder, const char* architecture) {
    return error_of(ErrorKind::kConfig,
                    [&] { huggingface_files(files_of(fixture(folder)), architecture); });
  };
  EXPECT_THAT(error_as("qwen2", "llama"), HasSubstr("model.attention_bias: qkv has no place in"));
  EXPECT_THAT(error_as("qwen3", "llama"), HasSubstr("model.qk_norm: head has no place in llama"));
  EXPECT_THAT(error_as("mistral", "llama"),
              HasSubstr("model.attention_window: 3 has no place in llama"));
  EXPECT_THAT(error_as("llama", "qwen3"), HasSubstr("model.qk_norm: none has no place in qwen3"));
}

TEST(HuggingFaceImport, SidesOfOtherSizesAreRefused) {
  const BrokenFolder folder("marian");
  folder.set("decoder_ffn_dim", 48);
  EXPECT_THAT(folder.error(), HasSubstr("encoder_ffn_dim is 24 and decoder_ffn_dim 48"));
}

TEST(HuggingFaceImport, TakesOldNamesAndFoldersWithoutThePrefix) {
  const BrokenFolder folder("bert");
  const auto input = nlohmann::json::parse(read_file(fixture("bert") + "/logits.json"));
  folder.rename([](std::string name) {
    const size_t at = name.find("LayerNorm.weight");
    if (at != std::string::npos) name.replace(at, std::string::npos, "LayerNorm.gamma");
    return name;
  });
  EXPECT_LT(
      largest_difference(logits_of(files_of(folder.path()), input), tensor_of(input["logits"])),
      1e-10);
  const BrokenFolder bare("gpt2");
  const auto other = nlohmann::json::parse(read_file(fixture("gpt2") + "/logits.json"));
  bare.rename([](const std::string& name) {
    return name.starts_with("transformer.") ? name.substr(12) : name;
  });
  EXPECT_LT(largest_difference(logits_of(files_of(bare.path()), other), tensor_of(other["logits"])),
            1e-10);
}

TEST(HuggingFaceImport, AnEncoderWithoutAHeadIsTaken) {
  const BrokenFolder folder("bert");
  folder.rename([](const std::string& name) {
    return name.starts_with("bert.") ? name.substr(5) : std::string();
  });
  const ImportedModel model = import_model(folder.path());
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_THAT(model.notes[0], HasSubstr("has no head"));
  for (const TensorToWrite& tensor : model.tensors) EXPECT_FALSE(tensor.name.starts_with("head"));
}

TEST(HuggingFaceExport, SaysEverythingThatDoesNotFit) {
  ModelFiles files = files_of(fixture("llama"));
  try {
    huggingface_files(files, "gpt2");
    FAIL() << "a llama is no gpt2";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("model.norm: rmsnorm has no place in gpt2"));
    EXPECT_THAT(error.what(), HasSubstr("model.position_embedding: rope has no place in gpt2"));
    EXPECT_THAT(error.what(), HasSubstr("model.hidden_act: swiglu has no place in gpt2"));
  }
}

// Embeddings that are scaled by the model: theirs hold the scale, and the classifier is untied.
TEST(HuggingFaceExport, FoldsTheScaleOfEmbeddings) {
  const auto input = nlohmann::json::parse(read_file(fixture("gpt2") + "/logits.json"));
  ModelFiles files = files_of(fixture("gpt2"));
  files.config.model.scale_embeddings = true;
  const Tensor expected = logits_of(files, input);
  const std::string path = concat(testing::TempDir(), "/folded.", getpid());
  fs::remove_all(path);
  fs::create_directories(path);
  for (const auto& [name, content] : huggingface_files(files, "")) {
    write_file(path + "/" + name, bytes_of(content));
  }
  EXPECT_FALSE(nlohmann::json::parse(read_file(path + "/config.json"))["tie_word_embeddings"]);
  EXPECT_LT(largest_difference(logits_of(files_of(path), input), expected), 1e-5);
  fs::remove_all(path);
}

}  // namespace
}  // namespace tapestry::interop
