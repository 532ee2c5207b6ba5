// Words for the holes of a text: guesses of a masked model, or the text as a denoising model
// restores it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/tasks/answers/translator.h"
#include "apps/tasks/text_models.h"
#include "data/examples/denoising.h"

namespace tapestry {

struct WordGuess {
  std::string word;
  double probability = 0;
};

/// Guesses of a masked model for each <mask> of a line.
class MaskGuesser {
 public:
  /// `model` must outlive this.
  explicit MaskGuesser(const TextModel& model);

  /// The ids of a line, in which <mask> is one; none of an empty line.
  std::vector<int32_t> encode(const std::string& line) const;
  /// The ids in the frame of a text. Those of a long line `number`, from 1, are cut, with a
  /// warning.
  std::vector<int32_t> framed(std::vector<int32_t> ids, int64_t number) const;
  /// For each mask in framed() ids the most probable words, best first.
  std::vector<std::vector<WordGuess>> guess(const std::vector<int32_t>& ids, int64_t top_k) const;

 private:
  const TextModel& model_;
  std::shared_ptr<const Tokenizer> with_masks_;
};

/// Lines with <mask> or <extra_id_0>, ... as a denoising model restores them.
class TextRestorer {
 public:
  /// `models` must outlive this.
  explicit TextRestorer(const Translator& models);

  /// The source of a line's ids. A T5-style model numbers its holes: masks of a line without
  /// numbers get some.
  std::vector<int32_t> source(std::vector<int32_t> ids) const;
  /// The text that a source and what the search found for it make.
  std::string text(const std::vector<int32_t>& source, const std::vector<int32_t>& found) const;

 private:
  const Tokenizer& tokenizer_;
  DenoisingVocabulary vocabulary_;
  bool by_spans_;
};

}  // namespace tapestry
