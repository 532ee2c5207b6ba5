// How models read talks: the chat template that came with a model or that a config chooses, and the
// tokens of its texts.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/tasks/task.h"
#include "data/chat/chat_format.h"
#include "data/tokenizers/special_words.h"

namespace tapestry {

inline constexpr const char* kChatTemplateFile = "chat_template.jinja";
inline constexpr const char* kChatTemplateKey = "chat_template";  ///< in files of JSON
inline constexpr const char* kUsualTemplate = "default";  ///< the one of several that counts

/// The chat templates that came with a model, by name: those of the first of its files that has
/// any.
std::vector<std::pair<std::string, std::string>> chat_templates_of(const TokenizerPair& tokenizers);
/// The source of kUsualTemplate among them; "" if there is none.
std::string chat_template_of(const TokenizerPair& tokenizers);

/// True for a model that was trained on talks, or came with a chat template.
bool knows_talks(const Config& config, const TokenizerPair& tokenizers);

/// How a model with these files reads talks: by the template that came with it, or by
/// usual_chat_template(). `model` is for messages. Throws Error(kConfig) for a template that is not
/// understood, and for several of which none is the usual one.
ChatFormat chat_format_of(const TokenizerPair& tokenizers, const std::string& model);

/// The texts that are tokens wherever they stand in a talk: special tokens that the template knows,
/// and symbols of the vocabulary that it names. None for a tokenizer that finds its own in a text.
std::vector<Mark> marks_of(const ChatFormat& format, const Tokenizer& tokenizer);
/// The tokenizer for texts of this format. Its special().more_ends has the end of answers if that
/// is one token.
std::shared_ptr<const Tokenizer> talk_tokenizer(const ChatFormat& format,
                                                std::shared_ptr<const Tokenizer> tokenizer);

/// The corpora, with the talks in this format.
std::vector<CorpusSpec> with_format(std::vector<CorpusSpec> corpora, const ChatFormat& format);

/// What a training on talks reads by.
struct TalkSetting {
  TokenizerPair tokenizers;                 ///< of the model
  std::shared_ptr<const Tokenizer> reader;  ///< of its talks
};
/// prepare_tokenizers() for a config of talks. The template that the config chooses is put among
/// the files that come with the tokenizers, and all corpora of the config are read by it. Throws as
/// chat_format_of().
TalkSetting prepare_talks(Config& config, TokenizerPair given, const Report& report);

}  // namespace tapestry
