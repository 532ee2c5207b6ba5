// GGUF files: blocks and a tiny file of the package gguf (tests/fixtures/gguf_files.py), files of
// ours there and back, and files that are wrong.
#include <gmock/gmock.h>

#include <bit>

#include "apps/interop/gguf/gguf.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/interop/gguf/gguf_rope.h"
#include "tests/apps/interop/huggingface_models.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry::interop {
namespace {

using testing::HasSubstr;

std::string gguf_fixture(const std::string& name) {
  return project_file("tests/fixtures/gguf/" + name);
}

std::string unhex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::vector<float> floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> all;
  for (const float value : values) all.push_back(std::bit_cast<uint32_t>(value));
  return all;
}

// ---- Blocks.

TEST(GgufBlocks, AreReadAsThePackageReadsThem) {
  const auto cases = parsed_json(gguf_fixture("blocks.json"))["read"];
  ASSERT_EQ(cases.size(), 11u);
  for (const auto& one : cases) {
    const GgufType& type = *find_gguf_type(one["type"].get<std::string>());
    const std::string stored = unhex(one["stored"]);
    const std::vector<float> expected = floats(unhex(one["values"]));
    std::vector<float> values(expected.size());
    ASSERT_EQ(type.bytes_of(std::ssize(values)), stored.size()) << type.name;
    for (size_t i = 0; i * type.bytes < stored.size(); ++i) {
      type.read(reinterpret_cast<const unsigned char*>(stored.data()) + i * type.bytes,
                values.data() + i * static_cast<size_t>(type.numbers));
    }
    EXPECT_EQ(bits(values), bits(expected)) << type.name;
  }
}

TEST(GgufBlocks, AreWrittenAsThePackageWritesThem) {
  const auto cases = parsed_json(gguf_fixture("blocks.json"))["written"];
  ASSERT_EQ(cases.size(), 4u);
  for (const auto& one : cases) {
    const GgufType& type = *find_gguf_type(one["type"].get<std::string>());
    const std::vector<float> values = floats(unhex(one["values"]));
    std::string stored(type.bytes_of(std::ssize(values)), '\0');
    for (size_t i = 0; i * type.bytes < stored.size(); ++i) {
      type.write(values.data() + i * static_cast<size_t>(type.numbers),
                 reinterpret_cast<unsigned char*>(stored.data()) + i * type.bytes);
    }
    EXPECT_TRUE(stored == unhex(one["stored"])) << type.name;
  }
}

// ---- Whole files.

class GgufImport : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, GgufImport, testing::Values("llama", "gpt2", "qwen2", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

// The file of the package and the folder of transformers hold one model.
TEST_P(GgufImport, IsThatOfTheFolder) {
  ImportedModel file = import_model(fixture(concat(GetParam(), ".gguf")));
  ImportedModel folder = import_model(fixture(GetParam()));
  file.config.output_dir = folder.config.output_dir;
  file.config.data = folder.config.data;
  EXPECT_EQ(to_json(file.config), to_json(folder.config));
  ASSERT_EQ(file.tensors.size(), folder.tensors.size());
  for (const TensorToWrite& tensor : folder.tensors) {
    const auto same = std::ranges::find(file.tensors, tensor.name, &TensorToWrite::name);
    ASSERT_NE(same, file.tensors.end()) << tensor.name;
    EXPECT_EQ(bits(same->content().to_vector<float>()), bits(tensor.content().to_vector<float>()))
        << tensor.name;
  }
}

TEST_P(GgufImport, GoesHomeByteForByte) {
  const std::string path = fixture(concat(GetParam(), ".gguf"));
  // These have no tokenizer, which a whole import refuses.
  EXPECT_TRUE(bytes_of(gguf_files(files_of(path)).at("model.gguf")) == read_file(path));
  EXPECT_THROW(import_folder(path), Error);
}

// Rotation by neighbours is that of their llama, and becomes ours of halves.
TEST(GgufRopes, ComeBack) {
  for (const char* name : {"llama_linear", "llama_llama3"}) {
    ModelFiles files = files_of(fixture(name));
    const std::string bytes = bytes_of(gguf_files(files).at("model.gguf"));
    const std::string path = concat(testing::TempDir(), name, '.', getpid(), ".gguf");
    std::ofstream(path, std::ios::binary) << bytes;
    const ModelFiles back = files_of(path);
    EXPECT_EQ(back.config.model.rope_scaling.type, files.config.model.rope_scaling.type);
    EXPECT_DOUBLE_EQ(back.config.model.rope_scaling.factor, files.config.model.rope_scaling.factor);
    EXPECT_TRUE(bytes_of(gguf_files(back).at("model.gguf")) == bytes) << name;
    fs::remove(path);
  }
}

TEST(GgufRopes, TheFactorsOfLlama3TellItsScaling) {
  ModelOptions options;
  options.hidden_size = 2048;
  options.num_attention_heads = 16;
  options.rope_theta = 500000;
  for (const double factor : {8.0, 32.0}) {
    options.rope_scaling = {RopeScalingType::kLlama3, factor, 1, 4, 8192};
    const auto found = gguf_rope_scaling(gguf_rope_factors(options), options.rope_theta);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->factor, factor);
    EXPECT_EQ(found->low_freq_factor, 1);
    EXPECT_EQ(found->high_freq_factor, 4);
    EXPECT_EQ(found->original_max_position_embeddings, 8192);
  }
  std::vector<float> factors = gguf_rope_factors(options);
  factors[factors.size() / 2] *= 1.01f;  // of longrope, say
  EXPECT_FALSE(gguf_rope_scaling(factors, options.rope_theta).has_value());
}

