// A model with what it needs to be used: everything a checkpoint holds but the trainer's state.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/config.h"
#include "data/tokenizer.h"
#include "nn/language_model.h"
#include "nn/transformer.h"

namespace tapestry {

/// The model that a config describes, for these tokenizers.
template <class Model>
Model build_model(const Config& config, const TokenizerPair& tokenizers, const ParamScope& scope);

/// What read_model_files() finds in a checkpoint.
struct ModelFiles {
  std::string folder;
  Config config;
  TokenizerPair tokenizers;
  std::string tensors;  ///< bytes of model.safetensors
};
/// From a checkpoint folder or run folder. Throws Error(kData) naming what is missing.
ModelFiles read_model_files(const std::string& path);

/// Not movable: the model refers to its store.
template <class Model>
struct ModelBundle {
  /// With fresh parameters, drawn from the config's seed.
  ModelBundle(const Config& config, TokenizerPair tokenizers)
      : config(config),
        tokenizers(std::move(tokenizers)),
        store(config.seed, config.dtype, parse_device(config.device)),
        model(build_model<Model>(config, this->tokenizers, store.root())) {}

  /// From a checkpoint folder or run folder of one of these tasks; `who` stands in the message of
  /// another one's. Throws Error(kData) also naming the file and the parameter that is missing,
  /// unknown or has another shape.
  static std::unique_ptr<ModelBundle> load(const std::string& path, const std::string& device,
                                           const std::string& who, const std::vector<Task>& tasks);

  Device device() const { return store.device(); }

  Config config;
  TokenizerPair tokenizers;
  ParamStore store;
  Model model;
};

using TranslationModel = ModelBundle<EncoderDecoder>;
using TextModel = ModelBundle<LanguageModel>;
using TextClassifier = ModelBundle<SequenceClassifier>;

}  // namespace tapestry
