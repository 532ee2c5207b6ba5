#include "apps/tasks/alignment.h"

#include <set>
#include <string_view>

#include "core/error.h"
#include "data/utf8.h"

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

}  // namespace

std::vector<int32_t> word_numbers(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::vector<int32_t> numbers;
  int32_t word = -1;
  bool between = true;  // words: white space or nothing came before
  for (const int32_t id : ids) {
    const std::string piece = text_of(tokenizer, id);
    if (is_blank(piece)) {
      numbers.push_back(-1);
      between = true;
      continue;
    }
    if (between || piece[0] == ' ') ++word;
    between = false;
    numbers.push_back(word);
  }
  return numbers;
}

std::vector<WordScore> word_scores(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                   const std::vector<double>& token_log_probabilities) {
  const std::vector<int32_t> numbers = word_numbers(tokenizer, ids);
  std::vector<WordScore> words;
  std::vector<int32_t> pieces;
  double waiting = 0;  // of white space
  const auto finish = [&] {
    if (!words.empty()) words.back().text = tokenizer.decode(pieces);
    pieces.clear();
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    const double log_probability = token_log_probabilities.at(i);
    if (numbers[i] < 0) {
      waiting += log_probability;
      continue;
    }
    if (static_cast<size_t>(numbers[i]) == words.size()) {
      finish();
      words.push_back({"", waiting});
      waiting = 0;
    }
    words.back().log_probability += log_probability;
    pieces.push_back(ids[i]);
  }
  finish();
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
