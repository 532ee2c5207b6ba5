#include "apps/tasks/answers/holes.h"

#include <algorithm>
#include <utility>

#include "apps/tasks/long_line.h"
#include "data/corpora/empty_text.h"
#include "data/tokenizers/special_words.h"

namespace tapestry {

MaskGuesser::MaskGuesser(const TextModel& model)
    : model_(model), with_masks_(with_special_words(model.tokenizers.source)) {}

std::vector<int32_t> MaskGuesser::encode(const std::string& line) const {
  std::vector<int32_t> ids = with_masks_->encode(line);
  if (is_empty_text(line, ids)) ids.clear();
  return ids;
}

std::vector<int32_t> MaskGuesser::framed(std::vector<int32_t> ids, int64_t number) const {
  const TextFrame frame = model_.tokenizers.source->special().masked();
  cut_long_line(ids, model_.config.model.longest_sequence() - frame.size(), place_of_line(number));
  return in_frame(frame, ids);
}

std::vector<std::vector<WordGuess>> MaskGuesser::guess(const std::vector<int32_t>& ids,
                                                       int64_t top_k) const {
  const Tokenizer& tokenizer = *model_.tokenizers.source;
  std::vector<std::vector<WordGuess>> all;
  for (const std::vector<Fill>& fills : fill_masks(model_, ids, top_k)) {
    std::vector<WordGuess>& guesses = all.emplace_back();
    for (const Fill& fill : fills) {
      std::string word = tokenizer.decode({fill.token});
      if (word.empty()) word = tokenizer.piece(fill.token);
      guesses.push_back({std::move(word), fill.probability});
    }
  }
  return all;
}

TextRestorer::TextRestorer(const Translator& models)
    : tokenizer_(*models.tokenizers().target),
      vocabulary_(tokenizer_, models.config().denoising),
      by_spans_(models.config().denoising.objective == "span_corruption") {}

std::vector<int32_t> TextRestorer::source(std::vector<int32_t> ids) const {
  const auto is_numbered = [&](int32_t id) {
    return std::ranges::find(vocabulary_.sentinels, id) != vocabulary_.sentinels.end();
  };
  if (!by_spans_ || std::ranges::any_of(ids, is_numbered)) return ids;
  size_t next = 0;
  for (int32_t& id : ids) {
    if (id == vocabulary_.mask_id && next < vocabulary_.sentinels.size()) {
      id = vocabulary_.sentinels[next++];
    }
  }
  return ids;
}

std::string TextRestorer::text(const std::vector<int32_t>& source,
                               const std::vector<int32_t>& found) const {
  return tokenizer_.decode(by_spans_ ? fill_spans(source, found, vocabulary_) : found);
}

}  // namespace tapestry
