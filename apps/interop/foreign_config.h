// config.json of Hugging Face's folders into a config of ours, and back, by the tables of
// apps/interop/architectures.h.
#pragma once

#include <string>

#include "apps/interop/architectures.h"
#include "apps/interop/special_ids.h"

namespace tapestry::interop {

/// The `model` section that their config means. Adds what has no place in ours to `reasons`.
Json our_model(const Architecture& architecture, const Json& theirs, Reasons& reasons);

/// Keys of our `model` section that neither the tables nor off_option() gave: `config` was made of
/// `model`, and has our own defaults for them.
std::vector<std::string> undetermined_keys(const Json& model, const Config& config);

/// The keys of their config that follow from the model. Adds what has no place there to `reasons`.
Json their_config(const Architecture& architecture, const ModelFacts& facts, Reasons& reasons);

/// Adds the keys of the config.json that a model came with which no key of ours follows from, as
/// they came, but for those that would make it another model, or say what is no longer so.
void add_unread_keys(const Architecture& architecture, const Config& config, const Json& came,
                     Json& theirs);

/// Why a model of ours is none of the architecture.
Reasons misfits(const Architecture& architecture, const Config& config);

/// Whether their classes do not scale embeddings where this model does, so that the export scales
/// the table itself and unties the classifier.
bool folds_scale(const Architecture& architecture, const Config& config);

/// The number of a key, or `fallback` where it is absent or null; a reason where it is no number.
int64_t number_of(const Json& theirs, const char* key, int64_t fallback, Reasons& reasons);

}  // namespace tapestry::interop
