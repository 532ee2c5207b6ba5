// The languages of models that translate between many: a token that names one stands around each
// text (NLLB, M2M100, mBART).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// By the names of their tokens, without the "__" of M2M100's; "": what the tokenizer says.
struct LanguageOptions {
  std::string source_language = {};
  std::string target_language = {};
};

/// True for "deu_Latn" (NLLB), "de_DE" (mBART) and "__de__" (M2M100).
bool is_language_token(std::string_view token);

/// The languages of a tokenizer, by id; empty if its texts have none around them.
std::vector<std::string> language_names(const Tokenizer& tokenizer);

/// The ids that a tokenizer of such a model has, as its file says.
HuggingFaceIds ids_of(const Tokenizer& tokenizer);

/// The tokenizers with these languages around texts. Throws Error(kConfig) for a name that they do
/// not know, with the nearest ones.
TokenizerPair with_languages(TokenizerPair tokenizers, const LanguageOptions& options);

/// Throws Error(kConfig) if a translation needs a language to write, and has none.
void check_target_language(const Tokenizer& target);

}  // namespace tapestry
