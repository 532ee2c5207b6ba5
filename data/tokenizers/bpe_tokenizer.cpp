// Byte-pair encoding as a tokenizer. A text is normalised and split at spaces; U+2581 in front of a
// word stands for its space. A word is split where letters, digits and other characters meet: no
// merge goes over such a border, so that a piece never joins a word and its punctuation.
#include <algorithm>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/tokenizers/bpe_model.h"
#include "data/tokenizers/normalization.h"
#include "data/tokenizers/parts/added_tokens.h"
#include "data/tokenizers/sampling/merge_sampler.h"
#include "data/tokenizers/tokenizer_types.h"
#include "data/tokenizers/training_lines.h"
#include "data/tokenizers/word_cache.h"
#include "data/tokenizers/word_parts.h"

namespace tapestry::tokenizers {
namespace {

// SentencePiece writes the same for an unknown piece.

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(const BpeModel& model)
      : bytes_(model.serialized()),
        normalizer_(model.normalization),
        vocabulary_(model),
        merger_(merges_of(model, vocabulary_)) {
    if (model.mask) mask_id_ = vocabulary_.mask();
    for (int64_t i = 0; i < model.sentinels; ++i) {
      sentinel_ids_.push_back(vocabulary_.first_sentinel() + static_cast<int32_t>(i));
    }
    add_symbols(model.symbols, vocabulary_.first_symbol(), symbols_);
    for (size_t i = 0; i < model.symbols.size(); ++i) {
      symbol_ids_.push_back(vocabulary_.first_symbol() + static_cast<int32_t>(i));
    }
    mark_ = vocabulary_.id_of(std::string(kSpacePiece));
    one_of_two_ = model.one_of_two;
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    return encode(text, /*begins_word=*/true);
  }
  std::vector<int32_t> encode_continuation(std::string_view text) const override {
    return encode(text, /*begins_word=*/false);
  }

  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    for (size_t begin = 0; begin < text.size();) {
      const size_t word = std::min(text.find_first_not_of(' ', begin), text.size());
      const size_t end = std::min(text.find(' ', word), text.size());
      place_word(text.substr(word, end - word), static_cast<int64_t>(begin),
                 static_cast<int64_t>(word), tokens);
      begin = end;
    }
    return tokens;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text, bytes;
    bool begins = false;  // the text, with a word
    const auto flush = [&] {
      for (size_t i = 0; i < bytes.size();) append_utf8(text, next_code_point(bytes, i));
      bytes.clear();
    };
    for (const int32_t id : ids) {
      check_id(id);
      if (vocabulary_.is_byte(id)) {
        bytes.push_back(vocabulary_.byte(id));
        continue;
      }
      flush();
      if (id == kUnkId) text += kUnknownText;
      if (vocabulary_.is_symbol(id)) text += vocabulary_.piece(id);
      if (!vocabulary_.is_text(id)) continue;
      std::string_view piece = vocabulary_.piece(id);
      // A piece has the mark in front or nowhere.
      if (piece.starts_with(kSpacePiece)) {
        begins = begins || text.empty();
        text.push_back(' ');
        piece.remove_prefix(kSpacePiece.size());
      }
      text += piece;
    }
    flush();
    if (begins) text.erase(0, 1);
    return text;
  }

  int64_t vocab_size() const override { return vocabulary_.size(); }
  void forget_words() const override { cache_.clear(); }
  std::string piece(int32_t id) const override {
    check_id(id);
    return vocabulary_.piece(id);
  }
  const std::string& serialized() const override { return bytes_; }
  bool starts_word(int32_t id) const override { return piece(id).starts_with(kSpacePiece); }

