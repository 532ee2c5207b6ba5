#include "apps/interop/huggingface_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/file_names.h"
#include "apps/interop/architectures/tensor_names.h"
#include "apps/interop/gguf/gguf_vocabulary.h"
#include "apps/interop/special_ids.h"
#include "apps/tasks/prompts/talk_format.h"
#include "apps/tasks/text_models.h"
#include "core/base/error.h"
#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/languages.h"
#include "data/tokenizers/marian.h"
#include "data/tokenizers/tokenizer_json.h"

namespace tapestry::interop {
namespace {

using Json = nlohmann::ordered_json;

// The tokens that our batches put around a text.
TextFrame frame_of(const ModelFiles& model, const SpecialIds& ids) {
  const Config& config = model.config;
  TextFrame frame;
  const auto add = [](std::vector<int32_t>& to, std::optional<int32_t> id) {
    if (id) to.push_back(*id);
  };
  if (config.model_type == ModelType::kEncoderDecoder) {
    add(frame.after, ids.eos);
  } else if (config.model_type == ModelType::kDecoder) {
    if (begins_with_eos(config)) frame.before = model.tokenizers.target->special().document();
  } else {
    add(frame.before, ids.bos);
    if (reads_whole(config)) add(frame.after, ids.eos);
  }
  return frame;
}

Json tokens_of(const ModelFiles& model, const SpecialIds& ids) {
  const Tokenizer& tokenizer = *model.tokenizers.target;
  Json tokens = Json::object();
  const auto add = [&](const char* key, std::optional<int32_t> id) {
    if (id) tokens[key] = tokenizer.piece(*id);
  };
  const bool causal = model.config.model_type == ModelType::kDecoder;
  add("bos_token",
      causal && begins_with_eos(model.config) ? std::optional(document_start(model)) : ids.bos);
  add("eos_token", ids.eos);
  add("unk_token", ids.unk);
  add("pad_token", ids.pad);
  add("mask_token", ids.mask);
  const bool encoder = model.config.model_type == ModelType::kEncoder;
  if (reads_whole(model.config) || (encoder && tokenizer.special().one_text)) {
    add("cls_token", ids.bos);
    add("sep_token", ids.eos);
  }
  return tokens;
}

std::string vocabulary_json(const Tokenizer& tokenizer) {
  Json ids = Json::object();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) ids[tokenizer.piece(id)] = id;
  return ids.dump(2) + "\n";
}

// The files of Marian's tokenizer, which has two vocabularies of SentencePiece.
void add_separate(const ModelFiles& model, Json& config,
                  std::map<std::string, std::string>& files) {
  const bool shared = model.tokenizers.shared();
  config["separate_vocabs"] = !shared;
  files["vocab.json"] = vocabulary_json(*model.tokenizers.source);
  if (!shared) files["target_vocab.json"] = vocabulary_json(*model.tokenizers.target);
  for (const char* side : {"source", "target"}) {
    const auto own = files.find(concat(model.tokenizers.one() ? "tokenizer" : side, ".model"));
    if (own != files.end()) files[std::string(side) + ".spm"] = own->second;
  }
}

// They go as they came.
void add_marian(std::map<std::string, std::string>& files, const TokenizerPair& pair,
                Json& config) {
  const auto split = [&](const char* side) {
    const auto found = files.extract(concat(side, ".marian"));
    MarianFiles parts = split_marian(found.mapped(), found.key());
    files[concat(side, ".spm")] = std::move(parts.pieces);
    return parts.vocabulary;
  };
  files["vocab.json"] = split("source");
  std::string target = split("target");
  config["separate_vocabs"] = !pair.shared();
  if (!pair.shared()) files["target_vocab.json"] = std::move(target);
}

// The files of M2M100's, but for vocab.json, which the model came with.
void add_m2m100(std::map<std::string, std::string>& files) {
  const auto found = files.extract("tokenizer.marian");
  files["sentencepiece.bpe.model"] = split_marian(found.mapped(), found.key()).pieces;
}

// True if only SentencePiece's own files can express the tokenizers: a tokenizer.json cannot have
// user symbols.
bool needs_pieces(const ModelFiles& model) {
  return model.config.task->can(kTranslates) && !model.tokenizers.source->symbols().empty() &&
         (model.tokenizers.files().contains("tokenizer.model") ||
          model.tokenizers.files().contains("source.model"));
}

// The languages that a training chose, in the tokenizer_config.json that the model came with.
void keep_languages(const Tokenizer& tokenizer, std::string& file) {
  const tapestry::SpecialIds& special = tokenizer.special();
  if (special.languages.empty()) return;
  Json config = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return;
  const Json before = config;
  const auto name_of = [&](int64_t id) {
    const auto place = std::ranges::find(special.languages, static_cast<int32_t>(id));
    return language_names(tokenizer)[static_cast<size_t>(place - special.languages.begin())];
  };
  const auto source = ids_of(tokenizer).language;
  if (source && special.is_language(static_cast<int32_t>(*source))) {
    config["src_lang"] = name_of(*source);
  }
  // Without tgt_lang the ids of config.json say it.
  const auto target = special.start_names_language() ? special.start : special.first;
  const auto named = config.find("tgt_lang");
  if (target && special.is_language(*target) && named != config.end() && named->is_string()) {
    *named = name_of(*target);
  }
  if (config != before) file = config.dump(2) + "\n";
}

// True if texts are cut at all symbols of the vocabulary, as their library does.
bool has_marks_only(const ModelFiles& model) {
  if (!knows_talks(model.config, model.tokenizers)) return false;
  const Tokenizer& tokenizer = *model.tokenizers.source;
  const ChatFormat format = chat_format_of(model.tokenizers, model.folder);
  const std::vector<Mark> marks = marks_of(format, tokenizer);
  return std::ranges::all_of(tokenizer.symbols(), [&](int32_t id) {
    return std::ranges::find(marks, id, &Mark::id) != marks.end();
  });
}

// Makes the files that a model came with name the chat template that it has now.
void keep_template(const TokenizerPair& tokenizers, std::map<std::string, std::string>& files) {
  const auto chosen = tokenizers.came_with.find(kChatTemplateFile);
  if (chosen == tokenizers.came_with.end()) return;
  for (const char* const name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto file = files.find(name);
    if (file == files.end()) continue;
    Json config = Json::parse(file->second, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object() || !config.contains(kChatTemplateKey)) continue;
    const Json before = config;
    Json& theirs = config[kChatTemplateKey];
    if (!theirs.is_array()) {
      theirs = chosen->second;
    } else {
      std::erase_if(theirs.get_ref<Json::array_t&>(), [](const Json& one) {
        return one.is_object() && one.value("name", Json()) == kUsualTemplate;
      });
      theirs.push_back({{"name", kUsualTemplate}, {"template", chosen->second}});
    }
    if (config != before) file->second = config.dump(2) + "\n";
  }
}

}  // namespace

