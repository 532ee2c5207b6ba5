// Translation with a trained model.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// The n best translations of each source, best first, in the order of the input. Sources are ids
/// without bos and eos; they are batched by length. `first_id` is the number of the first sentence
/// in the whole input: sampling draws by it.
template <class Model>
std::vector<std::vector<Hypothesis>> translate(const TranslationModel<Model>& model,
                                               const std::vector<std::vector<int32_t>>& sources,
                                               const SearchOptions& options,
                                               int64_t batch_sentences, int64_t first_id = 0);

/// One score per pair: of the target and eos, given the source.
template <class Model>
std::vector<Score> score(const TranslationModel<Model>& model, const ParallelCorpus& pairs,
                         int64_t batch_sentences);

}  // namespace tapestry
