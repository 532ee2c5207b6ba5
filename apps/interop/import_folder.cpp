// A whole folder of Hugging Face's: the model, its tokenizers, and the files that it came with.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/made_file.h"
#include "apps/interop/foreign_folder.h"
#include "apps/interop/foreign_generation.h"
#include "apps/interop/foreign_images.h"
#include "apps/interop/gguf/gguf.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/interop/huggingface_import.h"
#include "apps/interop/misfit_report.h"
#include "apps/interop/model_card.h"
#include "apps/interop/peft/peft.h"
#include "apps/interop/special_ids.h"
#include "apps/interop/tokenizer_files.h"
#include "core/base/text.h"
#include "data/files/files.h"
#include "data/files/utf8.h"
#include "data/tokenizers/huggingface_files.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;

// Our rows must begin as the model has learnt it. An id without a row in the model's table does not
// count: classes have defaults beyond the end of many vocabularies.
void check_ids(const Json& theirs, const Config& config, const Counts& counts,
               const TokenizerPair& tokenizers, Reasons& reasons) {
  if (config.model_type != ModelType::kEncoderDecoder) return;
  if (config.model.tie_word_embeddings && counts.shared_vocab != tokenizers.shared()) {
    reasons.push_back(concat("the model has ", counts.shared_vocab ? "one table" : "two tables",
                             " of embeddings, the tokenizers have ",
                             tokenizers.shared() ? "one vocabulary" : "two vocabularies"));
  }
  const tapestry::SpecialIds& target = tokenizers.target->special();
  const int32_t start = target.start.value_or(target.bos);
  const Json id = theirs.value("decoder_start_token_id", Json());
  if (id.is_number_integer() && id >= 0 && id < counts.target_vocab && id != start) {
    reasons.push_back(
        concat("decoder_start_token_id is ", id.dump(), ", the tokenizer's is ", start));
  }
  const std::vector<int32_t> before = target.target().before;
  if (!target.first && !before.empty() && before != std::vector<int32_t>{target.bos}) {
    reasons.push_back(concat("forced_bos_token_id is missing: translations would begin with '",
                             tokenizers.target->piece(before[0]), "', as the sources do"));
  }
}

// The ids of a key, which may be a list.
std::vector<int64_t> ids_of(const Json& theirs, const char* key) {
  std::vector<int64_t> ids;
  const auto found = theirs.find(key);
  if (found == theirs.end()) return ids;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  }
  return ids;
}

// An id of another type, or an end that no row of the model has, would be lost without a word.
void check_special_ids(const Json& theirs, int64_t rows, Reasons& reasons, Reasons& notes) {
  for (const char* key : {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id",
                          "forced_bos_token_id"}) {
    const auto found = theirs.find(key);
    if (found == theirs.end() || found->is_null()) continue;
    const Json ids = found->is_array() ? *found : Json::array({*found});
    const bool whole =
        std::ranges::all_of(ids, [](const Json& id) { return id.is_number_integer(); });
    if (!whole || ids.empty()) {
      reasons.push_back(concat(key, " is ", found->dump(), ", expected an id or a list of ids"));
      continue;
    }
    const bool lost = std::ranges::none_of(ids, [&](const Json& id) { return id < rows; });
    if (lost && std::string_view(key) == "eos_token_id") {
      notes.push_back(concat(key, " is ", found->dump(), ", the model has ", rows,
                             " rows: the tokenizer's end counts."));
    }
  }
}

// Special ids that releases have in one file or the other.
void add_generation(const Json& generation, ModelType type, Json& theirs) {
  const char* const first = "forced_bos_token_id";
  if (theirs.value(first, Json()).is_null()) theirs[first] = generation.value(first, Json());
  // An older key of BART's.
  if (theirs[first].is_null() && theirs.value("force_bos_token_to_be_generated", Json()) == true) {
    theirs[first] = theirs.value("bos_token_id", Json());
  }
  if (type == ModelType::kEncoder) return;
  std::vector<int64_t> ends = ids_of(theirs, "eos_token_id");
  for (const int64_t id : ids_of(generation, "eos_token_id")) {
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  }
  if (ends.size() > 1) theirs["eos_token_id"] = ends;
}

