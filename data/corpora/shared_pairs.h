// Pairs of a validation or a test that the model has learnt by heart.
#pragma once

#include <cstdint>

#include "data/corpora/corpus.h"

namespace tapestry {

struct SharedPairs {
  int64_t count = 0;
  int64_t first = 0;  ///< the first of them in the held-out corpus
};

/// The held-out pairs that stand in the training, too: both sides have the same tokens.
SharedPairs shared_pairs(const ParallelCorpus& held_out, const ParallelCorpus& train);

}  // namespace tapestry
