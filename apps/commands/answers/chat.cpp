#include "apps/commands/answers/chat.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// Forgets the oldest message of the user, with those up to the next one. False if there is no next
// one.
bool forget_exchange(Json& messages) {
  const auto is_users = [](const Json& message) { return message.at("role") == "user"; };
  const auto first = std::find_if(messages.begin(), messages.end(), is_users);
  const auto next = std::find_if(std::min(first + 1, messages.end()), messages.end(), is_users);
  if (next == messages.end()) return false;
  messages.erase(first, next);
  return true;
}

// The prompt of a talk. One that is too long for the models loses its oldest exchanges, and leaves
// room for the answer.
std::string prompt_of(const TextGenerator& generator, const ChatAnswers& answers, Json& talk) {
  const auto text = [&] { return chat_prompt(answers.format, talk, answers.messages); };
  if (generator.fits(text(), /*with_room=*/false)) return text();
  int64_t forgotten = 0;
  while (!generator.fits(text(), /*with_room=*/true) && forget_exchange(talk[answers.messages])) {
    ++forgotten;
  }
  if (forgotten > 0) {
    std::cerr << concat("warning: the talk is too long for the model; it forgets the oldest ",
                        forgotten, forgotten == 1 ? " answer" : " answers", '\n');
  }
  return text();
}

// Answers the last message of a talk, and shows the answer as it grows.
std::string answer_to(const TextGenerator& generator, const ChatAnswers& answers, Json& talk,
                      int64_t number, std::ostream& out) {
  Prompt prompt = generator.prompt(prompt_of(generator, answers, talk), "the talk",
                                   /*may_be_empty=*/true);
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
