#include "apps/tasks/prompts/talk_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/origin.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// The value of a key in a file that the model came with; null without one.
Json value_of(const TokenizerPair& tokenizers, const char* file, const char* key) {
  const Json json = object_of_origin(tokenizers, file);
  return json.is_null() ? Json() : json.value(key, Json());
}

// A text, or an object with the text as its content.
std::string text_of(const Json& token) {
  if (token.is_object()) return text_of(token.value("content", Json()));
  return token.is_string() ? token.get<std::string>() : "";
}

// The special tokens that the model's own files name, or else those of its vocabulary.
std::string special_tokens(const TokenizerPair& tokenizers) {
  Json tokens = Json::object();
  bool known = false;
  for (const char* const file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    known = known || !object_of_origin(tokenizers, file).empty();
    for (const char* const name : kSpecialNames) {
      const std::string text = text_of(value_of(tokenizers, file, name));
      if (!text.empty()) tokens[name] = text;
    }
  }
  if (!known) {
    const Tokenizer& tokenizer = *tokenizers.source;
    // An export names them so, too: bos_token is what stands in front of a document.
    const std::vector<int32_t> begin = tokenizer.special().document();
    tokens["bos_token"] = tokenizer.piece(begin.empty() ? tokenizer.special().bos : begin.front());
    tokens["eos_token"] = tokenizer.piece(tokenizer.special().eos);
  }
  return tokens.dump();
}

// Puts the template that the config chooses among the files of the model.
void settle_template(const Config& config, TokenizerPair& tokenizers) {
  const DataOptions& data = config.data;
  const bool own = data.chat_template_path.empty() &&
                   data.chat_template == DataOptions::kOwnTemplate &&
                   !chat_templates_of(tokenizers).empty();
  if (!own) tokenizers.came_with[kChatTemplateFile] = chosen_template(data).source();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> chat_templates_of(
    const TokenizerPair& tokenizers) {
  const auto file = tokenizers.came_with.find(kChatTemplateFile);
  if (file != tokenizers.came_with.end()) return {{kUsualTemplate, file->second}};
  std::vector<std::pair<std::string, std::string>> found;
  // The second one is that of a processor.
  for (const char* const name : {"tokenizer_config.json", "chat_template.json"}) {
    const Json value = value_of(tokenizers, name, kChatTemplateKey);
    if (value.is_string()) found.emplace_back(kUsualTemplate, value.get<std::string>());
    if (value.is_object()) {
      for (const auto& [key, source] : value.items()) found.emplace_back(key, text_of(source));
    }
    for (const Json& named : value.is_array() ? value : Json::array()) {
      if (!named.is_object()) continue;
      found.emplace_back(text_of(named.value("name", Json())),
                         text_of(named.value("template", Json())));
    }
    if (!found.empty()) return found;
  }
  return found;
}

std::string chat_template_of(const TokenizerPair& tokenizers) {
  for (auto& [name, source] : chat_templates_of(tokenizers)) {
    if (name == kUsualTemplate) return source;
  }
  return "";
}

bool knows_talks(const Config& config, const TokenizerPair& tokenizers) {
  return examples_of(config).talks || !chat_templates_of(tokenizers).empty();
}

ChatFormat chat_format_of(const TokenizerPair& tokenizers, const std::string& model) {
  std::vector<std::string> names;
  ChatFormat format{.tokens = special_tokens(tokenizers)};
  for (const auto& [name, source] : chat_templates_of(tokenizers)) {
    names.push_back(name);
    if (name != kUsualTemplate) continue;
    format.chat = ChatTemplate(source, "the chat template of " + model);
    return format;
  }
  if (!names.empty()) {
    fail(ErrorKind::kConfig, "[chat template] ", model, " has the templates ", join(names, ", "),
         ", of which none is '", kUsualTemplate, "': write one into a file for ",
         "data.chat_template_path.");
  }
  return format;
}

std::vector<Mark> marks_of(const ChatFormat& format, const Tokenizer& tokenizer) {
  std::vector<Mark> marks;
  if (tokenizer.reads_special_words()) return marks;
  const std::vector<std::string> known = special_texts(format);
  const SpecialIds& special = tokenizer.special();
  for (const auto& id : {std::optional(special.bos), std::optional(special.eos), special.unk,
                         special.pad, tokenizer.mask_id()}) {
    if (!id) continue;
    const std::string text = tokenizer.piece(*id);
    if (std::ranges::count(known, text) > 0) marks.push_back({text, *id});
  }
  for (const int32_t id : tokenizer.symbols()) {
    const std::string text = tokenizer.piece(id);
    if (format.chat.source().find(text) != std::string::npos) marks.push_back({text, id});
  }
  return marks;
}

std::shared_ptr<const Tokenizer> talk_tokenizer(const ChatFormat& format,
                                                std::shared_ptr<const Tokenizer> tokenizer) {
  const std::vector<Mark> marks = marks_of(format, *tokenizer);
  const std::string end = answer_end(format);
  std::vector<int32_t> ends = with_marks(tokenizer, marks)->encode_continuation(end);
  if (ends.size() != 1) ends.clear();
  return with_marks(std::move(tokenizer), marks, ends);
}

std::vector<CorpusSpec> with_format(std::vector<CorpusSpec> corpora, const ChatFormat& format) {
  const auto shared = std::make_shared<const ChatFormat>(format);
  for (CorpusSpec& spec : corpora) spec.chat = shared;
  return corpora;
}

TalkSetting prepare_talks(Config& config, TokenizerPair given, const Report& report) {
  // The vocabulary that the config learns has read its talks by its template already.
  TokenizerPair tokenizers = settle_tokenizers(config, std::move(given), report);
  settle_template(config, tokenizers);
  ChatFormat format = chat_format_of(tokenizers, "the model");
  if (!config.data.chat_template_path.empty()) format.chat = chosen_template(config.data);
  format.loss_on = config.data.loss_on;
  set_format(format, config);
  std::shared_ptr<const Tokenizer> reader = talk_tokenizer(format, tokenizers.source);
  report_changes(config, {reader, reader}, report);
  return {std::move(tokenizers), std::move(reader)};
}

}  // namespace tapestry
