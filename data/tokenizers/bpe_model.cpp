#include "data/tokenizers/bpe_model.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/tokenizers/normalization.h"
#include "data/tokenizers/tokenizer_types.h"

namespace tapestry::tokenizers {
namespace {

constexpr std::string_view kMagic = "tapestry bpe ";
constexpr const char* kVersion = "1";
constexpr const char* kSecondVersion = "2";
constexpr int kBytes = 256;

const char* name_of(bool value) { return value ? "true" : "false"; }

}  // namespace

std::string TokenizerLines::next() {
  ++number_;
  const size_t end = bytes_.find('\n', at_);
  if (end == std::string::npos) {
    fail(ErrorKind::kData, "[tokenizer] ", name_, " is cut short: it ends ",
         at_ == bytes_.size() ? "before" : "within", " line ", number_, '.');
  }
  std::string line = bytes_.substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

void TokenizerLines::refuse(const std::string& line, const std::string& expected) const {
  fail(ErrorKind::kData, "[tokenizer] ", name_, ':', number_, " must ", expected, ", got '", line,
       "'.");
}

std::string TokenizerLines::value_of(const std::string& key) {
  const std::string line = next();
  if (!line.starts_with(key + ' ')) refuse(line, "give " + key);
  return line.substr(key.size() + 1);
}

int64_t TokenizerLines::count_of(const std::string& key, int64_t most) {
  const std::string text = value_of(key);
  int64_t count = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 0 || count > most) {
    refuse(key + ' ' + text, concat("give a number from 0 to ", most));
  }
  return count;
}

bool TokenizerLines::flag_of(const std::string& key) {
  const std::string text = value_of(key);
  if (text != "true" && text != "false") refuse(key + ' ' + text, "say true or false");
  return text == "true";
}

std::string TokenizerLines::normalization_of(const std::string& key) {
  std::string normalization = value_of(key);
  if (std::ranges::find(TokenizerOptions::kNormalizations, normalization) ==
      std::end(TokenizerOptions::kNormalizations)) {
    refuse(normalization, "name a normalization");
  }
  return normalization;
}

std::vector<std::string> TokenizerLines::symbols_of(const std::string& key) {
  TokenizerOptions options;
  const int64_t count = count_of(key, TokenizerOptions::kMostSymbols);
  for (int64_t i = 0; i < count; ++i) {
    options.user_symbols.push_back(next());
    const std::string& symbol = options.user_symbols.back();
    validate_symbols(options, OptionReport([&](const std::string&, const std::string& problem) {
                       refuse(symbol, "be a symbol that " + problem);
                     }));
  }
  return options.user_symbols;
}

void TokenizerLines::expect_end() const {
  if (at_ == bytes_.size()) return;
  fail(ErrorKind::kData, "[tokenizer] ", name_, " must end after line ", number_, ", got ",
       bytes_.size() - at_, " bytes more.");
}

std::string symbol_lines(const std::vector<std::string>& symbols) {
  std::string lines = concat("symbols ", symbols.size(), '\n');
  for (const std::string& symbol : symbols) lines += symbol + '\n';
  return lines;
}

std::string BpeModel::serialized() const {
  const bool second = one_of_two || !symbols.empty();
  std::string bytes = concat(kMagic, second ? kSecondVersion : kVersion, "\nnormalization ",
                             normalization, "\nbyte_fallback ", name_of(byte_fallback), "\nmask ",
                             name_of(mask), "\nsentinels ", sentinels, '\n');
  if (second) bytes += concat("one_of_two ", name_of(one_of_two), '\n') + symbol_lines(symbols);
  bytes += concat("characters ", characters.size(), '\n');
  for (const char32_t c : characters) bytes += code_point_name(c) + '\n';
  bytes += concat("merges ", merges.size(), '\n');
  for (const auto& [left, right] : merges) {
    bytes += left;
    bytes += ' ';
    bytes += right;
    bytes += '\n';
  }
  return bytes;
}

BpeModel BpeModel::parse(const std::string& bytes, const std::string& name) {
  TokenizerLines lines(bytes, name);
  BpeModel model;
  const std::string header = lines.next();
  const bool second = header == std::string(kMagic) + kSecondVersion;
  if (header != std::string(kMagic) + kVersion && !second) {
    lines.refuse(header, concat("be '", kMagic, kVersion, "' or '", kMagic, kSecondVersion,
                                "', the versions that are known"));
  }
  model.normalization = lines.normalization_of("normalization");
  model.byte_fallback = lines.flag_of("byte_fallback");
  model.mask = lines.flag_of("mask");
  model.sentinels = lines.count_of("sentinels", TokenizerOptions::kMostSentinels);
  if (second) {
    model.one_of_two = lines.flag_of("one_of_two");
    model.symbols = lines.symbols_of("symbols");
  }
  const int64_t characters = lines.count_of("characters", kMostCodePoint + 1);
  for (int64_t i = 0; i < characters; ++i) {
    const std::string line = lines.next();
    char32_t c = 0;
    if (!parse_code_point(line, c) || (!model.characters.empty() && c <= model.characters.back())) {
      lines.refuse(line, "name the next character");
    }
    model.characters.push_back(c);
  }
  BpeVocabulary vocabulary(model);
  if (vocabulary.id_of(std::string(kSpacePiece)) == kUnkId) {
    lines.refuse(concat(characters, " others"), "come after U+2581 among the characters");
  }
  std::unordered_set<bpe::Pair, bpe::PairHash> seen;
  const int64_t merges = lines.count_of("merges", TokenizerOptions::kMostPieces);
  for (int64_t i = 0; i < merges; ++i) {
    const std::string line = lines.next();
    const size_t space = line.find(' ');
    const std::string left = line.substr(0, space);
    const std::string right = space == std::string::npos ? "" : line.substr(space + 1);
    const bpe::Pair pair{vocabulary.id_of(left), vocabulary.id_of(right)};
    if (pair.left == kUnkId || pair.right == kUnkId || !seen.insert(pair).second) {
      lines.refuse(line, "name two pieces that are known by then, and a new pair");
    }
    vocabulary.add(pair);
    model.merges.emplace_back(left, right);
  }
  lines.expect_end();
  return model;
}

BpeVocabulary::BpeVocabulary(const BpeModel& model) : pieces_(reserved_pieces()) {
  const auto next = [&] { return static_cast<int32_t>(pieces_.size()); };
  if (model.mask) {
    mask_ = next();
    pieces_.emplace_back(kMaskPiece);
  }
  first_sentinel_ = next();
  for (int64_t i = 0; i < model.sentinels; ++i) pieces_.push_back(sentinel_piece(i));
  first_symbol_ = next();
  pieces_.insert(pieces_.end(), model.symbols.begin(), model.symbols.end());
  first_byte_ = next();
  if (model.byte_fallback) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    for (int byte = 0; byte < kBytes; ++byte) {
      pieces_.push_back(concat("<0x", kDigits[byte / 16], kDigits[byte % 16], '>'));
    }
  }
  first_character_ = next();
  ascii_.fill(kUnkId);
  for (const char32_t c : model.characters) {
    if (c < ascii_.size()) ascii_[c] = next();
    characters_.emplace(c, next());
    std::string text;
    append_utf8(text, c);
    add_text(text);
  }
}

void BpeVocabulary::add_text(const std::string& text) {
  if (ids_.emplace(text, static_cast<int32_t>(pieces_.size())).second) pieces_.push_back(text);
}

bpe::Merge BpeVocabulary::add(const bpe::Pair& pair) {
  const std::string text = piece(pair.left) + piece(pair.right);
  add_text(text);
  return {pair, id_of(text)};
}

int32_t BpeVocabulary::id_of(const std::string& text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? kUnkId : found->second;
}

void BpeVocabulary::split(std::string_view text, std::vector<int32_t>& ids) const {
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = next_code_point(text, i);
    int32_t id = kUnkId;
    if (c < ascii_.size()) {
      id = ascii_[c];
    } else if (const auto found = characters_.find(c); found != characters_.end()) {
      id = found->second;
    }
    if (id != kUnkId || first_byte_ == first_character_) {
      ids.push_back(id);
      continue;
    }
    for (const char byte : text.substr(begin, i - begin)) {
      ids.push_back(first_byte_ + static_cast<unsigned char>(byte));
    }
  }
}

bool is_bpe(const std::string& bytes) { return bytes.starts_with(kMagic); }

}  // namespace tapestry::tokenizers
