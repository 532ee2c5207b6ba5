// What every export begins with: the counts and the tensors of a checkpoint of ours.
#pragma once

#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/interop/architectures.h"

namespace tapestry::interop {

Counts counts_of(const ModelFiles& model);

/// The tensors of a table, each read and converted when it is asked for, with its adapter if it
/// has one. `dtype` is theirs. Throws Error(kData) naming a tensor that the checkpoint should have.
std::vector<TensorToWrite> converted_tensors(const ModelFiles& model,
                                             const std::vector<TensorPair>& pairs,
                                             const Layout& layout, DType dtype);

/// The model as the architecture's files have it: what these lack is folded into the tensors.
ModelFacts exported_facts(const Architecture& architecture, const ModelFiles& model);
/// Where folds_scale(): embeddings hold the scale, and the classifier stays as it was. `config` is
/// ours.
void fold_scale(const Config& config, std::vector<TensorPair>& pairs);

}  // namespace tapestry::interop
