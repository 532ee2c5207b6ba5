// The common beginning of every export: the counts and the tensors of a checkpoint of ours.
#pragma once

#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {

Counts counts_of(const ModelFiles& model);

/// The tensors of a table, each read and converted when it is asked for, with its adapter if it
/// has one. `dtype` is theirs. Throws Error(kData) naming a tensor that the checkpoint should have.
std::vector<TensorToWrite> converted_tensors(const ModelFiles& model,
                                             const std::vector<TensorPair>& pairs,
                                             const Layout& layout, DType dtype);

/// Throws Error(kData) naming the tensor, the number and its place if a number of a tensor is
/// `limit` or more, which `type` cannot hold; with `finite` also if it is not finite.
void check_range(const TensorToWrite& tensor, double limit, const char* type, bool finite = false);
/// The floating types that every format can have: "float32", ...
std::vector<std::string> float_dtypes();
/// Makes the tensors one of these in the file; "": as they are. Throws as check_range(): it reads
/// all that change.
void store_as(const std::string& dtype, std::vector<TensorToWrite>& tensors);

/// The model in terms of the architecture's files: features that these lack are folded into the
/// tensors.
ModelFacts exported_facts(const Architecture& architecture, const ModelFiles& model);
/// If folds_scale(): multiplies the embeddings by the scale, and leaves the classifier as it was.
/// `config` is ours.
void fold_scale(const Config& config, std::vector<TensorPair>& pairs);

}  // namespace tapestry::interop