std::map<std::string, std::string> own_files(const TokenizerPair& tokenizers) {
  return TokenizerPair{tokenizers.source, tokenizers.target}.files();
}

std::map<std::string, std::string> huggingface_tokenizer_files(const ModelFiles& model) {
  const std::map<std::string, std::string>& came = model.tokenizers.came_with;
  std::map<std::string, std::string> files = own_files(model.tokenizers);
  const SpecialIds ids = special_ids(*model.tokenizers.target);
  Json tokens = tokens_of(model, ids);
  files["special_tokens_map.json"] = tokens.dump(2) + "\n";
  tokens["model_max_length"] = model.config.model.max_position_embeddings;
  tokens["clean_up_tokenization_spaces"] = false;
  const std::string& source = model.tokenizers.source->serialized();
  if (is_marian(source) && !model.tokenizers.source->special().languages.empty()) {
    tokens["tokenizer_class"] = "M2M100Tokenizer";
    add_m2m100(files);
  } else if (is_marian(source)) {
    tokens["tokenizer_class"] = "MarianTokenizer";
    add_marian(files, model.tokenizers, tokens);
  } else if (model.tokenizers.shared() && !needs_pieces(model)) {
    // A class that takes tokenizer.json unchanged: classes with a model's name build their own.
    tokens["tokenizer_class"] = "PreTrainedTokenizerFast";
    // A file has one normalisation, that of the sources. A second file has that of the targets.
    if (!model.tokenizers.one()) {
      files["target_tokenizer.json"] =
          tokenizer_json(*model.tokenizers.target, frame_of(model, ids));
    }
    if (is_huggingface(model.tokenizers.source->serialized())) {
      files.erase("tokenizer_ids.json");  // tokenizer.json goes as it came
    } else {
      files["tokenizer.json"] =
          tokenizer_json(*model.tokenizers.source, frame_of(model, ids), has_marks_only(model));
    }
  } else {
    tokens["tokenizer_class"] = "MarianTokenizer";
    add_separate(model, tokens, files);
  }
  files["tokenizer_config.json"] = tokens.dump(2) + "\n";
  // Templates, further special tokens and the rest go as they came.
  if (came.contains("tokenizer_config.json")) files.erase("special_tokens_map.json");
  for (const auto& [name, bytes] : came) {
    const bool made = name == "generation_config.json" || name == kConfigFile ||
                      name.starts_with("README");  // apps/interop/model_card.h
    if (!made && name != kUnreadRowsFile && name != kGgufGeneralFile) files[name] = bytes;
  }
  keep_template(model.tokenizers, files);
  keep_languages(*model.tokenizers.target, files["tokenizer_config.json"]);
  return files;
}

}  // namespace tapestry::interop
