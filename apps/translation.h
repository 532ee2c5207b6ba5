// Translation: the model with its tokenizers, and the task that the trainer trains.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint.h"
#include "apps/config.h"
#include "apps/training.h"
#include "data/loader.h"
#include "nn/decoding.h"
#include "nn/transformer.h"

namespace tapestry {

/// A translation model ready to use. Not movable: the model refers to its store.
class TranslationModel {
 public:
  /// With fresh parameters, drawn from the config's seed.
  TranslationModel(const Config& config, TokenizerPair tokenizers);
  /// From a checkpoint folder or run folder. Throws Error(kData) naming the file and the parameter
  /// that is missing, unknown or has another shape.
  static std::unique_ptr<TranslationModel> load(const std::string& path,
                                                const std::string& device = "auto");

  const Config& config() const { return config_; }
  const TokenizerPair& tokenizers() const { return tokenizers_; }
  ParamStore& parameters() { return store_; }
  const EncoderDecoder& model() const { return model_; }

  /// Ids without bos and eos -> the n best translations of each, best first. Sentences are batched
  /// by length; the results are in the order of the input. `progress` hears how many are done.
  std::vector<std::vector<Hypothesis>> translate(
      const std::vector<std::vector<int32_t>>& sources, const SearchOptions& options,
      int64_t batch_sentences, const std::function<void(int64_t)>& progress = {}) const;

  struct Score {
    double log_probability = 0;  ///< of the target and eos, given the source
    int64_t tokens = 0;          ///< eos included
  };
  /// One score per pair.
  std::vector<Score> score(const ParallelCorpus& pairs, int64_t batch_sentences) const;

 private:
  Config config_;
  TokenizerPair tokenizers_;
  ParamStore store_;
  EncoderDecoder model_;
};

class TranslationTask : public TrainingTask {
 public:
  /// Trains the tokenizers when `tokenizers` is empty, reads and encodes the corpora. `report`
  /// hears what was read and what was left out.
  TranslationTask(const Config& config, TokenizerPair tokenizers, DataPosition start,
                  const std::function<void(const std::string&)>& report);

  ParamStore& parameters() override { return model_->parameters(); }
  UpdateSize next_update(int64_t micro_batches) override;
  CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) override;
  DataPosition position() const override { return loader_->position(); }
  std::map<std::string, double> validate(const CrossEntropyOptions& options) override;
  std::map<std::string, std::string> files() const override;

 private:
  Config config_;
  std::unique_ptr<TranslationModel> model_;
  ParallelCorpus train_, valid_;
  std::unique_ptr<TranslationLoader> loader_;  // declared after what it reads
  std::vector<TranslationBatch> update_;
};

}  // namespace tapestry
