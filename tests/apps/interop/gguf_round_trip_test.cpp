// GGUF files as models: those that their library wrote, what we make of them and back, and damaged
// ones.
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "apps/interop/gguf/gguf.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/interop/gguf/gguf_vocabulary.h"
#include "tests/apps/interop/huggingface_models.h"

namespace tapestry::interop {
namespace {

std::map<std::string, std::vector<float>> numbers_in(const ImportedModel& model) {
  std::map<std::string, std::vector<float>> values;
  for (const TensorToWrite& tensor : model.tensors) {
    values[tensor.name] = tensor.content().to(DType::kFloat32).to_vector<float>();
  }
  return values;
}

std::string file_of(const ModelFiles& model, const std::string& dtype) {
  CheckpointContent files = gguf_files(model, dtype);
  return bytes_of(files.at("model.gguf"));
}

class GgufRoundTrip : public testing::TestWithParam<const char*> {
 protected:
  ~GgufRoundTrip() override { fs::remove(path_); }

  ImportedModel import_bytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return import_gguf_model(path_);
  }
  ModelFiles with_letters(ImportedModel model) const {
    TokenizerPair tokenizers = tokenizers_of(model.counts);
    return model_files({std::move(model), std::move(tokenizers)}, path_);
  }

  const std::string path_ =
      fs::temp_directory_path() / concat("gguf_import.", getpid(), '.', GetParam(), ".gguf");
};
INSTANTIATE_TEST_SUITE_P(Models, GgufRoundTrip, testing::Values("llama", "gpt2", "qwen2", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

// Queries and keys of a llama lie otherwise in these files: all values are those of the folder.
TEST_P(GgufRoundTrip, IsTheModelOfTheFolder) {
  const ImportedModel file = import_gguf_model(fixture(concat(GetParam(), ".gguf")));
  const auto expected = numbers_in(import_model(fixture(GetParam())));
  EXPECT_EQ(numbers_in(file), expected);
  EXPECT_GT(expected.size(), 10u);
}

TEST_P(GgufRoundTrip, GoesHomeAsItCame) {
  const std::string name = fixture(concat(GetParam(), ".gguf"));
  EXPECT_TRUE(file_of(with_letters(import_gguf_model(name)), "float32") == read_file(name));
}

// What is rounded once stays: the same bytes after the way in and out.
TEST_P(GgufRoundTrip, RoundedTensorsStayAsTheyAre) {
  const ModelFiles model = files_of(fixture(GetParam()));
  const auto exact = numbers_in(import_model(fixture(GetParam())));
  const std::map<std::string, double> largest_error = {
      {"float16", 1e-3}, {"bfloat16", 0.01}, {"q8_0", 0.01}, {"q4_0", 0.15}};
  for (const auto& [dtype, error] : largest_error) {
    const std::string bytes = file_of(model, dtype);
    const ImportedModel back = import_bytes(bytes);
    for (const auto& [name, values] : numbers_in(back)) {
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], exact.at(name)[i], error) << dtype << ' ' << name;
      }
    }
    EXPECT_TRUE(file_of(with_letters(import_bytes(bytes)), dtype) == bytes) << dtype;
  }
}

// A file that ends anywhere, or counts more than it holds, is one error before anything is made.
TEST_P(GgufRoundTrip, NamesAFileThatIsDamaged) {
  const std::string whole = read_file(fixture(concat(GetParam(), ".gguf")));
  for (size_t size = 0; size < whole.size(); size += 1 + size / 9) {
    try {
      numbers_in(import_bytes(whole.substr(0, size)));
      ADD_FAILURE() << size << " bytes of " << whole.size() << " are no model";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData) << size << ": " << error.what();
      EXPECT_THAT(error.what(), testing::HasSubstr(path_));
    }
  }
  for (const size_t count : {8, 16}) {  // of tensors, of keys
    std::string changed = whole;
    changed[count + 7] = 0x10;  // 2^60 more
    EXPECT_THROW(import_bytes(changed), Error) << count;
  }
}

// Classes whose layers, norms and scores the engine knows by its own rules
// (tests/bench/causal_formats.py runs such files in llama.cpp).
struct EngineCase {
  const char* name;
  const char* engine;
  void (*fit)(ModelOptions& model) = nullptr;  // to what the engine has fixed
};
void PrintTo(const EngineCase& one, std::ostream* out) { *out << one.name; }

class GgufEngine : public testing::TestWithParam<EngineCase> {};
INSTANTIATE_TEST_SUITE_P(
    Models, GgufEngine,
    testing::Values(EngineCase{"gemma", "gemma"},
                    EngineCase{"gemma2", "gemma2",
                               [](ModelOptions& model) { model.attention_scale = 0; }},
                    EngineCase{"gemma3", "gemma3",
                               [](ModelOptions& model) {
                                 model.attention_scale = 0;
                                 model.layer_types = std::vector(6, LayerType::kWindow);
                                 model.layer_types[5] = LayerType::kFull;
                               }},
                    EngineCase{"olmo2", "olmo2"},
                    EngineCase{"smollm3", "smollm3",
                               [](ModelOptions& model) {
                                 model.layer_types = std::vector(4, LayerType::kFull);
                                 model.layer_types[3] = LayerType::kNope;
                               }},
                    EngineCase{"gpt_neox", "gptneox"}, EngineCase{"gpt_neox_serial", "gptneox"},
                    EngineCase{"phi", "phi2"}, EngineCase{"phi3_longrope", "phi3"},
                    EngineCase{"cohere2", "cohere2",
                               [](ModelOptions& model) {
                                 model.layer_types = std::vector(4, LayerType::kWindow);
                                 model.layer_types[3] = LayerType::kNope;
                               }},
                    EngineCase{"llama_longrope", "llama"},
                    EngineCase{"llama_yarn", "llama",
                               [](ModelOptions& model) {
                                 model.rope_scaling.beta_fast = 32;
                                 model.rope_scaling.attention_factor = 1.25;
                               }}),
    [](const auto& info) { return std::string(info.param.name); });

ModelFiles fitted(const EngineCase& one) {
  ModelFiles model = files_of(fixture(one.name));
  if (one.fit != nullptr) one.fit(model.config.model);
  return model;
}

TEST_P(GgufEngine, ModelsComeBackWithTheirLogits) {
  const ModelFiles model = fitted(GetParam());
  const std::string path =
      fs::temp_directory_path() / concat("gguf_engine.", getpid(), '.', GetParam().name, ".gguf");
  const std::string bytes = file_of(model, "float32");
  std::ofstream(path, std::ios::binary) << bytes;
  const GgufFile file(open_source(path));
  EXPECT_EQ(file.text("general.architecture"), GetParam().engine);
  ImportedModel imported = import_gguf_model(path);
  TokenizerPair tokenizers = tokenizers_of(imported.counts);
  tokenizers.came_with[kGgufGeneralFile] =
      concat(R"({"general.name": "Tapestry", "general.architecture": ")", GetParam().engine, "\"}");
  const ModelFiles back = model_files({std::move(imported), std::move(tokenizers)}, path);
  auto input = parsed_json(fixture(GetParam().name) + "/logits.json");
  ModelFiles plain = model;
  // A file does not say which gelu it was.
  plain.config.model.hidden_act = back.config.model.hidden_act;
  // Weights of norms lose digits where 1 is added.
  EXPECT_LT(largest_difference(logits_of(back, input), logits_of(plain, input)), 1e-5);
  fs::remove(path);
  if (model.config.model.norm_unit_offset) return;
  EXPECT_TRUE(file_of(back, "float32") == bytes);
}

}  // namespace
}  // namespace tapestry::interop
