// The README.md of an exported folder: a model card, as the hub of Hugging Face shows it.
#pragma once

#include <map>
#include <string>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

/// The card of a folder whose config.json is `config`: a front matter in YAML (task, base, tags,
/// metrics), what the model learned from by the names of its files, the metrics of its checkpoint,
/// its config and how to load it. `commit` is that of this program's sources. Metrics and the
/// number of examples come from the run folder around the checkpoint, if there is one. It knows no
/// licence.
std::string model_card(const ModelFiles& model, const std::string& config,
                       const std::string& commit);

/// The cards in a folder that an import keeps: README.md and README.base.md, if they are not made
/// by an export.
std::map<std::string, std::string> cards_in(const std::string& folder);

/// Puts the card into the folder. A README.md that the model came with is kept as README.base.md.
void add_model_card(const ModelFiles& model, const std::string& commit, CheckpointContent& files);

}  // namespace tapestry::interop
