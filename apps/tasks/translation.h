// Translation with a trained model.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// Ids without bos and eos -> the n best translations of each, best first. Sentences are batched by
/// length; the results are in the order of the input. `first_id`: number of the first sentence in
/// the whole input, for the draws of sampling.
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
