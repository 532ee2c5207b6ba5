#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/config/sections.h"
#include "data/chat/chat_format.h"
#include "data/files/files.h"

namespace tapestry {

ChatTemplate chosen_template(const DataOptions& data) {
  if (!data.chat_template_path.empty()) {
    return {read_file(data.chat_template_path), data.chat_template_path};
  }
  for (const BuiltInTemplate& one : built_in_templates()) {
    if (data.chat_template == one.name) return {one.source, one.name};
  }
  return usual_chat_template();
}

void settle_talks(Config& config) {
  ChatFormat format{.loss_on = config.data.loss_on};
  try {
    format.chat = chosen_template(config.data);
  } catch (const Error&) {
    // It was there when the training began, and is with the model.
  }
  // A vocabulary that is learnt has one token that begins and ends texts.
  format.tokens = nlohmann::ordered_json{{"bos_token", kEosPiece}, {"eos_token", kEosPiece}}.dump();
  set_format(format, config);
}

void set_format(const ChatFormat& format, Config& config) {
  const auto shared = std::make_shared<const ChatFormat>(format);
  for (auto* corpora : {&config.data.train, &config.data.valid, &config.data.test}) {
    for (CorpusSpec& corpus : *corpora) corpus.chat = shared;
  }
}

void bind_talks(ConfigSection& s, Config& config, bool applies, const std::string& why) {
  DataOptions& data = config.data;
  std::vector<ConfigChoice<std::string>> templates = {
      {DataOptions::kOwnTemplate, DataOptions::kOwnTemplate}};
  for (const BuiltInTemplate& one : built_in_templates()) templates.push_back({one.name, one.name});
  s.read_choice_if(applies, why, "chat_template", data.chat_template, templates,
                   "The template that makes a text of a talk; auto: the one that came with the "
                   "model, or chatml. It is kept with the model, and exported.");
  s.read_input_file_if(applies, why, "chat_template_path", data.chat_template_path,
                       "File with a chat template in Jinja's language, instead of chat_template.");
  if (applies && !data.chat_template_path.empty()) {
    const std::string name = s.full_name("chat_template_path");
    if (data.chat_template != DataOptions::kOwnTemplate) {
      s.complain("chat_template_path", '\'', name, "' and '", s.full_name("chat_template"),
                 "' exclude each other.");
    } else if (s.checks_files() && s.is_sound("data")) {
      try {
        chosen_template(data);
      } catch (const Error& error) {
        s.complain("chat_template_path", '\'', name, "': ", error.what());
      }
    }
  }
  s.read_choice_if(applies, why, "loss_on", data.loss_on,
                   {{"answers", LossOn::kAnswers},
                    {"last_answer", LossOn::kLastAnswer},
                    {"text", LossOn::kText}},
                   "What is learnt of a talk: all answers of the assistant, the last_answer, or "
                   "the whole text. Answers are what the template puts into {% generation %} "
                   "blocks; without them, what follows the generation prompt.");
}

}  // namespace tapestry
