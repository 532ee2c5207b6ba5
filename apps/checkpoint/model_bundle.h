// A model with everything needed to use it: all of a checkpoint except the trainer's state.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_choice.h"
#include "apps/checkpoint/parameters.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/config/config.h"
#include "data/tokenizers/tokenizer.h"
#include "nn/models/language_model.h"
#include "nn/models/rnn_attention.h"
#include "nn/models/span_extractor.h"
#include "nn/models/text_embedder.h"
#include "nn/models/token_classifier.h"
#include "nn/models/transformer.h"
#include "nn/models/vision_transformer.h"

namespace tapestry {

/// The model that a config describes, for these tokenizers (none with images).
template <class Model>
Model build_model(const Config& config, const TokenizerPair& tokenizers, const ParamScope& scope);

/// The config that a checkpoint was trained with.
Config config_of(Checkpoint& checkpoint);

/// What read_model_files() finds in a checkpoint, verified. The trainer's files are not opened.
struct ModelFiles {
  std::string folder;
  Config config;
  TokenizerPair tokenizers;
  TensorReader tensors;  ///< of model.safetensors
};
/// Reads a checkpoint folder or run folder. Throws Error(kData) naming what is missing.
ModelFiles read_model_files(const std::string& path);

/// Reads several models that answer together. Throws Error(kData) naming two whose vocabularies
/// differ.
std::vector<ModelFiles> read_model_files(const std::vector<std::string>& paths);

/// Tensors that a model of the config need not read, and may have come with: the layer in front of
/// a head that it has not goes home with it.
CarriedTensors carried_tensors(const Config& config);

/// An empty store for a model of the config.
ParamStore make_store(const Config& config, ModelUse use,
                      ParamStore::Start start = ParamStore::Start::kDrawn);

/// Not movable: the model refers to its store.
template <class Model>
struct ModelBundle {
  /// With fresh parameters, drawn from the config's seed.
  ModelBundle(const Config& config, TokenizerPair tokenizers, ModelUse use = ModelUse::kAnswers,
              ParamStore::Start start = ParamStore::Start::kDrawn)
      : config(config),
        tokenizers(std::move(tokenizers)),
        store(make_store(config, use, start)),
        model(build_model<Model>(config, this->tokenizers, store.root())) {}

  /// Reads a checkpoint folder or run folder; `who` begins the message about a model that lacks the
  /// ability. With a format the model is packed (ParamStore::pack): it gives answers, but no
  /// losses. Throws Error(kData) also for a parameter that is missing, unknown or has another
  /// shape, naming it and the file, and as pack().
  static std::unique_ptr<ModelBundle> load(const std::string& path, const std::string& device,
                                           const std::string& who, Ability ability,
                                           std::optional<WeightChoice> format = {}) {
    return load(read_model_files(path), device, who, ability, format);
  }
  static std::unique_ptr<ModelBundle> load(ModelFiles files, const std::string& device,
                                           const std::string& who, Ability ability,
                                           std::optional<WeightChoice> format = {});

  Device device() const { return store.device(); }
  /// The segments of a batch on the device; undefined if it has none, or the model tells none
  /// apart.
  Tensor segments(const Tensor& of_rows) const {
    const bool tells = of_rows.defined() && config.model.type_vocab_size > 1;
    return tells ? of_rows.to(device()) : Tensor();
  }
  /// Its files in a checkpoint besides tensors: config.json and the tokenizers.
  std::map<std::string, std::string> files() const;

  Config config;
  TokenizerPair tokenizers;
  ParamStore store;
  Model model;
};

/// The parameters of a fresh model.
template <class Model>
std::shared_ptr<const ParamStore> parameters_of(const Config& config,
                                                const TokenizerPair& tokenizers) {
  const auto bundle = std::make_shared<ModelBundle<Model>>(config, tokenizers);
  return {bundle, &bundle->store};
}

/// An EncoderDecoder or a RnnAttention.
template <class Model>
using TranslationModel = ModelBundle<Model>;
using TextModel = ModelBundle<LanguageModel>;
using TextClassifier = ModelBundle<SequenceClassifier>;
using SpanModel = ModelBundle<SpanExtractor>;
using TokenClassifierModel = ModelBundle<TokenClassifier>;
using EmbeddingModel = ModelBundle<TextEmbedder>;
using ImageModel = ModelBundle<ImageClassifier>;

}  // namespace tapestry
