// Every character is a token. The serialized form is text with one piece per line, in the order of
// the ids after the four reserved ones:
//
//   tapestry characters 1
//   <mask>
//   symbol <BT>
//   U+000A
//   U+0020
#include <algorithm>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/tokenizers/parts/added_tokens.h"
#include "data/tokenizers/tokenizer_types.h"

namespace tapestry::tokenizers {
namespace {

constexpr std::string_view kCharactersHeader = "tapestry characters 1\n";
constexpr std::string_view kSymbol = "symbol ";

class CharacterTokenizer : public Tokenizer {
 public:
  // `characters` ascend.
  CharacterTokenizer(bool mask, int64_t sentinels, std::vector<std::string> symbols,
                     std::vector<char32_t> characters)
      : characters_(std::move(characters)), symbols_(std::move(symbols)) {
    bytes_ = kCharactersHeader;
    int32_t next = kEosId + 1;
    if (mask) {
      mask_id_ = next++;
      bytes_ += std::string(kMaskPiece) + '\n';
    }
    for (int64_t i = 0; i < sentinels; ++i) {
      sentinel_ids_.push_back(next++);
      bytes_ += sentinel_piece(i) + '\n';
    }
    add_symbols(symbols_, next, finder_);
    for (const std::string& symbol : symbols_) {
      symbol_ids_.push_back(next++);
      bytes_ += concat(kSymbol, symbol, '\n');
    }
    first_ = next;
    ids_.assign(static_cast<size_t>(characters_.back()) + 1, kUnkId);
    for (const char32_t c : characters_) {
      ids_[c] = next++;
      bytes_ += code_point_name(c) + '\n';
    }
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const TextSection& section : finder_.sections(text)) {
      if (section.id >= 0) ids.push_back(section.id);
      for (size_t i = 0; section.id < 0 && i < section.text.size();) {
        const char32_t c = next_code_point(section.text, i);
        ids.push_back(c < ids_.size() ? ids_[c] : kUnkId);
      }
    }
    return ids;
  }

  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    tokens.reserve(text.size());
    for (const TextSection& section : finder_.sections(text)) {
      const int64_t at = section.text.data() - text.data();
      if (section.id >= 0) tokens.push_back({section.id, at, at + std::ssize(section.text)});
      for (size_t i = 0; section.id < 0 && i < section.text.size();) {
        const int64_t begin = at + static_cast<int64_t>(i);
        const char32_t c = next_code_point(section.text, i);
        tokens.push_back({c < ids_.size() ? ids_[c] : kUnkId, begin, at + static_cast<int64_t>(i)});
      }
    }
    return tokens;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const int32_t id : ids) {
      check_id(id);
      if (id >= first_) append_utf8(text, character(id));
      if (is_symbol(id)) text += symbol(id);
      if (id == kUnkId) append_utf8(text, kReplacementCharacter);
    }
    return text;
  }

  int64_t vocab_size() const override { return first_ + static_cast<int64_t>(characters_.size()); }

  std::string piece(int32_t id) const override {
    check_id(id);
    if (id <= kEosId) return reserved_pieces()[static_cast<size_t>(id)];
    if (id == mask_id_) return kMaskPiece;
    if (is_symbol(id)) return symbol(id);
    if (id < first_) return sentinel_piece(id - sentinel_ids_.front());
    std::string text;
    append_utf8(text, character(id));
    return text;
  }

  const std::string& serialized() const override { return bytes_; }

  bool starts_word(int32_t id) const override {
    check_id(id);
    return id >= first_ || is_symbol(id);
  }

 private:
  void check_id(int32_t id) const {
    check(id >= 0 && id < vocab_size(), "tokenizer", "ids must be in [0, ", vocab_size(), "), got ",
          id, '.');
  }
  char32_t character(int32_t id) const { return characters_[static_cast<size_t>(id - first_)]; }

  bool is_symbol(int32_t id) const { return id < first_ && id >= first_ - std::ssize(symbols_); }
  const std::string& symbol(int32_t id) const {
    return symbols_[symbols_.size() - static_cast<size_t>(first_ - id)];
  }

  std::vector<char32_t> characters_;  // ids first_, first_ + 1, ...
  std::vector<int32_t> ids_;          // code point -> id
  int32_t first_ = 0;
  std::vector<std::string> symbols_;  // ids before first_
  TokenFinder finder_;                // of these
  std::string bytes_;
};

}  // namespace

std::shared_ptr<const Tokenizer> train_characters(const TokenizerOptions& options,
                                                  const LineSource& lines, uint64_t) {
  std::vector<bool> seen(kMostCodePoint + 1);
  std::string line;
  TokenFinder symbols;
  add_symbols(options.user_symbols, 0, symbols);
  while (lines(line)) {
    for (const TextSection& section : symbols.sections(line)) {
      if (section.id >= 0) continue;
      for (size_t i = 0; i < section.text.size();) seen[next_code_point(section.text, i)] = true;
    }
  }
  std::vector<char32_t> characters;
  for (char32_t c = 0; c <= kMostCodePoint; ++c) {
    if (seen[c]) characters.push_back(c);
  }
  if (characters.empty()) {
    fail(ErrorKind::kData, "[tokenizer] expected text to learn from, got none.");
  }
  return std::make_shared<CharacterTokenizer>(options.mask_piece, options.sentinels,
                                              options.user_symbols, std::move(characters));
}

bool is_characters(const std::string& bytes) { return bytes.starts_with(kCharactersHeader); }

std::shared_ptr<const Tokenizer> load_characters(const std::string& bytes,
                                                 const std::string& name) {
  bool mask = false;
  int64_t sentinels = 0;
  TokenizerOptions found;
  std::vector<char32_t> characters;
  int64_t number = 1;
  for (size_t begin = kCharactersHeader.size(); begin < bytes.size();) {
    ++number;
    const size_t end = bytes.find('\n', begin);
    const std::string line = bytes.substr(begin, end - begin);
    begin = end == std::string::npos ? bytes.size() : end + 1;
    char32_t c = 0;
    const bool first = characters.empty() && found.user_symbols.empty();
    if (first && sentinels == 0 && !mask && line == kMaskPiece) {
      mask = true;
    } else if (first && line == sentinel_piece(sentinels)) {
      ++sentinels;
    } else if (characters.empty() && line.starts_with(kSymbol)) {
      found.user_symbols.push_back(line.substr(kSymbol.size()));
      validate_symbols(found, OptionReport([&](const std::string&, const std::string& problem) {
                         fail(ErrorKind::kData, "[tokenizer] ", name, ':', number, ' ', problem);
                       }));
    } else if (end != std::string::npos && parse_code_point(line, c) &&
               (characters.empty() || c > characters.back())) {
      characters.push_back(c);
    } else {
      fail(ErrorKind::kData, "[tokenizer] ", name, ':', number,
           " must name a special piece or the next character, got '", line, "'.");
    }
  }
  if (characters.empty()) {
    fail(ErrorKind::kData, "[tokenizer] ", name, " must name at least one character, got none.");
  }
  return std::make_shared<CharacterTokenizer>(mask, sentinels, std::move(found.user_symbols),
                                              std::move(characters));
}

}  // namespace tapestry::tokenizers
