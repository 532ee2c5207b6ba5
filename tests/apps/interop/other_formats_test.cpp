// The exports to GGUF and CTranslate2 against files that the libraries themselves wrote
// (tests/fixtures/huggingface_exports.py).
#include <gmock/gmock.h>

#include <functional>

#include <cstring>
#include <map>

#include "apps/interop/ctranslate2.h"
#include "apps/interop/gguf/gguf.h"
#include "apps/interop/huggingface_export.h"
#include "apps/interop/huggingface_import.h"
#include "data/files/files.h"
#include "tests/paths.h"

namespace tapestry::interop {
namespace {

using testing::HasSubstr;

std::string format_fixture(const std::string& name) {
  return project_file("tests/fixtures/huggingface/" + name);
}

ModelFiles imported_files(const std::string& name) {
  ImportedModel model = import_model(format_fixture(name));
  std::string file = "tapestry characters 1\n";
  for (int64_t id = kEosId + 1; id < model.counts.source_vocab; ++id) {
    file += concat("U+00", 50 + id, '\n');
  }
  const auto letters = load_tokenizer(file, "letters");
  return model_files({std::move(model), {letters, letters}}, name);
}

std::string bytes_of(const FileContent& content) {
  if (const auto* text = std::get_if<std::string>(&content)) return *text;
  std::string bytes;
  std::get<1>(content)(
      [&](const void* part, size_t count) { bytes.append(static_cast<const char*>(part), count); });
  return bytes;
}

class Gguf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Gguf, testing::Values("llama", "gpt2", "qwen2", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Gguf, BytesAreThoseOfItsLibrary) {
  const std::string expected = read_file(format_fixture(concat(GetParam(), ".gguf")));
  EXPECT_TRUE(bytes_of(gguf_files(imported_files(GetParam())).at("model.gguf")) == expected);
}

TEST(GgufExport, SaysWhatDoesNotFit) {
  ModelFiles files = imported_files("gpt2_untied");  // exact gelu
  try {
    gguf_files(files);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("model.hidden_act: gelu is not gelu_tanh"));
  }
}

/// The variables of model.bin by name; an alias has the bytes of what it names.
std::map<std::string, std::string> variables_of(const std::string& bytes) {
  size_t at = 0;
  const auto number = [&](size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      value |= uint64_t{static_cast<unsigned char>(bytes.at(at + i))} << 8 * i;
    }
    at += size;
    return value;
  };
  const auto text = [&] {
    const size_t size = number(2);
    at += size;
    return bytes.substr(at - size, size - 1);
  };
  std::map<std::string, std::string> variables;
  variables["format"] = concat(number(4), ' ', text(), ' ', number(4));
  for (uint64_t left = number(4); left > 0; --left) {
    const std::string name = text();
    const size_t begin = at;
    const uint64_t rank = number(1);
    at += 4 * rank + 1;
    const uint64_t size = number(4);
    at += size;
    variables[name] = bytes.substr(begin, at - begin);
  }
  for (uint64_t left = number(4); left > 0; --left) {
    const std::string alias = text();
    variables[alias] = variables[text()];
  }
  EXPECT_EQ(at, bytes.size());
  return variables;
}

std::vector<float> floats_of(const std::string& variable) {
  const size_t head = 1 + 4 * static_cast<unsigned char>(variable.at(0)) + 1 + 4;
  std::vector<float> values((variable.size() - head) / sizeof(float));
  std::memcpy(values.data(), variable.data() + head, values.size() * sizeof(float));
  return values;
}

// The biases by distance of T5 are the first layer's, and its scores and logits have factors.
TEST(CTranslate2, VariablesOfT5AreThoseOfItsLibrary) {
  for (const char* name : {"t5", "t5_gated_untied"}) {
    const auto expected = variables_of(read_file(format_fixture(concat(name, ".ct2"))));
    const auto made =
        variables_of(bytes_of(ctranslate2_files(imported_files(name)).at("model.bin")));
    for (const auto& [variable, value] : expected) {
      // Switched off, as where they are absent.
      if (variable.find("alibi") != std::string::npos ||
          variable.ends_with("multi_query_attention")) {
        continue;
      }
      ASSERT_TRUE(made.contains(variable)) << variable;
      if (!variable.ends_with("scale_embeddings")) {  // a number or a flag
        EXPECT_TRUE(made.at(variable) == value) << variable;
      }
    }
    for (const auto& [variable, value] : made) {
      // Its loader takes all heads for shares of the width.
      EXPECT_TRUE(expected.contains(variable) || variable.ends_with("head_dim")) << variable;
    }
  }
}

