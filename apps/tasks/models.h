// The models that tasks train, as everything but their training sees them: a new one is a row in
// models.cpp, and a name among those of the tasks that train it.
#pragma once

#include <memory>
#include <string>

#include "apps/config/config.h"
#include "apps/tasks/dry_training.h"
#include "autograd/gradcheck.h"
#include "nn/layers/parameters.h"

namespace tapestry {

struct ModelRow {
  ModelType type;  ///< of its key model.type
  /// The parameters of the config's model, freshly drawn.
  std::shared_ptr<const ParamStore> (*parameters)(const Config& config,
                                                  const TokenizerPair& tokenizers);
  /// The loss of a small model with these options, by all of its parameters.
  GradcheckCase (*gradcheck)(const std::string& name, const ModelOptions& options);
  /// The shapes that go through the model, a part of it a line (apps/tasks/shape_flow.h); may be
  /// null.
  std::string (*shapes)(const Config& config, const TokenizerPair& tokenizers) = nullptr;
  /// The model with the loss of its largest batch (apps/tasks/dry_training.h); may be null.
  DryTraining (*dry)(const Config& config, const TokenizerPair& tokenizers) = nullptr;
};

extern const ModelRow kEncoderDecoderModel;
extern const ModelRow kRnnAttentionModel;
extern const ModelRow kCausalModel;
extern const ModelRow kMaskedModel;
extern const ModelRow kTextClassifierModel;
extern const ModelRow kSpanModel;
extern const ModelRow kTokenClassifierModel;
extern const ModelRow kTextEmbedderModel;
extern const ModelRow kVisionTransformerModel;
extern const ModelRow kLinearClassifierModel;
extern const ModelRow kAttentionPoolingModel;

}  // namespace tapestry