class TinyGguf : public testing::Test {
 protected:
  const nlohmann::json expected_ = parsed_json(gguf_fixture("tiny.json"));
  TinyRunFolder folder_{"tiny_gguf"};
  std::string path(const std::string& name) const { return folder_.path(name); }
};

TEST_F(TinyGguf, LogitsAreTransformers) {
  const Tensor logits =
      logits_of(model_files(import_folder(gguf_fixture("tiny.gguf")), "tiny"), expected_);
  const Tensor theirs = tensor_of(expected_["logits"]);
  const auto ours = logits.to_vector<double>(), values = theirs.to_vector<double>();
  const auto rows = static_cast<size_t>(logits.shape().rows());
  const size_t columns = ours.size() / rows, kept = values.size() / rows;
  double largest = 0;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < kept; ++i) {
      largest = std::max(largest, std::abs(ours[row * columns + 25 * i] - values[row * kept + i]));
    }
  }
  EXPECT_GT(rows * kept, 100u);
  EXPECT_LT(largest, 1e-4);
}

TEST_F(TinyGguf, TokensAreTheLibrarys) {
  const auto tokenizer = import_folder(gguf_fixture("tiny.gguf")).tokenizers.source;
  for (size_t i = 0; i < expected_["lines"].size(); ++i) {
    EXPECT_EQ(tokenizer->encode(expected_["lines"][i].get<std::string>()),
              expected_["tokens"][i].get<std::vector<int32_t>>())
        << expected_["lines"][i];
  }
  EXPECT_TRUE(tokenizer->special().document().empty());  // add_bos_token is false
}

// Names, template and tokenizer go home, also through a folder of Hugging Face's.
TEST_F(TinyGguf, GoesHomeAndComesBack) {
  folder_.output(concat("import ", gguf_fixture("tiny.gguf"), " --output ours"));
  folder_.output("export --model ours --format gguf --output home");
  const GgufFile before(open_source(gguf_fixture("tiny.gguf")));
  const GgufFile after(open_source(path("home/model.gguf")));
  for (const std::string& key : before.keys()) {
    if (key == "general.alignment" || key == "general.file_type") continue;
    EXPECT_EQ(after.shown(key), before.shown(key)) << key;
  }
  EXPECT_EQ(after.text("general.name"), "Tiny");
  EXPECT_EQ(after.texts("tokenizer.ggml.tokens"), before.texts("tokenizer.ggml.tokens"));
  EXPECT_EQ(after.texts("tokenizer.ggml.merges"), before.texts("tokenizer.ggml.merges"));
  EXPECT_EQ(after.integers("tokenizer.ggml.token_type"),
            before.integers("tokenizer.ggml.token_type"));
  for (const GgufTensor& tensor : before.tensors()) {
    EXPECT_EQ(bits(after.read(*after.find(tensor.name)).to_vector<float>()),
              bits(before.read(tensor).to_vector<float>()))
        << tensor.name;
  }
  // A folder with nothing else means its file.
  folder_.output("import home --output back");
  folder_.output("export --model back --format gguf --output again");
  EXPECT_TRUE(read_file(path("again/model.gguf")) == read_file(path("home/model.gguf")));
  folder_.output("export --model ours --output theirs");
  EXPECT_FALSE(fs::exists(path("theirs/gguf_general.json")));
  EXPECT_EQ(read_file(path("theirs/chat_template.jinja")), "{{ messages[0]['content'] }}");
  folder_.output("import theirs --output from_folder");
  EXPECT_EQ(read_file(path("from_folder/model.safetensors")),
            read_file(path("ours/model.safetensors")));
}

TEST_F(TinyGguf, ATrainingBeginsWithIt) {
  folder_.write("some.txt", "A man in a blue shirt\nTwo young people\nThe dog runs\n");
  folder_.write("next.yaml",
                concat("task: clm\noutput_dir: run\ninit_from: ", gguf_fixture("tiny.gguf"),
                       "\ndata: {train: {text: some.txt}, block_size: 8}\n"
                       "training: {batch_type: sentences, batch_size: 2, "
                       "max_steps: 1}\n"));
  ASSERT_EQ(folder_.train("next", "run"), 0) << folder_.messages();
  EXPECT_THAT(folder_.messages(), HasSubstr("parameters from"));
}

