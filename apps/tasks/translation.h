// Translation with a trained model, and the tasks that train encoder-decoders.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/attention_html.h"
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

struct Score {
  double log_probability = 0;  ///< of the target and eos, given the source
  int64_t tokens = 0;          ///< eos included
};
/// One score per pair.
template <class Model>
std::vector<Score> score(const TranslationModel<Model>& model, const ParallelCorpus& pairs,
                         int64_t batch_sentences);

/// What every layer of the model attended to, reading `source` and writing `target` (ids without
/// bos and eos).
AttentionPage attention_page(const TranslationModel<EncoderDecoder>& model,
                             const std::vector<int32_t>& source,
                             const std::vector<int32_t>& target);

std::unique_ptr<TrainingTask> make_translation_task(const Config& config, TokenizerPair tokenizers,
                                                    DataPosition start, const Report& report);
/// Corrupted text in, the text out (T5, BART).
std::unique_ptr<TrainingTask> make_denoising_task(const Config& config, TokenizerPair tokenizers,
                                                  DataPosition start, const Report& report);

}  // namespace tapestry
