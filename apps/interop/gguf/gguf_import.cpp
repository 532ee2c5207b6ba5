// A GGUF file as the folder of Hugging Face's that it would be: the same config.json, tensors by
// the names of GGUF's own tables, so that the rest is the import of folders.
#include <algorithm>

#include "apps/checkpoint/made_file.h"
#include "apps/interop/foreign_folder.h"
#include "apps/interop/gguf/gguf.h"
#include "apps/interop/gguf/gguf_classes.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/interop/gguf/gguf_rope.h"
#include "apps/interop/gguf/gguf_tokenizer.h"
#include "apps/interop/gguf/gguf_vocabulary.h"
#include "apps/interop/special_ids.h"
#include "core/base/text.h"

namespace tapestry::interop {
namespace {

// A key behind the name of the class that ours have no place for, and its value without effect.
struct NeutralKey {
  const char* key;
  const char* value;  // as GgufFile::shown()
};
constexpr NeutralKey kNeutral[] = {
    {"attention.causal", "true"},
    {"attention.clamp_kqv", "0"},
    {"attention.max_alibi_bias", "0"},
    {"attention.sliding_window", "0"},
    {"expert_count", "0"},
    {"expert_used_count", "0"},
    {"use_parallel_residual", "false"},
    // Queries and keys in the order of Llama's own files, as in all of this class.
    {"tensor_data_layout", "'Meta AI original pth'"},
};
const GgufClass& class_of(const GgufFile& file) {
  const std::string name = file.text(kGgufClassKey).value_or("");
  if (const GgufClass* const found = find_gguf_class(name)) return *found;
  std::vector<std::string> known;
  for (const GgufClass& one : gguf_classes()) known.emplace_back(one.name);
  fail(ErrorKind::kData, "[import] ", file.name(), " has general.architecture '", name,
       "', expected one of ", join(known, ", "), '.');
}

// Their name of one of our keys.
std::string their_key(const Architecture& architecture, const char* means) {
  for (const KeyRow& row : architecture.keys) {
    if (std::string_view(row.ours) == means) return row.theirs;
  }
  return means;
}

// The config.json that a folder of the model would have.
Json config_of(const GgufFile& file, const GgufClass& one, Reasons& reasons) {
  const Architecture& architecture = one.architecture;
  Json config = {{"model_type", architecture.name},
                 {"architectures", {architecture.classes.front().name}}};
  for (const GgufKey& row : one.keys) {
    const std::string key = one.full_key(row.key);
    if (!file.has(key)) {
      if (row.needed) reasons.push_back(key + " is missing");
      continue;
    }
    // What follows from others is compared when these are known.
    if (row.means == nullptr) continue;
    const std::string theirs = their_key(architecture, row.means);
    if (row.kind == GgufKey::kInteger) {
      config[theirs] = *file.integer(key);
    } else if (row.kind == GgufKey::kFlag) {
      config[theirs] = *file.flag(key);
    } else {
      config[theirs] = *file.real(key);
    }
  }
  // Where their engine has another default than the class.
  if (one.rotates()) {
    const char* const groups = "num_key_value_heads";
    if (!config.contains(groups)) config[groups] = config.value("num_attention_heads", Json());
    if (!config.contains("head_dim")) config["head_dim"] = nullptr;
    if (!config.contains("rope_theta")) config["rope_theta"] = 10000.0;
    read_gguf_rope(file, one, config, reasons);
  }
  if (one.complete != nullptr) one.complete(file, config);
  const GgufTensor* const table = file.find("token_embd.weight");
  if (table == nullptr) {
    reasons.emplace_back("no tensor token_embd.weight");
  } else {
    config["vocab_size"] = table->shape[0];
  }
  config["tie_word_embeddings"] = file.find("output.weight") == nullptr;
  const std::vector<int64_t> ends = gguf_ends(file, reasons);
  if (!ends.empty()) config["eos_token_id"] = ends;
  return config;
}

// Keys of the class that nobody reads would make another model of it; others change nothing.
void check_keys(const GgufFile& file, const GgufClass& one, Reasons& reasons, Reasons& notes) {
  const std::string prefix = one.full_key("");
  std::vector<std::string> unread;
  for (const std::string& key : file.keys()) {
    const auto is = [&](const char* name) { return key == prefix + name; };
    if (key.starts_with("general.") || is_gguf_tokenizer_key(key) ||
        key == "tokenizer.chat_template") {
      continue;
    }
    if (key == "split.count" && file.integer(key).value_or(0) > 1) {
      reasons.push_back(concat("it is one of ", *file.integer(key),
                               " parts of a model: join them with their program first"));
    }
    if (!key.starts_with(prefix)) {
      unread.push_back(key);
      continue;
    }
    const bool known =
        std::ranges::any_of(one.keys, [&](const GgufKey& row) { return is(row.key); }) ||
        (one.rotates() && is_gguf_rope_key(key.substr(prefix.size())));
    const auto* const neutral =
        std::ranges::find_if(kNeutral, [&](const NeutralKey& row) { return is(row.key); });
    const bool off = neutral != std::end(kNeutral) && file.shown(key) == neutral->value;
    if (known || off) continue;
    if (std::ranges::any_of(one.unused, is)) {
      notes.push_back(concat(key, " is ", file.shown(key), ", which their program does not use."));
    } else {
      reasons.push_back(concat(key, " is ", file.shown(key), ", Tapestry has ",
                               neutral == std::end(kNeutral) ? "no place for it" : neutral->value));
    }
  }
  if (!unread.empty()) {
    notes.push_back(concat(unread.size(), unread.size() == 1 ? " key is" : " keys are",
                           " not read: ", join(unread, ", "), '.'));
  }
}

// The keys that the model would be written with must be those of the file.
void compare_keys(const GgufFile& file, const GgufClass& one, const ImportedModel& model,
                  Reasons& reasons) {
  const ModelFacts facts = facts_for(one.architecture, model.config, model.counts);
  for (const GgufKey& row : one.keys) {
    const std::string key = one.full_key(row.key);
    std::optional<double> expected = row.value(facts);
    if (!file.has(key) || row.kind != GgufKey::kInteger) continue;
    // Keys of a head's size are there only if it is not the usual one.
    if (!expected) expected = static_cast<double>(facts.config.model.chosen_head_size());
    const int64_t value = *file.integer(key);
    if (static_cast<double>(value) == *expected) continue;
    reasons.push_back(
        concat(key, " is ", value, ", the other keys and the tensors make it ", *expected));
  }
}

Json general_of(const GgufFile& file, Reasons& notes) {
  Json general = Json::object();
  std::vector<std::string> lost;
  for (const std::string& key : file.keys()) {
    const bool read = key == "general.file_type" || key == "general.quantization_version" ||
                      key == "general.alignment";
    if (!key.starts_with("general.") || read) continue;
    if (key.starts_with("general.sampling.")) {  // how their program draws
      lost.push_back(key);
    } else if (file.is_text(key)) {
      general[key] = *file.text(key);
    } else if (file.is_texts(key)) {
      general[key] = *file.texts(key);
    } else if (file.is_integer(key) && *file.integer(key) >= 0 &&
               *file.integer(key) <= int64_t{0xFFFFFFFF}) {
      general[key] = *file.integer(key);
    } else {
      lost.push_back(key);
    }
  }
  if (!lost.empty()) notes.push_back(concat("not kept: ", join(lost, ", "), '.'));
  return general;
}

ImportedModel import_model_of(const GgufFile& file) {
  const GgufClass& one = class_of(file);
  Reasons reasons, notes;
  check_keys(file, one, reasons, notes);
  Json config = config_of(file, one, reasons);
  if (!reasons.empty()) refuse(file.name(), reasons);
  // It outlives the folder: what is imported does not refer to it.
  const Architecture architecture = gguf_architecture(one);
  std::vector<TensorToWrite> tensors;
  std::vector<std::string> names;
  for (const GgufTensor& tensor : file.tensors()) {
    if (is_gguf_rope_tensor(tensor.name)) continue;
    names.push_back(tensor.name);
    tensors.emplace_back(tensor.name, tensor.shape, DType::kFloat32,
                         [file, tensor] { return file.read(tensor); });
    if (tensor.shape.rank() != 2 || tensor.shape[1] % tensor.type->numbers != 0) continue;
    tensors.back().rows = [file, tensor](int64_t first, int64_t count) {
      return file.read_rows(tensor, first, count);
    };
  }
  const Folder folder{file.name(), &architecture, std::move(config),
                      TensorReader(safetensors_source(std::move(tensors), file.name())),
                      TensorNames(architecture, names)};
  ImportedModel model = import_model(folder);
  compare_keys(file, one, model, reasons);
  if (!reasons.empty()) refuse(file.name(), reasons);
  model.notes.insert(model.notes.begin(), notes.begin(), notes.end());
  return model;
}

}  // namespace

ImportedModel import_gguf_model(const std::string& path) {
  return import_model_of(GgufFile(open_source(path)));
}

ImportedFolder import_gguf(const std::string& path) {
  const GgufFile file(open_source(path));
  ImportedFolder imported{import_model_of(file), {}};
  ImportedModel& model = imported.model;
  Reasons reasons;
  const auto tokenizer = gguf_tokenizer(file, model.counts.source_vocab, reasons, model.notes);
  if (!reasons.empty()) refuse(path, reasons);
  imported.tokenizers = {tokenizer, tokenizer};
  if (is_one_document(file, *tokenizer)) model.config.data.train[0].documents = "file";
  const std::vector<int32_t>& more = tokenizer->special().more_ends;
  if (!more.empty()) {
    model.notes.push_back(concat("a text ends with '", tokenizer->piece(tokenizer->special().eos),
                                 "' or ", quoted_tokens(*tokenizer, more), '.'));
  }
  auto& came_with = imported.tokenizers.came_with;
  came_with[kGgufGeneralFile] = general_of(file, model.notes).dump();
  if (const auto chat = file.text("tokenizer.chat_template")) {
    came_with["chat_template.jinja"] = *chat;
  }
  return imported;
}

}  // namespace tapestry::interop
