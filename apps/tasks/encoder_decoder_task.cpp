#include "apps/tasks/encoder_decoder_task.h"

#include "apps/tasks/shape_flow.h"
#include "nn/gradcheck_models.h"

namespace tapestry {

std::shared_ptr<const ParamStore> encoder_decoder_parameters(const Config& config,
                                                             const TokenizerPair& tokenizers) {
  if (config.model_type == ModelType::kRnnAttention) {
    return parameters_of<RnnAttention>(config, tokenizers);
  }
  return parameters_of<EncoderDecoder>(config, tokenizers);
}

std::string encoder_decoder_shapes(const Config& config, const TokenizerPair& tokenizers) {
  if (config.model_type == ModelType::kRnnAttention) {
    return shape_flow<RnnAttention>(config, tokenizers);
  }
  return shape_flow<EncoderDecoder>(config, tokenizers);
}

DryTraining encoder_decoder_dry_training(const Config& config, const TokenizerPair& tokenizers) {
  if (config.model_type == ModelType::kRnnAttention) {
    return dry_training<RnnAttention>(config, tokenizers);
  }
  return dry_training<EncoderDecoder>(config, tokenizers);
}

GradcheckCase encoder_decoder_case(const std::string& name, ModelType type,
                                   const ModelOptions& options) {
  if (type == ModelType::kRnnAttention) return rnn_attention_gradcheck(name, options);
  return encoder_decoder_gradcheck(name, options);
}

}  // namespace tapestry