// A sentence about a model of many languages.
void tell_languages(const Tokenizer& tokenizer, Reasons& notes) {
  const tapestry::SpecialIds& special = tokenizer.special();
  if (special.languages.empty()) return;
  const auto first = special.first ? special.first : special.start;
  const bool chosen = !special.lacks_target_language() && first;
  notes.push_back(concat("it knows ", special.languages.size(), " languages",
                         chosen ? concat(" and writes '", tokenizer.piece(*first), '\'') : "",
                         ": generation.source_language and target_language",
                         " (--source-language, --target-language) ",
                         chosen ? "choose others." : "say which."));
}

// A sentence if config.json and the tokenizer name different ends.
void tell_ends(const Json& theirs, const ImportedModel& model, const TokenizerPair& tokenizers,
               Reasons& notes) {
  if (model.config.model_type == ModelType::kEncoder) return;
  const tapestry::SpecialIds& special = tokenizers.target->special();
  std::vector<int32_t> more;
  for (const int64_t id : ids_of(theirs, "eos_token_id")) {
    if (id < 0 || id >= model.counts.target_vocab || id == special.eos) continue;
    const auto number = static_cast<int32_t>(id);
    if (!special.is_end(number)) {
      notes.push_back(concat("eos_token_id ", id, " ('", tokenizers.target->piece(number),
                             "') does not end a text here: this type of tokenizer has one end."));
    } else {
      more.push_back(number);
    }
  }
  if (more.empty()) return;
  notes.push_back(concat("a text ends with '", tokenizers.target->piece(special.eos), "' or ",
                         quoted_tokens(*tokenizers.target, more), '.'));
}

// The first rows of their tables that no token reads (Change::kTwoRows), and the bias that changes
// nothing, in the format of kUnreadRowsFile; "" if they are zeros.
std::string unread_rows(const std::string& path, const ImportedModel& model) {
  const Folder folder = open_folder(path);
  const ModelFacts facts = facts_for(*folder.architecture, model.config, model.counts);
  Json rows = Json::object();
  for (const TensorPair& pair : tensor_pairs(*folder.architecture, facts)) {
    const bool whole = pair.ours == kUnreadBias;
    if ((pair.change != Change::kTwoRows && !whole) || !folder.names.has(pair.theirs[0])) continue;
    const std::string& name = folder.names.stored(pair.theirs[0]);
    const Tensor table = Tensor::empty(pair.their_shapes[0], DType::kFloat64);
    folder.reader.read(name, table);
    const std::vector<double> values = (whole ? table : table.slice(0, 2)).to_vector<double>();
    const bool zeros = std::ranges::all_of(values, [](double value) { return value == 0; });
    if (!zeros) rows[pair.theirs[0]] = values;
  }
  return rows.empty() ? "" : rows.dump();
}

// The files of sentence-transformers that say how the vectors of the tokens become one. None if a
// module has files of its own that would be missing: with `dense` the weights of such a layer are
// the model's, and stay out.
void take_modules(const std::string& folder, bool dense,
                  const std::function<void(const std::string&)>& take) {
  const std::string path = folder + "/modules.json";
  if (!fs::is_regular_file(path)) return;
  const Json modules = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!modules.is_array()) return;
  std::vector<std::string> configs;
  for (const Json& module : modules) {
    const Json name = module.is_object() ? module.value("path", Json()) : Json();
    if (!name.is_string()) return;
    const auto part = name.get<std::string>();
    if (part.empty() || !fs::is_directory(folder + "/" + part)) continue;
    if (part.find('/') != std::string::npos || part.starts_with('.')) return;
    for (const auto& entry : fs::directory_iterator(folder + "/" + part)) {
      const std::string file = entry.path().filename();
      const bool weights = file == kModelFile || file == "pytorch_model.bin";
      if (file != kConfigFile && !(dense && weights)) return;
    }
    configs.push_back(part + "/" + kConfigFile);
  }
  for (const std::string& name : configs) take(name);
  for (const char* name :
       {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"}) {
    take(name);
  }
}

// Those of these files that a folder has, and that are text.
std::map<std::string, std::string> texts_of(const std::string& folder,
                                            const std::vector<std::string>& names) {
  std::map<std::string, std::string> files;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    if (!fs::is_regular_file(path)) continue;
    std::string bytes = read_file(path);
    if (find_invalid_utf8(bytes) == std::string::npos) files[name] = std::move(bytes);
  }
  return files;
}