// Pieces with scores, there and back, with ids of Llama's and with ours.
TEST_F(TinyGguf, SentencePieceComesBack) {
  const std::vector<std::string> llama = {"training.max_steps=2",
                                          "model.norm=rmsnorm",
                                          "model.norm_position=pre",
                                          "model.hidden_act=swiglu",
                                          "model.position_embedding=rope",
                                          "model.scale_embeddings=false",
                                          "model.bias=false"};
  const std::string pieces = project_file("tests/fixtures/tokenizers/llama2/tokenizer.model");
  const std::vector<std::string> kinds = {
      concat("tokenizer={path: ", pieces, '}'),
      "tokenizer={byte_fallback: true, vocab_size: 300, normalization: identity}"};
  for (size_t i = 0; i < kinds.size(); ++i) {
    const std::string run = concat("run", i), out = concat("out", i), back = concat("back", i);
    std::vector<std::string> options = llama;
    options.push_back(kinds[i]);
    ASSERT_EQ(folder_.train("clm", run, options), 0) << folder_.messages();
    folder_.output(concat("export --model ", run, " --format gguf --output ", out));
    folder_.output(concat("import ", out, "/model.gguf --output ", back));
    folder_.output(concat("export --model ", back, " --format gguf --output again", i));
    EXPECT_TRUE(read_file(path(concat("again", i, "/model.gguf"))) ==
                read_file(path(out + "/model.gguf")));
    const auto score = [&](const std::string& model) {
      return folder_.output(concat("score --model ", model, " --target ", path("valid.tgt")));
    };
    EXPECT_EQ(score(back), score(run)) << kinds[i];
  }
}

// ---- Files that say what Tapestry lacks.

// The fixture with other bytes for a text of the same length.
std::string changed(const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  std::string bytes = read_file(gguf_fixture("tiny.gguf"));
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return bytes.replace(at, from.size(), to);
}

TEST_F(TinyGguf, WhatHasNoPlaceIsNamed) {
  struct Row {
    std::string from, to, expected;
  };
  for (const Row& row : {
           Row{"smollm", "smollX", "tokenizer.ggml.pre is 'smollX', Tapestry knows gpt-2, smollm"},
           Row{"llama.vocab_size", "llama.expert_cnt",
               "llama.expert_cnt is 500, Tapestry has no place for it"},
           Row{"llama.block_count", "llama.block_cnt_x", "llama.block_count is missing"},
           Row{std::string("llama.rope.dimension_count\4\0\0\0\10", 31),
               std::string("llama.rope.dimension_count\4\0\0\0\4", 31),
               "llama.rope.dimension_count is 4, the other keys and the tensors make it 8"},
           Row{std::string("llama.vocab_size\4\0\0\0\364\1", 22),
               std::string("llama.vocab_size\4\0\0\0\363\1", 22),
               "llama.vocab_size is 499, the other keys and the tensors make it 500"},
           Row{"blk.1.attn_q.weight", "blk.1.attn_q.weighs", "no tensor blk.1.attn_q.weight"},
           Row{"blk.1.attn_q.weight", "blk.1.attn_q.weighs",
               "tensor blk.1.attn_q.weighs has no place in Tapestry"},
           Row{"tokenizer.ggml.merges", "tokenizer.ggml.mergez",
               "tokenizer.ggml.merges is missing"},
           Row{"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_xx",
               "tokenizer.ggml.eos_token_id is missing"},
       }) {
    folder_.write("changed.gguf", changed(row.from, row.to));
    const auto outcome = folder_.run("import changed.gguf --output no");
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("changed.gguf is no model of Tapestry's:"));
    EXPECT_THAT(outcome.err, HasSubstr(row.expected));
    EXPECT_FALSE(fs::exists(path("no")));
  }
  std::string other = read_file(gguf_fixture("tiny.gguf"));
  const std::string name = "general.architecture";
  other.replace(other.find(name) + name.size() + 12, 5, "mamba");
  folder_.write("changed.gguf", other);
  EXPECT_THAT(
      folder_.run("import changed.gguf --output no").err,
      HasSubstr(
          "general.architecture 'mamba', expected one of llama, qwen2, qwen3, gemma, gemma2"));
  folder_.write("changed.gguf", changed("tokenizer.chat_template", "tokenizer.chat_xxxxxxxx"));
  const auto outcome = folder_.run("import changed.gguf --output yes");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("note: 1 key is not read: tokenizer.chat_xxxxxxxx."));
}

TEST_F(TinyGguf, AFolderWithSeveralIsRefused) {
  fs::create_directories(path("several"));
  for (const char* name : {"a.gguf", "b.gguf"}) {
    fs::copy_file(gguf_fixture("tiny.gguf"), path(concat("several/", name)));
  }
  const auto outcome = folder_.run("import several --output no");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("has several .gguf files"));
}

}  // namespace
}  // namespace tapestry::interop
