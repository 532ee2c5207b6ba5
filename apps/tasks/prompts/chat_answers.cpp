#include "apps/tasks/prompts/chat_answers.h"

#include <nlohmann/json.hpp>

#include "apps/tasks/prompts/talk_format.h"
#include "core/base/error.h"
#include "data/chat/lost_members.h"
#include "data/corpora/records/chat_reader.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string ChatAnswers::prompt(const std::string& record, const std::string& place) const {
  Json talk;
  std::string problem = parse_talk(record, talk);
  if (problem.empty()) problem = talk_problem(talk, messages, /*answered=*/false);
  if (problem.empty()) problem = lost_member(format, talk, messages, /*learnt=*/false);
  if (problem.empty() && talk.at(messages).back().at("role") == "assistant") {
    problem = "the last message is the assistant's, so nothing is left to answer";
  }
  if (!problem.empty()) fail(ErrorKind::kData, "[data] ", place, ": ", problem, '.');
  return chat_prompt(format, talk, messages);
}

std::string ChatAnswers::answered(const std::string& record, const std::string& answer) const {
  Json talk = Json::parse(record);
  talk[messages].push_back({{"role", "assistant"}, {"content", std::string(strip(answer))}});
  return talk.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool has_chat(const TextModels& models) {
  return knows_talks(models.first().config, models.first().tokenizers);
}

ChatAnswers chat_answers(const TextModels& models) {
  if (!has_chat(models)) {
    fail(ErrorKind::kConfig,
         "[generate] expected a model with a chat template; this one has none, and was not trained "
         "on records with messages.");
  }
  ChatAnswers answers{.format = chat_format_of(models.first().tokenizers, "the model")};
  answers.reader = talk_tokenizer(answers.format, models.first().tokenizers.source);
  const auto& corpora = models.first().config.data.train;
  if (!corpora.empty() && !corpora.front().messages_column.empty()) {
    answers.messages = corpora.front().messages_column;
  }
  answers.end = answer_end(answers.format);
  return answers;
}

}  // namespace tapestry
