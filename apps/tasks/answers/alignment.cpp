#include "apps/tasks/answers/alignment.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// The piece of a token with a space for SentencePiece's U+2581.
std::string text_of(const Tokenizer& tokenizer, int32_t id) {
  static constexpr std::string_view kSpacePiece = "\xE2\x96\x81";
  std::string piece = tokenizer.piece(id);
  for (size_t at; (at = piece.find(kSpacePiece)) != std::string::npos;) {
    piece.replace(at, kSpacePiece.size(), " ");
  }
  return piece;
}

bool parts_words(char c) { return c == ' ' || c == '\t'; }

// The bytes [begin, end) of each word.
std::vector<std::pair<size_t, size_t>> words_of(const std::string& text) {
  std::vector<std::pair<size_t, size_t>> words;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    for (end = begin; end < text.size() && !parts_words(text[end]);) ++end;
    if (end > begin) words.emplace_back(begin, end);
    if (end < text.size()) ++end;
  }
  return words;
}

// Finds places by the pieces of the tokens, if the pieces in a row are the text except for spaces
// at its ends. Otherwise returns none.
std::vector<PlacedToken> places_of_pieces(const Tokenizer& tokenizer,
                                          const std::vector<int32_t>& ids,
                                          const std::string& text) {
  const auto size = std::ssize(text);
  std::string all;
  std::vector<int64_t> ends;
  for (const int32_t id : ids) {
    all += text_of(tokenizer, id);
    ends.push_back(std::ssize(all));
  }
  const int64_t lead = all.starts_with(' ') && !text.starts_with(' ') ? 1 : 0;
  if (std::ssize(all) < lead + size ||
      all.compare(static_cast<size_t>(lead), text.size(), text) != 0 ||
      all.find_first_not_of(' ', static_cast<size_t>(lead + size)) != std::string::npos) {
    return {};
  }
  std::vector<PlacedToken> tokens;
  int64_t begin = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t end = std::clamp<int64_t>(ends[i] - lead, 0, size);
    tokens.push_back({ids[i], begin, end});
    begin = end;
  }
  return tokens;
}

// Finds places by decoding: a token ends where the decoded text of the tokens so far is no prefix
// of the text.
std::vector<PlacedToken> places_of_decoding(const Tokenizer& tokenizer,
                                            const std::vector<int32_t>& ids,
                                            const std::string& text) {
  std::vector<PlacedToken> tokens;
  std::vector<int32_t> first;
  int64_t begin = 0;
  for (const int32_t id : ids) {
    first.push_back(id);
    const std::string decoded = tokenizer.decode(first);
    const auto same = std::ranges::mismatch(text, decoded).in1 - text.begin();
    const int64_t end = std::max<int64_t>(begin, same);
    tokens.push_back({id, begin, end});
    begin = end;
  }
  return tokens;
}

PlacedText placed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, std::string text) {
  std::vector<PlacedToken> tokens = places_of_pieces(tokenizer, ids, text);
  if (tokens.empty()) tokens = places_of_decoding(tokenizer, ids, text);
  return {std::move(text), std::move(tokens)};
}

}  // namespace

std::vector<int32_t> PlacedText::ids() const {
  std::vector<int32_t> all;
  all.reserve(tokens.size());
  for (const PlacedToken& token : tokens) all.push_back(token.id);
  return all;
}

PlacedText placed_source(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  try {
    PlacedText told{text, tokenizer.encode_with_places(text)};
    if (told.ids() == ids) return told;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;  // the tokenizer has no places
  }
  return placed(tokenizer, ids, text);
}

PlacedText placed_output(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  return placed(tokenizer, ids, tokenizer.decode(ids));
}

std::vector<int32_t> word_numbers(const Tokenizer& tokenizer, const PlacedText& text) {
  const auto words = words_of(text.text);
  std::vector<int32_t> numbers;
  for (const PlacedToken& token : text.tokens) {
    const auto begin = static_cast<size_t>(token.begin), end = static_cast<size_t>(token.end);
    // The first word that ends behind the beginning of the token.
    const auto found =
        std::ranges::upper_bound(words, begin, {}, [](const auto& w) { return w.second; });
    const bool white = strip(text_of(tokenizer, token.id)).empty();
    // A token without bytes belongs to the next word, or to the last one.
    const bool inside = end == begin ? !words.empty() : found != words.end() && found->first < end;
    if (white || !inside) {
      numbers.push_back(-1);
    } else {
      numbers.push_back(static_cast<int32_t>(
          std::min<std::ptrdiff_t>(found - words.begin(), std::ssize(words) - 1)));
    }
  }
  return numbers;
}

std::vector<WordScore> word_scores(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                   const std::vector<double>& token_log_probabilities) {
  const PlacedText output = placed_output(tokenizer, ids);
  const std::vector<int32_t> numbers = word_numbers(tokenizer, output);
  std::vector<WordScore> words;
  for (const auto& [begin, end] : words_of(output.text)) {
    words.push_back({output.text.substr(begin, end - begin)});
  }
  double waiting = 0;  // of white space
  for (size_t i = 0; i < ids.size(); ++i) {
    waiting += token_log_probabilities.at(i);
    if (numbers[i] < 0) continue;
    words.at(static_cast<size_t>(numbers[i])).log_probability += waiting;
    waiting = 0;
  }
  if (!words.empty()) words.back().log_probability += waiting;
  return words;
}

Alignment hard_alignment(const Tensor& weights, const std::vector<int32_t>& source_units,
                         const std::vector<int32_t>& target_units) {
  const auto sources = std::ssize(source_units), targets = std::ssize(target_units);
  check(weights.shape() == Shape({targets + 1, sources + 1}), "alignment", "expected weights of ",
        targets, " + 1 and ", sources, " + 1 tokens, got ", weights.shape(), '.');
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (int64_t t = 0; t < targets; ++t) {
    if (target_units[t] < 0) continue;
    const double* const row = weights.data<double>() + t * (sources + 1);
    int64_t best = sources;  // eos
    for (int64_t s = 0; s < sources; ++s) {
      if (source_units[s] >= 0 && row[s] > row[best]) best = s;
    }
    if (best < sources) pairs.emplace(source_units[best], target_units[t]);
  }
  return {pairs.begin(), pairs.end()};
}

std::string pharaoh(const Alignment& alignment) {
  std::string text;
  for (const auto& [source, target] : alignment) {
    text += concat(text.empty() ? "" : " ", source, '-', target);
  }
  return text;
}

}  // namespace tapestry
