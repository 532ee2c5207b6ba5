// config.json of Hugging Face's folders into a config of ours, and back, by the tables of
// apps/interop/architectures/architectures.h.
#pragma once

#include <string>

#include "apps/interop/architectures/architectures.h"
#include "apps/interop/special_ids.h"

namespace tapestry::interop {

/// The `model` section that their config means. Adds features that we lack to `reasons`.
Json our_model(const Architecture& architecture, const Json& theirs, Reasons& reasons);

/// The keys of such a section about a layer in front of classes, which a model without that layer
/// keeps as facts about its class: a classifier that begins with it has the layer.
struct ClassFacts {
  Pooler pooler = ModelOptions().pooler;
  TextPooling pooling = ModelOptions().class_pooling;
  bool of_tokens = ModelOptions().pooled_tokens;

  /// Those that are no keys of the config become its own.
  void add_to(Config& config) const;
};
ClassFacts class_facts_of(const Json& model);

/// Keys of our `model` section that neither the tables nor off_option() gave: `config` was made of
/// `model`, and has our own defaults for them.
std::vector<std::string> undetermined_keys(const Json& model, const Config& config);

/// The keys of their config that follow from the model. Adds features that they lack to `reasons`.
Json their_config(const Architecture& architecture, const ModelFacts& facts, Reasons& reasons);

/// Adds the keys of the config.json that a model came with and that this program does not read,
/// with their values. Keys that would make it another model, or are no longer true, are left out.
void add_unread_keys(const Architecture& architecture, const Config& config, const Json& came,
                     Json& theirs);

/// The reasons why a model of ours does not fit the architecture.
Reasons misfits(const Architecture& architecture, const Config& config);

/// The keys of the `model` section, but those in `known`, that have another value than
/// off_option(): "model.qk_norm: head". They are features that a format without `known` ones lacks.
Reasons features_beside(std::span<const char* const> known, const Config& config);

/// True if this model scales embeddings and their classes do not, so that the export scales the
/// table itself and unties the classifier.
bool folds_scale(const Architecture& architecture, const Config& config);

/// An error of our config without the places in it, which nobody sees (`path` is the name that they
/// have), and with the names of their keys.
std::string in_their_words(const std::string& message, const std::string& path,
                           const Architecture& architecture);

/// The number of a key, or `fallback` if it is absent or null; adds a reason if it is not a number.
int64_t number_of(const Json& theirs, const char* key, int64_t fallback, Reasons& reasons);

}  // namespace tapestry::interop
