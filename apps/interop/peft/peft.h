// Low-rank adapters as the library PEFT keeps them: adapter_config.json and
// adapter_model.safetensors, without the model that they stand beside.
//
// A layer y = (W + s B A) x of ours may be several of theirs one below the other: queries, keys and
// values. Each of these takes the same A and its own rows of B. The other way round, adapters of
// such parts with matrices A of their own become one of a larger rank: their A one below the other,
// their B on the diagonal, so that the product stays what it was.
#pragma once

#include <string>
#include <vector>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"
#include "apps/interop/architectures/tensor_table.h"
#include "apps/interop/huggingface_import.h"

namespace tapestry::interop {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
/// In front of all their names.
inline constexpr const char* kAdapterPrefix = "base_model.model.";

bool is_peft_folder(const std::string& path);

/// The folder of the adapters' model: `given`, or if that is "" the one that they name, which may
/// be relative to theirs. Throws Error(kData) if it does not exist.
std::string base_of_adapters(const std::string& path, const std::string& given);

/// The adapters of the folder beside the model of the folder `base`. Throws one Error(kData) with
/// everything that has no place in Tapestry.
ImportedModel import_adapted_model(const std::string& path, const std::string& base);

/// The files of a model's adapters and of other trained parameters. `architecture` and `dtype` as
/// for huggingface_files(). Throws one Error(kConfig) with everything that PEFT cannot hold.
CheckpointContent peft_files(const ModelFiles& model, const std::string& architecture,
                             const std::string& dtype = "");

/// B (rows, rank) of the layer whose weight is that pair: it is cut into parts like the weight.
TensorPair up_pair(const TensorPair& weight, int64_t rank);
/// The lengths (rows) of the rows of that layer's W + s B A, cut likewise.
TensorPair magnitude_pair(const TensorPair& weight);
/// A (rank, in), for part `index` of the layer: all parts have the same.
TensorPair down_pair(const TensorPair& weight, int64_t rank, size_t index);
/// "a.b" of "a.b.weight".
std::string module_of(const std::string& tensor);

}  // namespace tapestry::interop
