// The texts of what a search found.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "nn/decoding/decoding.h"

namespace tapestry {

/// Lets a search keep all finished hypotheses, out of which best_texts() takes those with texts of
/// their own. One that waits for n_best of them would wait longer, and is left as it is.
void widen_for_distinct_texts(SearchOptions& options);
/// The n best hypotheses, which differ in text_of(hypothesis) as far as there are enough: other
/// pieces may be the same text.
std::vector<Hypothesis> best_texts(std::vector<Hypothesis> found, int64_t n,
                                   const std::function<std::string(const Hypothesis&)>& text_of);

/// The text of a translation. A vocabulary with spaces behind its words leaves one at the end,
/// which is dropped.
std::string translated_text(const Tokenizer& tokenizer, const Hypothesis& hypothesis);

}  // namespace tapestry
