// Adapters made by the library PEFT (tests/fixtures/huggingface_peft.py) in our models, and ours in
// its files.
#include <gmock/gmock.h>
#include <unistd.h>

#include "apps/interop/huggingface_export.h"
#include "nn/layers/adapter.h"
#include "tests/apps/interop/huggingface_models.h"

namespace tapestry::interop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Record = nlohmann::json;

Record parsed(const std::string& path) { return Record::parse(read_file(path)); }

// What export writes, beside the fixtures so that it finds its model.
class ExportedAdapters {
 public:
  ExportedAdapters(const ModelFiles& model, const std::string& architecture) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    for (const auto& [name, content] : peft_files(model, architecture)) {
      write_file(path_ + "/" + name, bytes_of(content));
    }
  }
  ~ExportedAdapters() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = concat(testing::TempDir(), "/exported_adapters.", getpid());
};

struct PeftCase {
  const char* name;
  const char* base;
  double tolerance = 1e-10;
};
void PrintTo(const PeftCase& one, std::ostream* out) { *out << one.name; }

class Peft : public testing::TestWithParam<PeftCase> {};

INSTANTIATE_TEST_SUITE_P(
    Adapters, Peft,
    testing::Values(PeftCase{"peft_gpt2", "gpt2"}, PeftCase{"peft_llama", "llama", 1e-5},
                    PeftCase{"peft_marian", "marian"}, PeftCase{"peft_bert_classes", "bert"},
                    PeftCase{"peft_vit", "vit"}, PeftCase{"peft_gpt2_dora", "gpt2"},
                    PeftCase{"peft_llama_dora", "llama", 1e-5},
                    PeftCase{"peft_marian_dora", "marian"},
                    PeftCase{"peft_llama_ranks", "llama", 1e-5}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(Peft, LogitsAreTheirs) {
  const std::string folder = fixture(GetParam().name);
  const Record input = parsed(folder + "/logits.json");
  const Tensor logits = logits_of(files_of(folder), input);
  EXPECT_LT(largest_difference(logits, tensor_of(input["logits"])), GetParam().tolerance);
}

TEST_P(Peft, ExportedAdaptersComputeTheSame) {
  const std::string folder = fixture(GetParam().name);
  const Record input = parsed(folder + "/logits.json");
  const ModelFiles model = files_of(folder);
  const ExportedAdapters exported(model, GetParam().base);
  const ModelFiles back = files_of(exported.path());
  EXPECT_EQ(back.config.lora.rank, model.config.lora.rank);
  EXPECT_EQ(back.config.lora.dora, model.config.lora.dora);
  EXPECT_EQ(back.config.training.modules_to_save, model.config.training.modules_to_save);
  EXPECT_LT(largest_difference(logits_of(back, input), logits_of(model, input)), 1e-12);
}

// Merged, as a model without adapters.
TEST_P(Peft, MergedTheyComputeTheSame) {
  const std::string folder = fixture(GetParam().name);
  const Record input = parsed(folder + "/logits.json");
  const std::string path = concat(testing::TempDir(), "/merged.", getpid());
  fs::remove_all(path);
  fs::create_directories(path);
  for (const auto& [name, content] : huggingface_files(files_of(folder), GetParam().base)) {
    write_file(path + "/" + name, bytes_of(content));
  }
  const ModelFiles merged = files_of(path);
  EXPECT_EQ(merged.config.lora.rank, 0);
  EXPECT_LT(largest_difference(logits_of(merged, input), tensor_of(input["logits"])), 1e-4);
  fs::remove_all(path);
}

// A layer of theirs that is one of ours keeps its rank, and its tensors come back.
TEST(PeftExport, GivesTheFileBack) {
  for (const char* name : {"peft_gpt2", "peft_gpt2_dora"}) {
    const std::string folder = fixture(name);
    const ExportedAdapters exported(files_of(folder), "");
    const TensorReader before(open_source(folder + "/adapter_model.safetensors"));
    const TensorReader after(open_source(exported.path() + "/adapter_model.safetensors"));
    EXPECT_EQ(before.tensors().size(), after.tensors().size());
    for (const StoredTensor& tensor : after.tensors()) {
      const StoredTensor* const found = before.find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_TRUE(values_of(before, *found) == values_of(after, tensor)) << tensor.name;
    }
    const Record config = parsed(exported.path() + "/adapter_config.json");
    const Record theirs = parsed(folder + "/adapter_config.json");
    for (const char* key : {"peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "bias",
                            "fan_in_fan_out", "use_rslora", "use_dora", "modules_to_save"}) {
      EXPECT_EQ(config[key], theirs[key]) << key;
    }
    EXPECT_EQ(config["target_modules"].size(), 8u);
    EXPECT_EQ(config["base_model_name_or_path"], fs::absolute(folder + "/../gpt2").string());
  }
}

// All adapters become as large as the largest layer; B has the scales of the others.
TEST(PeftImport, RanksByPatternsBecomeOne) {
  const ModelFiles model = files_of(fixture("peft_llama_ranks"));
  EXPECT_EQ(model.config.lora.rank, 5);  // 2 of queries and 3 of values
  EXPECT_NEAR(model.config.lora.scale(), 3. / 2, 1e-12);
}

// Queries and values with matrices A of their own are one layer of ours: of twice the rank.
TEST(PeftImport, PartsOfALayerBecomeOneOfALargerRank) {
  const ModelFiles model = files_of(fixture("peft_llama"));
  EXPECT_EQ(model.config.lora.rank, 4);
  EXPECT_NEAR(model.config.lora.scale(), 3 / std::sqrt(2.0), 1e-12);
  EXPECT_EQ(model.config.lora.target.size(), 6u);
  const ModelFiles classes = files_of(fixture("peft_bert_classes"));
  EXPECT_THAT(classes.config.training.modules_to_save,
              ElementsAre("classifier.weight", "classifier.bias"));
}

// Modules of today's releases: tensors of a folder may have older names.
TEST(PeftExport, NamesTheModulesOfToday) {
  const std::string folder = fixture("peft_vit");
  const ExportedAdapters exported(files_of(folder), "");
  const Record layers = parsed(exported.path() + "/adapter_config.json")["target_modules"];
  const TensorReader theirs(open_source(folder + "/adapter_model.safetensors"));
  for (const StoredTensor& tensor : theirs.tensors()) {
    if (!tensor.name.ends_with(".lora_A.weight")) continue;
    const std::string module = module_of(module_of(tensor.name)).substr(17);
    EXPECT_NE(std::find(layers.begin(), layers.end(), module), layers.end()) << module;
  }
}

/// A copy of a fixture beside it, in which something is changed.
class BrokenAdapters : public BrokenFolder {
 public:
  BrokenAdapters() : BrokenFolder("peft_gpt2") {
    change("adapter_config.json", "base_model_name_or_path", fixture("gpt2"));
  }
  void set(const std::string& key, const Record& value) const {
    change("adapter_config.json", key, value);
  }
  void rename_tensors(const std::function<std::string(const std::string&)>& name) const {
    rename(name, "adapter_model.safetensors");
  }
};

TEST(PeftImport, SaysEverythingThatDoesNotFit) {
  const BrokenAdapters folder;
  folder.set("bias", "all");
  folder.set("rank_pattern", {{"c_attn", 0.5}});
  folder.set("alpha_pattern", {{"c_(attn", 4}});
  EXPECT_THAT(folder.error(), HasSubstr("bias is \"all\", Tapestry has \"none\""));
  EXPECT_THAT(folder.error(), HasSubstr("rank_pattern is {\"c_attn\":0.5}, expected numbers from "
                                        "above 0 up to 65536 by patterns of modules"));
  EXPECT_THAT(folder.error(), HasSubstr("alpha_pattern is {\"c_(attn\":4}, expected numbers"));
}

// Adapters that began with a part of the base need the rest of it; sizes would make a checkpoint
// that nothing can open.
TEST(PeftImport, RefusesOtherBasesAndOddNumbers) {
  const BrokenAdapters folder;
  folder.set("init_lora_weights", "pissa");
  folder.set("lora_dropout", 1.5);
  folder.set("lora_alpha", 1e308);
  folder.set("use_rslora", "true");
  folder.set("use_dora", 1);
  EXPECT_THAT(folder.error(), HasSubstr("init_lora_weights is \"pissa\", whose base is not that"));
  EXPECT_THAT(folder.error(), HasSubstr("lora_dropout is 1.5, expected a number from 0 to"));
  EXPECT_THAT(folder.error(), HasSubstr("lora_alpha is 1e+308, expected a number above 0, up to"));
  EXPECT_THAT(folder.error(), HasSubstr("use_rslora is \"true\", expected true or false"));
  EXPECT_THAT(folder.error(), HasSubstr("use_dora is 1, expected true or false"));
}

// PEFT drops what its config leaves out.
TEST(PeftImport, ModulesAreThoseOfItsConfig) {
  const BrokenAdapters folder;
  const char* const left = "c_fc.lora_A.weight is of a module that target_modules, exclude_modules";
  folder.set("target_modules", {"attn.c_attn", "c_proj", "mlp.c_fc"});
  EXPECT_EQ(folder.error(), "");
  folder.set("target_modules", {"c_attn", "c_proj"});
  EXPECT_THAT(folder.error(), HasSubstr(left));
  folder.set("target_modules", ".*\\.(c_attn|c_proj)");
  EXPECT_THAT(folder.error(), HasSubstr(left));
  folder.set("target_modules", "all-linear");
  EXPECT_EQ(folder.error(), "");
  folder.set("target_modules", ".*(?<!q)\\.(c_attn|c_proj)");  // std::regex cannot look behind
  EXPECT_EQ(folder.error(), "");
  folder.set("target_modules", ".*\\.(c_attn|c_proj|c_fc)\\Z");
  EXPECT_EQ(folder.error(), "");
  folder.set("exclude_modules", {"c_fc"});
  EXPECT_THAT(folder.error(), HasSubstr(left));
  folder.set("exclude_modules", nullptr);
  folder.set("layers_to_transform", {0, 1});
  EXPECT_EQ(folder.error(), "");
  folder.set("layers_to_transform", 0);
  EXPECT_THAT(folder.error(), HasSubstr("h.1.mlp.c_fc.lora_A.weight is of a module"));
}

TEST(PeftImport, NamesTensorsThatAreMissingWrongOrUnknown) {
  const BrokenAdapters folder;
  folder.rename_tensors([](const std::string& name) {
    const std::string h0 = "base_model.model.transformer.h.0.";
    if (name == h0 + "attn.c_attn.lora_B.weight") return std::string();
    if (name == h0 + "mlp.c_fc.lora_A.weight") return h0 + "mlp.c_fd.lora_A.weight";
    return name;
  });
  const std::string error = folder.error();
  EXPECT_THAT(error, HasSubstr("no tensor base_model.model.transformer.h.0.attn.c_attn.lora_B"));
  EXPECT_THAT(error, HasSubstr("no tensor base_model.model.transformer.h.0.mlp.c_fc.lora_A"));
  EXPECT_THAT(error, HasSubstr("mlp.c_fd.lora_A.weight has no place in Tapestry"));
  folder.set("use_dora", true);
  EXPECT_THAT(folder.error(),
              HasSubstr("no tensor base_model.model.transformer.h.0.attn.c_proj.lora_magnitude_"
                        "vector (16)"));
  folder.set("use_dora", false);
  folder.set("r", 3);
  EXPECT_THAT(folder.error(), HasSubstr("mlp.c_proj.lora_A.weight is (2, 64), expected (3, 64)"));
}

TEST(PeftImport, AdaptersOfAModelThatIsNotThereAreRefused) {
  const BrokenAdapters folder;
  folder.set("base_model_name_or_path", "someone/gpt2");
  EXPECT_THAT(folder.error(), HasSubstr("has adapters of \"someone/gpt2\", which is no Hugging "
                                        "Face folder here. Name it by import --base"));
}

TEST(PeftExport, AModelWithoutAdaptersIsRefused) {
  try {
    peft_files(files_of(fixture("gpt2")), "");
    FAIL() << "nothing to write";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("has no adapters (training.lora)"));
  }
}

// The table of a tied classifier has no module of its own that PEFT could keep.
TEST(PeftExport, ATiedTableThatLearntIsRefused) {
  ModelFiles model = files_of(fixture("peft_gpt2"));
  model.config.training.modules_to_save = {"embedding.weight"};
  try {
    peft_files(model, "");
    FAIL() << "tied";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("embedding.weight learnt, and transformer.wte.weight is "
                                        "tied to the classifier"));
  }
}

}  // namespace
}  // namespace tapestry::interop
