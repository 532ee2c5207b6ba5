// Whole words as tokens: those of the text that come most often. A text is normalised and split at
// spaces and where letters and digits meet; each other character is a word of its own. U+2581 in
// front of a word stands for its space. The file:
//
//   tapestry words 1
//   normalization nmt_nfkc
//   one_of_two false
//   mask false
//   sentinels 0
//   symbols 1
//   <BT>
//   words 2
//   ▁the
//   .
//
// Ids: pad, unk, bos, eos; the mask; the sentinels; the symbols; U+2581 without a word; the words.
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/tokenizers/bpe_model.h"
#include "data/tokenizers/normalization.h"
#include "data/tokenizers/parts/added_tokens.h"
#include "data/tokenizers/tokenizer_types.h"
#include "data/tokenizers/training_lines.h"
#include "data/tokenizers/word_parts.h"

namespace tapestry::tokenizers {
namespace {

constexpr std::string_view kWordsHeader = "tapestry words 1";

CharacterClass class_of(char32_t c) {
  const auto mask = U_GET_GC_MASK(static_cast<UChar32>(c));
  if ((mask & (U_GC_L_MASK | U_GC_M_MASK)) != 0) return CharacterClass::kLetter;
  return (mask & U_GC_N_MASK) != 0 ? CharacterClass::kDigit : CharacterClass::kOther;
}

const std::array<CharacterClass, 128> kAsciiClasses = [] {
  std::array<CharacterClass, 128> classes{};
  for (char32_t c = 0; c < classes.size(); ++c) classes[c] = class_of(c);
  return classes;
}();

struct WordModel {
  std::string normalization;
  bool one_of_two = false;
  bool mask = false;
  int64_t sentinels = 0;
  std::vector<std::string> symbols;
  std::vector<std::string> words;

  std::string serialized() const {
    const auto name_of = [](bool value) { return value ? "true" : "false"; };
    std::string bytes =
        concat(kWordsHeader, "\nnormalization ", normalization, "\none_of_two ",
               name_of(one_of_two), "\nmask ", name_of(mask), "\nsentinels ", sentinels, '\n',
               symbol_lines(symbols), "words ", words.size(), '\n');
    for (const std::string& word : words) bytes += word + '\n';
    return bytes;
  }

  static WordModel parse(const std::string& bytes, const std::string& name) {
    TokenizerLines lines(bytes, name);
    WordModel model;
    const std::string header = lines.next();
    if (header != kWordsHeader) {
      lines.refuse(header, concat("be '", kWordsHeader, "', the version that is known"));
    }
    model.normalization = lines.normalization_of("normalization");
    model.one_of_two = lines.flag_of("one_of_two");
    model.mask = lines.flag_of("mask");
    model.sentinels = lines.count_of("sentinels", TokenizerOptions::kMostSentinels);
    model.symbols = lines.symbols_of("symbols");
    const int64_t words = lines.count_of("words", TokenizerOptions::kMostPieces);
    std::set<std::string> seen = {"", std::string(kSpacePiece)};
    for (int64_t i = 0; i < words; ++i) {
      const std::string word = lines.next();
      if (!seen.insert(word).second) lines.refuse(word, "name the next word");
      model.words.push_back(word);
    }
    lines.expect_end();
    return model;
  }
};

class WordTokenizer : public Tokenizer {
 public:
  explicit WordTokenizer(const WordModel& model)
      : bytes_(model.serialized()),
        normalizer_(model.normalization),
        one_of_two_(model.one_of_two),
        pieces_(reserved_pieces()) {
    const auto next = [this] { return static_cast<int32_t>(pieces_.size()); };
    if (model.mask) {
      mask_id_ = next();
      pieces_.emplace_back(kMaskPiece);
    }
    for (int64_t i = 0; i < model.sentinels; ++i) {
      sentinel_ids_.push_back(next());
      pieces_.push_back(sentinel_piece(i));
    }
    add_symbols(model.symbols, next(), symbols_);
    for (const std::string& symbol : model.symbols) {
      symbol_ids_.push_back(next());
      pieces_.push_back(symbol);
    }
    mark_ = next();
    pieces_.emplace_back(kSpacePiece);
    for (const std::string& word : model.words) {
      ids_.emplace(word, next());
      pieces_.push_back(word);
    }
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    return ids_of(placed(text, true));
  }
  std::vector<int32_t> encode_continuation(std::string_view text) const override {
    return ids_of(placed(text, false));
  }
  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    return placed(text, true);
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    bool begins = false;  // the text, with a word
    for (const int32_t id : ids) {
      std::string_view word = piece_of(id);
      if (id == kUnkId) text += kUnknownText;
      if (is_special(id)) continue;
      if (word.starts_with(kSpacePiece)) {
        begins = begins || text.empty();
        text.push_back(' ');
        word.remove_prefix(kSpacePiece.size());
      }
      text += word;
    }
    if (begins) text.erase(0, 1);
    return text;
  }

  int64_t vocab_size() const override { return std::ssize(pieces_); }
  std::string piece(int32_t id) const override { return piece_of(id); }
  const std::string& serialized() const override { return bytes_; }
  // Every token except a symbol, whose mark is a token of its own.
  bool starts_word(int32_t id) const override {
    piece_of(id);
    return id >= mark_;
  }
  bool has_ids_of(const Tokenizer& other) const override {
    const auto* const side = dynamic_cast<const WordTokenizer*>(&other);
    return this == &other ||
           (side != nullptr && one_of_two_ && side->one_of_two_ && pieces_ == side->pieces_);
  }

