#include "data/tokenizers/languages.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/nearest_name.h"
#include "core/base/text.h"
#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/marian.h"

namespace tapestry {
namespace {

constexpr std::string_view kMark = "__";

bool all_in(std::string_view text, char first, char last) {
  return std::ranges::all_of(text, [&](char c) { return c >= first && c <= last; });
}
bool is_lower(std::string_view text) { return all_in(text, 'a', 'z'); }
bool is_upper(std::string_view text) { return all_in(text, 'A', 'Z'); }

std::string name_of_token(std::string_view token) {
  if (token.starts_with(kMark)) {
    token.remove_prefix(kMark.size());
    token.remove_suffix(kMark.size());
  }
  return std::string(token);
}

// The three names that a wrong one most likely means: those that it begins, then similar ones.
std::vector<std::string> nearest_names(const std::string& wrong, std::vector<std::string> names) {
  constexpr size_t kShown = 3;
  std::vector<std::string> nearest;
  const auto take = [&](const std::string& name) {
    nearest.push_back(name);
    std::erase(names, name);
  };
  for (const std::string& name : std::vector<std::string>(names)) {
    if (nearest.size() < kShown && !wrong.empty() && name.starts_with(wrong)) take(name);
  }
  while (nearest.size() < kShown) {
    const std::string name = nearest_name(wrong, names);
    if (name.empty()) break;
    take(name);
  }
  return nearest;
}

int32_t language_id(const Tokenizer& tokenizer, const std::string& key, const std::string& name) {
  const std::vector<std::string> names = language_names(tokenizer);
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) {
    return tokenizer.special().languages[static_cast<size_t>(found - names.begin())];
  }
  if (names.empty()) {
    fail(ErrorKind::kConfig, "[languages] generation.", key, " is '", name,
         "', and the tokenizer has no tokens that name languages.");
  }
  const std::vector<std::string> nearest = nearest_names(name, names);
  fail(ErrorKind::kConfig, "[languages] generation.", key, " is '", name,
       "', which is none of the model's ", names.size(), " languages, such as '",
       nearest.empty() ? names.front() : join(nearest, "', '"), "'.");
}

// The bytes of the tokenizer with other ids.
std::string with_ids(const Tokenizer& tokenizer, const HuggingFaceIds& ids) {
  const std::string& bytes = tokenizer.serialized();
  if (!is_marian(bytes)) {
    return join_huggingface(split_huggingface(bytes, "the tokenizer").tokenizer, ids.json());
  }
  MarianFiles files = split_marian(bytes, "the tokenizer");
  files.ids = ids;
  return join_marian(files);
}

}  // namespace

bool is_language_token(std::string_view token) {
  constexpr size_t kShortest = 2, kLongest = 3;
  const auto is_code = [](std::string_view text) {
    return text.size() >= kShortest && text.size() <= kLongest && is_lower(text);
  };
  if (token.starts_with(kMark) && token.ends_with(kMark) && token.size() > 2 * kMark.size()) {
    return is_code(token.substr(kMark.size(), token.size() - 2 * kMark.size()));
  }
  const size_t at = token.find('_');
  if (at == std::string_view::npos || !is_code(token.substr(0, at))) return false;
  const std::string_view behind = token.substr(at + 1);
  constexpr size_t kScript = 4;  // "Latn"
  return (behind.size() == 2 && is_upper(behind)) ||
         (behind.size() == kScript && is_upper(behind.substr(0, 1)) && is_lower(behind.substr(1)));
}

std::vector<std::string> language_names(const Tokenizer& tokenizer) {
  std::vector<std::string> names;
  for (const int32_t id : tokenizer.special().languages) {
    names.push_back(name_of_token(tokenizer.piece(id)));
  }
  return names;
}

HuggingFaceIds ids_of(const Tokenizer& tokenizer) {
  const std::string& bytes = tokenizer.serialized();
  return is_marian(bytes) ? split_marian(bytes, "the tokenizer").ids
                          : split_huggingface(bytes, "the tokenizer").ids;
}

TokenizerPair with_languages(TokenizerPair tokenizers, const LanguageOptions& options) {
  if (options.source_language.empty() && options.target_language.empty()) return tokenizers;
  const Tokenizer& old = *tokenizers.target;
  std::optional<int32_t> source, target;
  if (!options.source_language.empty()) {
    source = language_id(*tokenizers.source, "source_language", options.source_language);
  }
  if (!options.target_language.empty()) {
    target = language_id(old, "target_language", options.target_language);
  }
  HuggingFaceIds ids = ids_of(old);
  const std::vector<int32_t>& languages = old.special().languages;
  const auto start = old.special().start;
  // mBART's decoder begins with the language itself.
  const bool starts = start && std::ranges::find(languages, *start) != languages.end();
  std::optional<int64_t>& written = starts ? ids.start : ids.first;
  if ((!source || ids.language == *source) && (!target || written == *target)) {
    return tokenizers;
  }
  if (source) ids.language = *source;
  if (target) written = *target;
  tokenizers.source = tokenizers.target = load_tokenizer(with_ids(old, ids), "the tokenizer");
  return tokenizers;
}

void check_target_language(const Tokenizer& target) {
  if (!target.special().lacks_target_language()) return;
  const std::vector<std::string> names = language_names(target);
  fail(ErrorKind::kConfig, "[languages] the model writes ", names.size(),
       " languages, and generation.target_language (--target-language) must name one of them, such "
       "as '",
       names.front(), "'.");
}

}  // namespace tapestry
