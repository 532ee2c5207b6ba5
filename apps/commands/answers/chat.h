// Talks with a causal model that has a chat template: in a terminal, and of records.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "apps/tasks/answers/text_generator.h"
#include "data/chat/chat_format.h"

namespace tapestry {

/// How a model answers in talks.
struct ChatAnswers {
  ChatFormat format = {};
  std::string messages = "messages";             ///< the member of a record that has them
  std::string end = {};                          ///< text behind an answer; may be empty
  std::shared_ptr<const Tokenizer> reader = {};  ///< of the talks (talk_tokenizer())

  /// The text that the model continues, of a record of a place ("line 7"). Throws Error(kData).
  std::string prompt(const std::string& record, const std::string& place) const;
  /// The record with one more message, as a line.
  std::string answered(const std::string& record, const std::string& answer) const;
};

/// True if the models were trained on talks, or came with a chat template.
bool has_chat(const TextModels& models);
/// Throws Error(kConfig) for models that have no chat template, or one that is not understood.
ChatAnswers chat_answers(const TextModels& models);

/// Answers each line of `in` as a message of the user, with those before it as the history, and
/// writes the answer to `out` as it grows. "/reset" begins a new talk, the end of the input ends
/// it. `system`: the first message of each talk; may be empty. `shown`: gets a sign where the user
/// may write; may be null.
void chat(const TextGenerator& generator, const ChatAnswers& answers, const std::string& system,
          std::istream& in, std::ostream& out, std::ostream* shown);

}  // namespace tapestry