TEST(CTranslate2, VariablesAreThoseOfItsLibrary) {
  const auto expected = variables_of(read_file(format_fixture("marian.ct2")));
  CheckpointContent files = ctranslate2_files(imported_files("marian"));
  const auto made = variables_of(bytes_of(files.at("model.bin")));
  for (const auto& [name, value] : expected) {
    // Switched off, as where they are absent.
    if (name.find("alibi") != std::string::npos || name.ends_with("multi_query_attention"))
      continue;
    ASSERT_TRUE(made.contains(name)) << name;
    if (name.ends_with("position_encodings/encodings")) {
      // Sines of two libraries: the last bit may differ.
      EXPECT_THAT(floats_of(made.at(name)),
                  testing::Pointwise(testing::FloatNear(1e-5f), floats_of(value)));
    } else {
      EXPECT_TRUE(made.at(name) == value) << name;
    }
  }
  for (const auto& [name, value] : made) EXPECT_TRUE(expected.contains(name)) << name;
  EXPECT_THAT(bytes_of(files.at("config.json")), HasSubstr("\"decoder_start_token\": \"<s>\""));
  EXPECT_TRUE(files.contains("shared_vocabulary.json"));
}

// Tables, weights and biases; numbers stay what they are. Their codes are in ctranslate2.cpp.
TEST(CTranslate2, TensorsHaveTheType) {
  const auto type_of = [](const std::string& variable) {
    return static_cast<int>(variable.at(1 + 4 * static_cast<size_t>(variable.at(0))));
  };
  const auto whole =
      variables_of(bytes_of(ctranslate2_files(imported_files("marian")).at("model.bin")));
  for (const auto& [dtype, code] : {std::pair("float16", 4), std::pair("bfloat16", 5)}) {
    const auto made =
        variables_of(bytes_of(ctranslate2_files(imported_files("marian"), dtype).at("model.bin")));
    ASSERT_EQ(made.size(), whole.size());
    for (const auto& [name, variable] : made) {
      if (name == "format") continue;
      const bool number = variable.at(0) == 0;
      EXPECT_EQ(type_of(variable), number ? type_of(whole.at(name)) : code) << name;
      if (!number) {
        EXPECT_LT(variable.size(), whole.at(name).size()) << name;
      }
    }
  }
}

std::string error_of(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

// Each has something that no other program around these files would compute.
TEST(OtherFormats, RefuseWhatTheyCannotCompute) {
  struct Case {
    const char* name;
    const char* gguf;  // null: it can
    const char* ctranslate2;
  };
  for (const Case& one :
       {Case{"gemma", nullptr, nullptr},
        Case{"gemma2", "model.attention_scale", "attention_softcap: 1.5"},
        Case{"gemma3", "layer 1 is full", "layer_types.0: window"},
        Case{"olmo2", nullptr, "qk_norm: projection"},
        Case{"smollm3", "layer 1 is nope", "layer_types.1: nope"},
        Case{"gpt_neox", nullptr, "parallel_residual: true"}, Case{"opt", "model.", nullptr},
        Case{"qwen2_windows", "attention_window: 3", "attention_window: 3"},
        Case{"qwen3", nullptr, nullptr},
        Case{"llama_yarn", "rope_scaling.beta_fast: 2", "rope_scaling"},
        Case{"gptj", "model.", "shared_norm: true"},
        Case{"t5", "model.type: encoder_decoder", nullptr},
        Case{"m2m_100", "model.type: encoder_decoder", nullptr}}) {
    const ModelFiles files = imported_files(one.name);
    const std::string gguf = error_of([&] { gguf_files(files); });
    const std::string ctranslate2 = error_of([&] { ctranslate2_files(files); });
    EXPECT_THAT(gguf, HasSubstr(one.gguf != nullptr ? one.gguf : "")) << one.name;
    EXPECT_EQ(gguf.empty(), one.gguf == nullptr) << one.name << gguf;
    EXPECT_THAT(ctranslate2, HasSubstr(one.ctranslate2 != nullptr ? one.ctranslate2 : ""))
        << one.name;
    EXPECT_EQ(ctranslate2.empty(), one.ctranslate2 == nullptr) << one.name << ctranslate2;
  }
}

TEST(OtherFormats, RefuseADecoderWithARecurrence) {
  ModelFiles files = imported_files("marian");
  files.config.model.decoder_self_attention = DecoderSelfAttention::kSsru;
  EXPECT_THAT(error_of([&] { ctranslate2_files(files); }),
              HasSubstr("model.decoder_self_attention: ssru"));
  EXPECT_THAT(error_of([&] { huggingface_files(files, "marian"); }),
              HasSubstr("model.decoder_self_attention: ssru has no place in marian"));
}

TEST(CTranslate2, SaysWhatDoesNotFit) {
  ModelFiles files = imported_files("marian");
  files.config.model.attention_window = 4;
  files.config.model.norm = NormKind::kBatch;
  try {
    ctranslate2_files(files);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("model.attention_window"));
    EXPECT_THAT(error.what(), HasSubstr("model.norm: batchnorm"));
  }
}

}  // namespace
}  // namespace tapestry::interop
