// Folders of sentence-transformers: an encoder, and files that say how the vectors of its tokens
// become one (modules.json).
#pragma once

#include <map>
#include <string>

#include "apps/checkpoint/model_bundle.h"
#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {

/// True for a folder with a modules.json.
bool has_modules(const std::string& folder);

/// The folder inside of it that holds the Transformer; "" if it is the folder itself, or unknown.
std::string folder_of_transformer(const std::string& folder);

struct SentenceVectors {
  std::string pooling = "mean";  ///< of our key model.pooling
  bool normalize = false;
  int64_t max_length = 0;  ///< tokens that a text is cut to; 0: not said
  /// A dense layer behind the pooling: the folder of its weights; "": there is none.
  std::string dense_path = {};
  int64_t size = 0;  ///< of the vectors that it makes
  bool tanh = true, bias = true;
};
/// What such a folder says; adds reasons if the modules, the way of pooling or the limits are none
/// that we have.
SentenceVectors sentence_vectors_of(const std::string& folder, Reasons& reasons, Reasons& notes);

/// The weights of that layer, as those of a model of ours; adds reasons where its folder has none
/// of these sizes.
std::vector<TensorToWrite> dense_tensors(const SentenceVectors& vectors, const Config& config,
                                         Reasons& reasons);

/// The files of a model of task embedding that an encoder's folder does not have, the weights of
/// its dense layer in a type among them (see store_as()). Those that the model came with stay if
/// they say the same.
CheckpointContent sentence_vector_files(const ModelFiles& model, const std::string& dtype);

}  // namespace tapestry::interop