  std::shared_ptr<const SubwordSampler> sampler(const SubwordSampling& how) const override {
    expect_dropout(how);
    MergePieces pieces;
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      std::vector<int32_t>& characters = pieces.characters.emplace_back();
      if (vocabulary_.is_text(id)) vocabulary_.split(vocabulary_.piece(id), characters);
      pieces.begins_word.push_back(vocabulary_.piece(id).starts_with(kSpacePiece) ? 1 : 0);
    }
    return std::make_shared<MergeSampler>(merger_, std::move(pieces), how.dropout);
  }

  bool has_ids_of(const Tokenizer& other) const override {
    const auto* const side = dynamic_cast<const BpeTokenizer*>(&other);
    return this == &other || (side != nullptr && one_of_two_ && side->one_of_two_ &&
                              vocabulary_.pieces() == side->vocabulary_.pieces());
  }

 private:
  static std::vector<bpe::Merge> merges_of(const BpeModel& model, BpeVocabulary& vocabulary) {
    std::vector<bpe::Merge> merges;
    merges.reserve(model.merges.size());
    for (const auto& [left, right] : model.merges) {
      merges.push_back(vocabulary.add({vocabulary.id_of(left), vocabulary.id_of(right)}));
    }
    return merges;
  }

  std::vector<int32_t> encode(std::string_view text, bool begins) const {
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 3);
    for (const TextSection& section : symbols_.sections(text)) {
      if (section.id < 0) {
        begins = append(section.text, begins, ids);
        continue;
      }
      // Its mark is a token of its own, as with SentencePiece.
      if (begins) ids.push_back(mark_);
      ids.push_back(section.id);
      begins = false;
    }
    return ids;
  }

  // Appends the tokens of a text without symbols. Returns true if the following text begins a word.
  bool append(std::string_view text, bool begins_word, std::vector<int32_t>& ids) const {
    std::string buffer;
    const std::string_view normalized = normalizer_(text, buffer);
    for_each_part(normalized, begins_word, false, [&](std::string_view part, bool begins) {
      cache_.with(
          part, begins, [&](std::vector<int32_t>& made) { encode_part(part, begins, made); },
          [&](std::span<const int32_t> found) {
            // A run of unknown characters is one unk.
            const bool joins = !ids.empty() && ids.back() == kUnkId && found.front() == kUnkId;
            ids.insert(ids.end(), found.begin() + (joins ? 1 : 0), found.end());
          });
    });
    return normalized.empty() ? begins_word : normalized.back() == ' ';
  }

  // Appends the tokens of a word that begins at `at`. The spaces before it, from `begin` on, belong
  // to its first token.
  void place_word(std::string_view word, int64_t begin, int64_t at,
                  std::vector<PlacedToken>& tokens) const {
    bool begins = true;
    for (const TextSection& section : symbols_.sections(word)) {
      if (section.id < 0) {
        place_text(section.text, begins, begin, at, tokens);
      } else {
        if (begins) tokens.push_back({mark_, std::exchange(begin, at), at});
        tokens.push_back({section.id, begin, at + std::ssize(section.text)});
      }
      begins = false;
      at += std::ssize(section.text);
      begin = at;
    }
  }

  // The same for a part of a word without symbols. If normalisation changes it, each token gets the
  // place of the whole part.
  void place_text(std::string_view word, bool begins, int64_t begin, int64_t at,
                  std::vector<PlacedToken>& tokens) const {
    const int64_t end = at + std::ssize(word);
    std::string buffer;
    const bool changes = normalizer_(word, buffer) != word;
    std::vector<int64_t> unknown = changes ? std::vector<int64_t>() : unknown_runs(word);
    auto next_unknown = unknown.begin();
    std::vector<int32_t> ids;
    append(word, begins, ids);
    for (const int32_t id : ids) {
      if (changes) {
        at = end;
      } else if (id == kUnkId) {
        at += *next_unknown++;
      } else if (vocabulary_.is_byte(id)) {
        ++at;
      } else {
        const std::string& piece = vocabulary_.piece(id);
        at += std::ssize(piece) - (piece.starts_with(kSpacePiece) ? std::ssize(kSpacePiece) : 0);
      }
      tokens.push_back({id, begin, at});
      begin = at;
    }
  }

  // The bytes of each run of unknown characters, which is one token.
  std::vector<int64_t> unknown_runs(std::string_view word) const {
    std::vector<int64_t> runs;
    std::vector<int32_t> ids;
    bool before = false;
    for (size_t i = 0; i < word.size();) {
      const size_t start = i;
      next_code_point(word, i);
      ids.clear();
      vocabulary_.split(word.substr(start, i - start), ids);
      const bool unknown = ids[0] == kUnkId;
      if (unknown && !before) runs.push_back(0);
      if (unknown) runs.back() += static_cast<int64_t>(i - start);
      before = unknown;
    }
    return runs;
  }

  void encode_part(std::string_view part, bool begins, std::vector<int32_t>& ids) const {
    if (begins) vocabulary_.split(kSpacePiece, ids);
    vocabulary_.split(part, ids);
    merger_.apply(ids);
    const auto both_unknown = [](int32_t a, int32_t b) { return a == kUnkId && b == kUnkId; };
    ids.erase(std::unique(ids.begin(), ids.end(), both_unknown), ids.end());
  }

  void check_id(int32_t id) const {
    check(id >= 0 && id < vocab_size(), "tokenizer", "ids must be in [0, ", vocab_size(), "), got ",
          id, '.');
  }

  std::string bytes_;
  Normalizer normalizer_;
  BpeVocabulary vocabulary_;
  bpe::Merger merger_;
  TokenFinder symbols_;
  int32_t mark_ = 0;  // id of U+2581 as a word of its own
  bool one_of_two_ = false;
  mutable WordCache cache_;
};

// Counts each part of a word in the text, with its mark in front.
std::unordered_map<std::string, int64_t> count_parts(const std::vector<std::string>& lines,
                                                     const TokenizerOptions& options) {
  std::unordered_map<std::string, int64_t> counts;
  std::string buffer, key;
  const Normalizer normalizer(options.normalization);
  TokenFinder symbols;
  add_symbols(options.user_symbols, 0, symbols);
  for (const std::string& line : lines) {
    bool first = true;
    for (const TextSection& section : symbols.sections(line)) {
      const bool begins_word = std::exchange(first, false);
      if (section.id >= 0) continue;
      const std::string_view text = normalizer(section.text, buffer);
      for_each_part(text, begins_word, false, [&](std::string_view part, bool begins) {
        key = begins ? kSpacePiece : std::string_view();
        key += part;
        ++counts[key];
      });
    }
  }
  return counts;
}

