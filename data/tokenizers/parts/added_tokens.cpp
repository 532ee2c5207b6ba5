#include "data/tokenizers/parts/added_tokens.h"

#include <algorithm>
#include <functional>

#include "core/base/error.h"
#include "data/tokenizers/parts/unicode_text.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry::tokenizers {
namespace {

// The beginning of the last character before `at`.
size_t character_before(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

char32_t character_at(std::string_view text, size_t at) { return next_code_point(text, at); }

// The regular expression \w (Unicode annex 18, RL1.2a).
bool is_of_word(char32_t c) {
  return is_word_character(c) || is_mark(c) || c == 0x200C || c == 0x200D;
}

}  // namespace

AddedToken::AddedToken(const Part& part) {
  part.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  const int64_t number = part.integer("id");
  if (number < 0 || number >= TokenizerOptions::kMostPieces) {
    part.refuse(concat("has the id ", number));
  }
  id = static_cast<int32_t>(number);
  content = part.text("content");
  special = part.flag("special", false);
  single_word = part.flag("single_word", false);
  lstrip = part.flag("lstrip", false);
  rstrip = part.flag("rstrip", false);
  normalized = part.flag("normalized", !special);
}

void TokenFinder::add(const AddedToken& token, const std::string& content) {
  add_pattern(content, {content.size(), token.id, token.single_word, token.lstrip, token.rstrip});
}

void TokenFinder::add(int32_t id, const std::string& content) {
  add_pattern(content, {content.size(), id, false, false, false});
}

void TokenFinder::add_pattern(const std::string& content, const Pattern& pattern) {
  if (content.empty()) return;
  std::vector<size_t>& lengths = lengths_[static_cast<unsigned char>(content[0])];
  const auto place = std::ranges::lower_bound(lengths, content.size(), std::greater<>());
  if (place == lengths.end() || *place != content.size()) lengths.insert(place, content.size());
  patterns_.try_emplace(content, pattern);
}

const TokenFinder::Pattern* TokenFinder::longest_at(std::string_view rest) const {
  for (const size_t length : lengths_[static_cast<unsigned char>(rest[0])]) {
    if (length > rest.size()) continue;
    const auto found = patterns_.find(rest.substr(0, length));
    if (found != patterns_.end()) return &found->second;
  }
  return nullptr;
}

std::vector<TextSection> TokenFinder::sections(std::string_view text) const {
  std::vector<TextSection> sections;
  size_t done = 0;
  const auto add_text = [&](size_t end) {
    if (done < end) sections.push_back({text.substr(done, end - done)});
  };
  for (size_t at = 0; !patterns_.empty() && at < text.size();) {
    const Pattern* const found = longest_at(text.substr(at));
    if (found == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + found->bytes;
    at = end;
    if (found->single_word) {
      const bool inside =
          (begin > 0 && is_of_word(character_at(text, character_before(text, begin)))) ||
          (end < text.size() && is_of_word(character_at(text, end)));
      if (inside) continue;
    }
    // The token before may have taken the white space already, or this place.
    while (found->lstrip && begin > done) {
      const size_t before = character_before(text, begin);
      if (!is_white_space(character_at(text, before))) break;
      begin = before;
    }
    for (size_t next = end; found->rstrip && end < text.size(); end = next) {
      if (!is_white_space(next_code_point(text, next))) break;
    }
    add_text(begin);
    sections.push_back({text.substr(begin, end - begin), found->id});
    done = end;
  }
  add_text(text.size());
  return sections;
}

}  // namespace tapestry::tokenizers
