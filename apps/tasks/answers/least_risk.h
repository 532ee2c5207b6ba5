// Minimum Bayes risk: the draws that are most similar to all draws of a line.
#pragma once

#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "nn/decoding/decoding.h"

namespace tapestry {

/// What a search must do for the choice: mbr_samples draws instead of a beam search. Without
/// mbr_samples the options as they are.
SearchOptions drawing_options(const SearchOptions& options);

/// The n best translations that a search with these options found: of draws those of least risk,
/// else best_texts().
std::vector<Hypothesis> best_translations(std::vector<Hypothesis> found, int64_t n,
                                          const SearchOptions& options, const Tokenizer& tokenizer);

/// The n texts of the draws with the highest utility, which becomes their score; of
/// equal ones the more probable draw first. Each has the most probable draw of its text.
std::vector<Hypothesis> least_risk(std::vector<Hypothesis> draws, int64_t n, MbrUtility utility,
                                   const Tokenizer& tokenizer);

}  // namespace tapestry
