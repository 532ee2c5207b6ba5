#include "apps/commands/answers/chat.h"

#include <algorithm>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "apps/commands/answers/filter.h"
#include "apps/tasks/prompts/chat.h"
#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// Answers the last message of a talk, and shows the answer as it grows.
std::string answer_to(const TextGenerator& generator, const ChatAnswers& answers, const Json& talk,
                      int64_t number, std::ostream& out) {
  const std::string text = chat_prompt(answers.format, talk, answers.messages);
  Prompt prompt = generator.prompt(text, "the talk", /*may_be_empty=*/true);
  prompt.number = number;
  std::string answer;
  size_t shown = 0;
  const auto show = [&](std::string_view all) {
    if (is_blank(all)) return;
    if (shown == 0) shown = all.find(strip(all));  // without white space in front
    if (all.size() <= shown) return;
    out << all.substr(shown) << std::flush;
    shown = all.size();
  };
  TextGenerator::Hooks hooks;
  hooks.grows = [&](size_t, const std::string& grown) { show(grown); };
  hooks.done = [&](size_t, const std::vector<Hypothesis>& found) {
    answer = generator.text_of(prompt, found.at(0));
  };
  generator.run({&prompt}, 1, hooks);
  show(answer);
  out << '\n' << std::flush;
  return std::string(strip(answer));
}

}  // namespace

std::string ChatAnswers::prompt(const std::string& record, const std::string& place) const {
  const Json talk = Json::parse(record, nullptr, /*allow_exceptions=*/false);
  const std::string problem =
      talk.is_discarded() ? "no JSON" : talk_problem(talk, messages, /*answered=*/false);
  if (!problem.empty()) fail(ErrorKind::kData, "[data] ", place, ": ", problem, '.');
  return chat_prompt(format, talk, messages);
}

std::string ChatAnswers::answered(const std::string& record, const std::string& answer) const {
  Json talk = Json::parse(record);
  talk[messages].push_back({{"role", "assistant"}, {"content", std::string(strip(answer))}});
  return json_line(talk);
}

bool has_chat(const TextModels& models) {
  return examples_of(models.first().config).talks ||
         !chat_template_of(models.first().tokenizers).empty();
}

ChatAnswers chat_answers(const TextModels& models) {
  if (!has_chat(models)) {
    fail(ErrorKind::kConfig,
         "[generate] expected a model with a chat template; this one has none, and was not trained "
         "on records with messages.");
  }
  ChatAnswers answers{.format = chat_format_of(models.first().tokenizers, "the model")};
  const auto& corpora = models.first().config.data.train;
  if (!corpora.empty() && !corpora.front().messages_column.empty()) {
    answers.messages = corpora.front().messages_column;
  }
  answers.end = answer_end(answers.format);
  const std::vector<int32_t> ids = models.tokenizer().encode_continuation(answers.end);
  if (ids.size() == 1) answers.ends = ids;
  return answers;
}

void chat(const TextGenerator& generator, const ChatAnswers& answers, const std::string& system,
          std::istream& in, std::ostream& out, std::ostream* shown) {
  const auto begin = [&] {
    Json talk = {{answers.messages, Json::array()}};
    if (!system.empty()) {
      talk[answers.messages].push_back({{"role", "system"}, {"content", system}});
    }
    return talk;
  };
  Json talk = begin();
  int64_t number = 0;
  for (std::string line;;) {
    if (shown != nullptr) *shown << "> " << std::flush;
    if (!std::getline(in, line)) break;
    const std::string said(strip(line));
    if (said.empty()) continue;
    if (find_invalid_utf8(said) != std::string::npos) {
      fail(ErrorKind::kData, "[generate] expected UTF-8, got other bytes.");
    }
    if (said == "/reset") {
      talk = begin();
      continue;
    }
    talk[answers.messages].push_back({{"role", "user"}, {"content", said}});
    const std::string answer = answer_to(generator, answers, talk, number++, out);
    talk[answers.messages].push_back({{"role", "assistant"}, {"content", answer}});
  }
  if (shown != nullptr) *shown << '\n';
}

}  // namespace tapestry
