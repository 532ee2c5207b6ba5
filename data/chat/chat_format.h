// Talks as a model reads them: its chat template with its special tokens, and which part of a talk
// is learnt.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/chat_template.h"

namespace tapestry {

/// What counts in the loss.
enum class LossOn {
  kAnswers,     ///< all messages of the assistant
  kLastAnswer,  ///< the last one of them
  kText,        ///< everything
};

/// A template of this project, for models that have none.
struct BuiltInTemplate {
  const char* name;
  const char* source;
  std::vector<std::string> symbols;  ///< words of it that should be one token each
};
std::span<const BuiltInTemplate> built_in_templates();
/// The first of them.
const ChatTemplate& usual_chat_template();

/// The names of special tokens, which are variables of a template.
inline constexpr const char* kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                                "sep_token", "cls_token", "mask_token"};

struct ChatFormat {
  ChatTemplate chat = usual_chat_template();
  std::string tokens = "{}";  ///< a JSON object of the texts of kSpecialNames, as far as known
  LossOn loss_on = LossOn::kAnswers;
};
/// The texts of its special tokens.
std::vector<std::string> special_texts(const ChatFormat& format);

/// A talk: an object with `messages`, each with a role and a content. All its other members are
/// variables of the template, such as tools; those of chat_template_kwargs, too. None of them may
/// have the name of a special token or of a function.
struct Talk {
  std::string text;
  /// The parts that are learnt: begin and end in bytes.
  std::vector<std::pair<int64_t, int64_t>> answers;
};

/// What is wrong with a record as a talk: "message 2 has no role"; "" if nothing is. `answered`: it
/// needs a message of the assistant.
std::string talk_problem(const nlohmann::ordered_json& record, const std::string& messages,
                         bool answered);

/// The talk of a record whose messages are in the member `messages`. The answers are those inside
/// of the template's generation blocks; without any, what the text with one more message adds to
/// the text before it with add_generation_prompt. Throws Error(kData) where the template refuses
/// the talk, or does not tell its answers in either way.
Talk talk_of(const ChatFormat& format, const nlohmann::ordered_json& record,
             const std::string& messages);

/// The text that the model continues with its answer. Throws Error(kData).
std::string chat_prompt(const ChatFormat& format, const nlohmann::ordered_json& record,
                        const std::string& messages);

/// Two talks that begin alike: what both begin with, as chat_prompt() writes it, and how each goes
/// on.
struct ComparedTalks {
  std::string prompt, chosen, rejected;
};
/// The members of a record with the messages of two talks. With `prompt` its messages stand before
/// both.
struct ComparedFields {
  std::string prompt, chosen, rejected;
};
/// Sets `compared`, and returns "", or what is wrong with the record. Throws Error(kData) where the
/// template refuses a talk, or does not tell where it goes on.
std::string compare_talks(const ChatFormat& format, const nlohmann::ordered_json& record,
                          const ComparedFields& fields, ComparedTalks& compared);

/// The text that the template puts behind an answer, without white space at its ends: "<|im_end|>".
/// "" if there is none. It is found by talks of a few kinds; the first that has one decides.
std::string answer_end(const ChatFormat& format);

}  // namespace tapestry
