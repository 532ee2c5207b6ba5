// Scores of words, and hard alignments between them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "data/tokenizers/words/placed_text.h"

namespace tapestry {

/// A word of an output and the log-probability of its tokens.
struct WordScore {
  std::string text;
  double log_probability = 0;
};
/// A score for each word of the output. `token_log_probabilities` has at least one number for each
/// id. Tokens of only white space count to the word after them, the last of the line to the word
/// before. A token of several words counts to the first.
std::vector<WordScore> word_scores(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                   const std::vector<double>& token_log_probabilities);

/// Pairs of a unit of the source and one of the target, both from 0, in ascending order.
using Alignment = std::vector<std::pair<int32_t, int32_t>>;

/// Each token of the target is aligned to the token of the source that has most of its attention,
/// or to nothing if that is the source's eos; two units are aligned if two of their tokens are.
/// weights (T + 1, S + 1) float64, the last row and column of eos; the units of T and S tokens, -1
/// for a token without one, which is not aligned.
Alignment hard_alignment(const Tensor& weights, const std::vector<int32_t>& source_units,
                         const std::vector<int32_t>& target_units);

/// "0-0 1-2": the format of Pharaoh and Moses.
std::string pharaoh(const Alignment& alignment);

}  // namespace tapestry