 private:
  static std::vector<int32_t> ids_of(const std::vector<PlacedToken>& tokens) {
    std::vector<int32_t> ids;
    ids.reserve(tokens.size());
    for (const PlacedToken& token : tokens) ids.push_back(token.id);
    return ids;
  }

  const std::string& piece_of(int32_t id) const {
    check(id >= 0 && id < vocab_size(), "tokenizer", "ids must be in [0, ", vocab_size(), "), got ",
          id, '.');
    return pieces_[static_cast<size_t>(id)];
  }

  // White space that only normalisation knows ends a word both for encode() and for places, so a
  // text is cut at U+0020 first.
  std::vector<PlacedToken> placed(std::string_view text, bool begins) const {
    std::vector<PlacedToken> tokens;
    int64_t begin = 0;
    for (const TextSection& section : symbols_.sections(text)) {
      const int64_t at = section.text.data() - text.data();
      if (section.id >= 0) {
        if (begins) tokens.push_back({mark_, std::exchange(begin, at), at});
        begin = at + std::ssize(section.text);
        tokens.push_back({section.id, at, begin});
        begins = false;
        continue;
      }
      for (size_t i = 0; i < section.text.size();) {
        if (section.text[i] == ' ') {
          begins = true;
          ++i;
          continue;
        }
        const size_t end = std::min(section.text.find(' ', i), section.text.size());
        begins = place_word(section.text.substr(i, end - i), begins, at + static_cast<int64_t>(i),
                            begin, tokens);
        i = end;
      }
    }
    return tokens;
  }

  // Appends the tokens of a word at `at`; the first one takes the spaces from `begin` on, which
  // moves behind the word. If normalisation changes the word, each token gets all of it. Returns
  // true if the following text begins a word.
  bool place_word(std::string_view word, bool begins_word, int64_t at, int64_t& begin,
                  std::vector<PlacedToken>& tokens) const {
    std::string buffer, key;
    const std::string_view normalized = normalizer_(word, buffer);
    const bool changes = normalized != word;
    const int64_t end = at + std::ssize(word);
    for_each_part(normalized, begins_word, true, [&](std::string_view part, bool begins) {
      key = begins ? kSpacePiece : std::string_view();
      key += part;
      const auto found = ids_.find(key);
      at = changes ? end : at + std::ssize(part);
      tokens.push_back({found == ids_.end() ? kUnkId : found->second, begin, at});
      begin = at;
    });
    return normalized.empty() ? begins_word : normalized.back() == ' ';
  }

  std::string bytes_;
  Normalizer normalizer_;
  bool one_of_two_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, int32_t> ids_;  // of the words
  TokenFinder symbols_;
  int32_t mark_ = 0;
};

}  // namespace

CharacterClass next_class(std::string_view text, size_t& i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  if (byte < kAsciiClasses.size()) return ++i, kAsciiClasses[byte];
  return class_of(next_code_point(text, i));
}

std::shared_ptr<const Tokenizer> train_words(const TokenizerOptions& options,
                                             const LineSource& lines, uint64_t seed) {
  const Normalizer normalizer(options.normalization);
  TokenFinder symbols;
  add_symbols(options.user_symbols, 0, symbols);
  std::unordered_map<std::string, int64_t> counts;
  std::string buffer, key;
  for (const std::string& line : training_lines(options, lines, seed)) {
    bool first = true;
    for (const TextSection& section : symbols.sections(line)) {
      const bool begins_word = std::exchange(first, false);
      if (section.id >= 0) continue;
      const std::string_view text = normalizer(section.text, buffer);
      for_each_part(text, begins_word, true, [&](std::string_view part, bool begins) {
        key = begins ? kSpacePiece : std::string_view();
        key += part;
        ++counts[key];
      });
    }
  }
  counts.erase(std::string(kSpacePiece));
  if (counts.empty()) fail(ErrorKind::kData, "[tokenizer] expected words to learn from, got none.");
  std::vector<std::pair<int64_t, std::string>> by_count;
  for (const auto& [word, count] : counts) by_count.emplace_back(-count, word);
  std::sort(by_count.begin(), by_count.end());
  WordModel model{.normalization = options.normalization,
                  .mask = options.mask_piece,
                  .sentinels = options.sentinels,
                  .symbols = options.user_symbols,
                  .words = {}};
  const int64_t room = options.vocab_size - options.least_pieces();  // beside U+2581
  for (auto& [negative, word] : by_count) {
    if (std::ssize(model.words) >= room) break;
    model.words.push_back(std::move(word));
  }
  if (model.words.empty()) fail_too_small(options, std::to_string(options.least_pieces() + 1));
  return std::make_shared<WordTokenizer>(model);
}

bool is_words(const std::string& bytes) { return bytes.starts_with("tapestry words "); }

std::shared_ptr<const Tokenizer> load_words(const std::string& bytes, const std::string& name) {
  return std::make_shared<WordTokenizer>(WordModel::parse(bytes, name));
}

std::shared_ptr<const Tokenizer> words_side(const std::string& bytes,
                                            const std::string& normalization) {
  WordModel model = WordModel::parse(bytes, "the tokenizer");
  model.normalization = normalization;
  model.one_of_two = true;
  return std::make_shared<WordTokenizer>(model);
}

}  // namespace tapestry::tokenizers