// The companion files of a foreign folder; a folder that our export wrote gets new ones.
std::map<std::string, std::string> companions_of(const std::string& folder,
                                                 const Tokenizer& tokenizer, bool dense) {
  std::map<std::string, std::string> files =
      texts_of(folder, {kConfigFile, "tokenizer_config.json", "special_tokens_map.json",
                        "added_tokens.json", "chat_template.jinja", "chat_template.json",
                        "generation_config.json", "vocab.txt", "vocab.json", "merges.txt"});
  const auto take = [&](const std::string& name) { files.merge(texts_of(folder, {name})); };
  take_modules(folder, dense, take);
  // The files beside it may have changed what it does: their program changes it itself.
  if (is_huggingface(tokenizer.serialized())) {
    take("tokenizer.json");
    const auto file = files.find("tokenizer.json");
    const bool same = file != files.end() &&
                      split_huggingface(tokenizer.serialized(), folder).tokenizer == file->second;
    if (same) files.erase(file);
  }
  return files;
}

}  // namespace

ImportedFolder import_folder(const std::string& path, const std::string& base) {
  const bool adapted = is_peft_folder(path);
  if (!adapted && !base.empty()) {
    fail(ErrorKind::kConfig, "[import] --base is for adapters, and ", path,
         " has no adapter_config.json.");
  }
  if (const auto file = gguf_file_of(path)) return import_gguf(*file);
  const std::string folder = adapted ? base_of_adapters(path, base) : path;
  ImportedFolder imported;
  try {
    imported.model = adapted ? import_adapted_model(path, folder) : import_model(folder);
  } catch (const Error& error) {
    if (adapted || error.kind() != ErrorKind::kData ||
        !fs::is_regular_file(folder + "/config.json"))
      throw;
    refuse_with_tokenizer(error, folder);
  }
  ImportedModel& model = imported.model;
  if (!examples_of(model.config).of_text()) {
    imported.tokenizers.came_with = texts_of(folder, {kConfigFile, kPreprocessorFile});
    imported.tokenizers.came_with.merge(cards_in(folder));
    return imported;
  }
  Json theirs = config_with_defaults(folder);
  Reasons odd;
  const Json said = read_json(folder + "/" + kConfigFile);
  const Json generation = read_generation(folder, said);
  for (const Json* file : {&said, &generation}) {
    if (file == &generation && generation == said) continue;
    check_special_ids(*file, model.counts.target_vocab, odd, model.notes);
  }
  if (!odd.empty()) refuse(folder, odd);
  add_generation(read_generation(folder, theirs), model.config.model_type, theirs);
  imported.tokenizers = find_tokenizers(folder, model.counts, theirs, model.notes);
  Reasons reasons;
  check_ids(theirs, model.config, model.counts, imported.tokenizers, reasons);
  if (!reasons.empty()) refuse(folder, reasons);
  tell_ends(theirs, model, imported.tokenizers, model.notes);
  tell_languages(*imported.tokenizers.target, model.notes);
  if (imported.tokenizers.target->special().one_text) {
    imported.tokenizers.came_with =
        companions_of(folder, *imported.tokenizers.target, model.config.model.vector_size > 0);
    std::string rows = unread_rows(folder, model);
    if (!rows.empty()) imported.tokenizers.came_with[kUnreadRowsFile] = std::move(rows);
  } else if (theirs.contains("bos_token_id") && theirs["bos_token_id"].is_null() &&
             model.config.model_type == ModelType::kDecoder) {
    model.config.data.train[0].documents = "file";  // as in our export
  }
  // Of a folder that our export wrote, too.
  imported.tokenizers.came_with.merge(texts_of(folder, {"chat_template.jinja"}));
  imported.tokenizers.came_with.merge(cards_in(folder));
  return imported;
}

ModelFiles model_files(ImportedFolder imported, const std::string& folder, bool with_spare) {
  for (TensorToWrite& tensor : imported.model.spare) {
    if (with_spare) imported.model.tensors.push_back(std::move(tensor));
  }
  const ByteSource source = safetensors_source(std::move(imported.model.tensors), folder);
  return {.folder = folder,
          .config = std::move(imported.model.config),
          .tokenizers = std::move(imported.tokenizers),
          .tensors = TensorReader(source)};
}

}  // namespace tapestry::interop
