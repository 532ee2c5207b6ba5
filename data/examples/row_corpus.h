// What corpora share whose examples are a row of tokens each; private to data/.
#pragma once

#include <algorithm>

#include "core/base/error.h"
#include "data/batches/batching.h"
#include "data/corpora/corpus.h"

namespace tapestry {

/// Sets the members that do not depend on what a row is.
template <class Corpus>
void take_facts(const TokenTable& table, const Tokenizer& tokenizer, Corpus& corpus) {
  corpus.counts = table.facts().counts;
  corpus.parts = table.facts().parts;
  corpus.from_cache = table.from_cache();
  corpus.special = tokenizer.special();
}

/// Throws Error(kConfig) unless all corpora of a list have this column, or none has.
inline void check_column_of_all(const std::vector<CorpusSpec>& specs,
                                std::string CorpusSpec::*column, const char* key) {
  for (const CorpusSpec& spec : specs) {
    if ((spec.*column).empty() == (specs[0].*column).empty()) continue;
    const bool first = !(specs[0].*column).empty();
    fail(ErrorKind::kConfig, "[data] all corpora of a list need a ", key,
         ", or none: ", specs[0].str(), first ? " has one, " : " has none, ", spec.str(),
         first ? " has none." : " has one.");
  }
}

/// Special tokens in front of a row of a causal model, whose last token is never read. An empty
/// text has a beginning in any case.
inline int64_t specials_of_row(const SpecialIds& special) {
  return std::max<int64_t>(1, std::ssize(special.document()));
}

/// A walk through rows of length(corpus, row) tokens. `corpus` must outlive it.
template <class Corpus, class Length>
EpochWalk walk_of_rows(const Corpus& corpus, Length length, const BatchOptions& options,
                       const DataPosition& start) {
  return {EpochPlans::of_lengths(
              mixture_of(corpus.size(), corpus.parts, options),
              [&corpus, length](int64_t, int64_t row) {
                const int64_t tokens = length(corpus, row);
                return RowLength{tokens, tokens};
              },
              options),
          start};
}

}  // namespace tapestry
