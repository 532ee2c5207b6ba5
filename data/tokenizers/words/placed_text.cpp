#include "data/tokenizers/words/placed_text.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// The piece of a token with a space for SentencePiece's U+2581.
std::string text_of(const Tokenizer& tokenizer, int32_t id) {
  static constexpr std::string_view kSpacePiece = "\xE2\x96\x81";
  const std::string piece = tokenizer.piece(id);
  std::string text;
  for (size_t begin = 0; begin < piece.size();) {
    const size_t end = std::min(piece.find(kSpacePiece, begin), piece.size());
    text.append(piece, begin, end - begin);
    if (end < piece.size()) text += ' ';
    begin = end + kSpacePiece.size();
  }
  return text;
}

bool parts_words(char c) { return c == ' ' || c == '\t'; }

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

std::vector<std::pair<size_t, size_t>> word_places(std::string_view text) {
  std::vector<std::pair<size_t, size_t>> words;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    for (end = begin; end < text.size() && !parts_words(text[end]);) ++end;
    if (end > begin) words.emplace_back(begin, end);
    if (end < text.size()) ++end;
  }
  return words;
}

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
  const auto words = word_places(text.text);
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

}  // namespace tapestry
