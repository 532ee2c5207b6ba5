// Answers in talks by causal models that have a chat template.
#pragma once

#include <memory>
#include <string>

#include "apps/tasks/text_models.h"
#include "data/chat/chat_format.h"
#include "data/tokenizers/tokenizer.h"

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

}  // namespace tapestry
