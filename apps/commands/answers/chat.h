// Talks with a causal model that has a chat template, in a terminal.
#pragma once

#include <iosfwd>
#include <string>

#include "apps/tasks/answers/text_generator.h"
#include "apps/tasks/prompts/chat_answers.h"

namespace tapestry {

/// Answers each line of `in` as a message of the user, with those before it as the history, and
/// writes the answer to `out` as it grows. "/reset" begins a new talk, the end of the input ends
/// it. `system`: the first message of each talk; may be empty. `shown`: gets a sign where the user
/// may write; may be null.
void chat(const TextGenerator& generator, const ChatAnswers& answers, const std::string& system,
          std::istream& in, std::ostream& out, std::ostream* shown);

}  // namespace tapestry