// The most frequent characters that are the given share of the text, ascending; of equally frequent
// ones the first in Unicode. U+2581 is always one of them.
std::vector<char32_t> characters_of(const std::unordered_map<std::string, int64_t>& parts,
                                    double coverage) {
  std::unordered_map<char32_t, int64_t> counts;
  int64_t total = 0;
  for (const auto& [part, count] : parts) {
    for (size_t i = 0; i < part.size(); total += count) counts[next_code_point(part, i)] += count;
  }
  size_t start = 0;
  const char32_t mark = next_code_point(kSpacePiece, start);
  std::vector<std::pair<int64_t, char32_t>> by_count;
  for (const auto& [c, count] : counts) by_count.emplace_back(-count, c);
  std::sort(by_count.begin(), by_count.end());
  std::vector<char32_t> kept;
  int64_t covered = 0;
  for (const auto& [negative, c] : by_count) {
    if (static_cast<double>(covered) >= coverage * static_cast<double>(total) && c != mark)
      continue;
    covered -= negative;
    kept.push_back(c);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

// Adds a piece for each merge until the vocabulary is full. Among equally frequent pairs the
// shorter one goes first, in characters, then the first in the alphabet, as in SentencePiece
// (Sennrich et al. have no rule); among pairs with one text the one with the shorter left side.
class GrowingVocabulary : public bpe::Alphabet {
 public:
  GrowingVocabulary(BpeVocabulary& vocabulary, int64_t size)
      : vocabulary_(vocabulary), size_(size) {}

  std::optional<bpe::Symbol> merge(const bpe::Pair& pair) override {
    if (vocabulary_.size() >= size_) return std::nullopt;
    return vocabulary_.add(pair).result;
  }
  bool goes_before(const bpe::Pair& a, const bpe::Pair& b) const override {
    const std::string text_a = text_of(a), text_b = text_of(b);
    const int64_t length_a = count_code_points(text_a), length_b = count_code_points(text_b);
    if (length_a != length_b) return length_a < length_b;
    if (text_a != text_b) return text_a < text_b;
    return vocabulary_.piece(a.left).size() < vocabulary_.piece(b.left).size();
  }

 private:
  std::string text_of(const bpe::Pair& pair) const {
    return vocabulary_.piece(pair.left) + vocabulary_.piece(pair.right);
  }

  BpeVocabulary& vocabulary_;
  int64_t size_;
};

// The words of the text in symbols; unknown characters part them.
std::vector<bpe::Word> words_of(const std::unordered_map<std::string, int64_t>& parts,
                                const BpeVocabulary& vocabulary) {
  std::vector<bpe::Word> words;
  std::vector<int32_t> ids;
  for (const auto& [part, count] : parts) {
    ids.clear();
    vocabulary.split(part, ids);
    bpe::Word word{{}, count};
    const auto finish = [&] {
      if (word.symbols.size() > 1) words.push_back(word);
      word.symbols.clear();
    };
    for (const int32_t id : ids) {
      if (vocabulary.is_text(id)) {
        word.symbols.push_back(id);
      } else {
        finish();
      }
    }
    finish();
  }
  return words;
}

}  // namespace

std::shared_ptr<const Tokenizer> train_bpe(const TokenizerOptions& options, const LineSource& lines,
                                           uint64_t seed) {
  const auto parts = count_parts(training_lines(options, lines, seed), options);
  if (parts.empty()) fail(ErrorKind::kData, "[tokenizer] expected words to learn from, got none.");
  BpeModel model{.normalization = options.normalization,
                 .byte_fallback = options.byte_fallback,
                 .mask = options.mask_piece,
                 .sentinels = options.sentinels,
                 .symbols = options.user_symbols,
                 .characters = characters_of(parts, options.character_coverage)};
  BpeVocabulary vocabulary(model);
  if (vocabulary.size() > options.vocab_size) {
    fail_too_small(options, std::to_string(vocabulary.size()));
  }
  GrowingVocabulary alphabet(vocabulary, options.vocab_size);
  for (const bpe::Merge& merge : bpe::learn(words_of(parts, vocabulary), alphabet)) {
    model.merges.emplace_back(vocabulary.piece(merge.pair.left),
                              vocabulary.piece(merge.pair.right));
  }
  if (vocabulary.size() < options.vocab_size) {
    fail_too_large(options, std::to_string(vocabulary.size()));
  }
  return std::make_shared<BpeTokenizer>(model);
}

std::shared_ptr<const Tokenizer> load_bpe(const std::string& bytes, const std::string& name) {
  return std::make_shared<BpeTokenizer>(BpeModel::parse(bytes, name));
}

std::shared_ptr<const Tokenizer> bpe_side(const std::string& bytes,
                                          const std::string& normalization) {
  BpeModel model = BpeModel::parse(bytes, "the tokenizer");
  model.normalization = normalization;
  model.one_of_two = true;
  return std::make_shared<BpeTokenizer>(model);
}

}  // namespace tapestry::tokenizers
