// Readers of checkpoints, configs and other systems' folders.
#include <cstring>
#include <filesystem>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/config/config.h"
#include "apps/interop/gguf/gguf.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/interop/huggingface_import.h"
#include "apps/run/trainer_state.h"
#include "core/base/error.h"
#include "data/files/files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using Seeds = std::vector<std::string>;

ByteSource in_memory(std::string_view bytes, const std::string& name) {
  const auto kept = std::make_shared<const std::string>(bytes);
  return {name, kept->size(), [kept, name](uint64_t offset, void* to, uint64_t count) {
            if (offset > kept->size() || count > kept->size() - offset) {
              fail(ErrorKind::kData, "[file] ", name, " ends while it is read.");
            }
            std::memcpy(to, kept->data() + offset, count);
          }};
}

// ---- Tensors.

std::string tensors_file() {
  std::string bytes;
  write_safetensors({{"a.weight", Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3})},
                     {"a.bias", Tensor::from(std::vector<float>{1, 2}, {2})},
                     {"ids", Tensor::from(std::vector<int32_t>{7, 8}, {2})}},
                    {{"format", "pt"}}, [&](const void* part, size_t count) {
                      bytes.append(static_cast<const char*>(part), count);
                    });
  return bytes;
}

void read_tensors(const TensorReader& reader) {
  for (const StoredTensor& stored : reader.tensors()) {
    if (stored.shape.numel() > 1 << 16) continue;
    for (const DType type : {DType::kFloat32, DType::kInt32, DType::kBFloat16}) {
      if (fits(stored.type, type)) {
        reader.read(stored.name, Tensor::empty(stored.shape, type));
      }
    }
  }
}

Seeds safetensors_seeds() { return {tensors_file()}; }
void read_safetensors(std::string_view bytes) {
  read_tensors(TensorReader(in_memory(bytes, "fuzzed")));
}

Seeds index_seeds() {
  return {R"({"metadata": {"total_size": 40}, "weight_map": {"a.weight": "1.safetensors",
    "a.bias": "1.safetensors", "ids": "1.safetensors"}})"};
}
void read_index(std::string_view bytes) {
  static const std::string tensors = tensors_file();
  read_tensors(TensorReader(in_memory(bytes, "index"),
                            [&](const std::string& name) { return in_memory(tensors, name); }));
}

// ---- Files of a checkpoint.

std::string made_checkpoint() {
  const std::string folder = fuzzed_folder() + "/checkpoint";
  static const bool made = [&] {
    write_checkpoint(folder, {{"config.json", FileContent(std::string("{}"))},
                              {"tokenizer.txt", FileContent(std::string("some text"))}});
    return true;
  }();
  static_cast<void>(made);
  return folder;
}
Seeds manifest_seeds() { return {read_file(made_checkpoint() + "/MANIFEST.json")}; }
void read_manifest(std::string_view bytes) {
  const std::string folder = made_checkpoint();
  fuzzed_file(bytes, "checkpoint/MANIFEST.json");
  Checkpoint checkpoint(folder);
  checkpoint.open_all();
}

Config good_config(const char* task) {
  return parse_config(std::string("task: ") + task +
                      "\noutput_dir: run\ndata: {train: {text: /dev/null}}\n"
                      "model: {hidden_size: 8, num_attention_heads: 2, intermediate_size: 16}\n"
                      "training: {max_steps: 5}\n");
}
Seeds config_json_seeds() { return {to_json(good_config("clm")), to_json(good_config("mlm"))}; }
void read_config_json(std::string_view bytes) {
  to_json(load_checkpoint_config(std::string(bytes), "fuzzed"));
}

Seeds yaml_seeds() {
  return {to_yaml(good_config("clm")),
          "task: translation\noutput_dir: r\ndata:\n  train: [{source: /dev/null, target: "
          "/dev/null}]\n  max_length: 64 # tokens\ntokenizer: {vocab_size: 300, share: true}\n"
          "model:\n  type: encoder_decoder\n  dropout: 0.1\ntraining:\n  max_steps: 5\n"
          "  learning_rate: 1e-3\n"
          "  freeze: ['encoder.*', \"a\\tb\"]\n  optimizer: {betas: [0.9, 0.98]}\n"};
}
void read_yaml(std::string_view bytes) { to_yaml(parse_config(std::string(bytes))); }

Seeds state_seeds() {
  TrainerState state;
  return {to_json(state)};
}
void read_state(std::string_view bytes) {
  to_json(parse_trainer_state(std::string(bytes), "fuzzed"));
}

// ---- Other systems' folders.

std::string foreign(const char* kind) {
  return project_file(std::string("tests/fixtures/huggingface/") + kind);
}
constexpr const char* kForeign[] = {"gpt2", "llama", "bert", "roberta", "marian", "bart", "vit"};

Seeds foreign_seeds() {
  Seeds seeds;
  for (const char* kind : kForeign) seeds.push_back(read_file(foreign(kind) + "/config.json"));
  return seeds;
}
// The tensors are those of the fixture whose model_type the config names, else of the first.
void read_foreign(std::string_view bytes) {
  std::string folder = foreign(kForeign[0]);
  for (const char* kind : kForeign) {
    if (bytes.find(std::string("\"model_type\": \"") + kind) != std::string_view::npos) {
      folder = foreign(kind);
    }
  }
  const std::string own = fuzzed_folder() + "/foreign";
  std::filesystem::create_directories(own);
  std::error_code missing;
  std::filesystem::copy_file(folder + "/model.safetensors", own + "/model.safetensors",
                             std::filesystem::copy_options::overwrite_existing, missing);
  fuzzed_file(bytes, "foreign/config.json");
  to_json(interop::import_model(own).config);
}

Seeds gguf_seeds() {
  return {read_file(foreign("llama.gguf")), read_file(foreign("gpt2.gguf")),
          read_file(project_file("tests/fixtures/gguf/tiny.gguf"))};
}
// The whole import: header, keys, tensors, tokenizer.
void read_gguf(std::string_view bytes) {
  fuzzed_file(bytes, "fuzzed.gguf");
  const std::string path = fuzzed_folder() + "/fuzzed.gguf";
  const interop::GgufFile file(open_source(path));
  for (const interop::GgufTensor& tensor : file.tensors()) {
    if (tensor.shape.numel() <= 1 << 16) file.read(tensor);
  }
  interop::import_gguf_model(path);
  // Two of the seeds have no tokenizer.
  if (file.text("tokenizer.ggml.model") != "none") interop::import_gguf(path);
}

constexpr FuzzTarget kTargets[] = {
    {"safetensors", safetensors_seeds, read_safetensors},
    {"safetensors_index", index_seeds, read_index},
    {"manifest", manifest_seeds, read_manifest},
    {"config_json", config_json_seeds, read_config_json},
    {"config_yaml", yaml_seeds, read_yaml},
    {"trainer_state", state_seeds, read_state},
    {"foreign_config", foreign_seeds, read_foreign},
    {"gguf", gguf_seeds, read_gguf},
};

}  // namespace

std::span<const FuzzTarget> checkpoint_targets() { return kTargets; }

}  // namespace tapestry
