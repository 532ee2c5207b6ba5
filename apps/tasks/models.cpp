#include "apps/tasks/models.h"

#include "apps/tasks/regression.h"
#include "apps/tasks/shape_flow.h"
#include "nn/gradcheck/models.h"

namespace tapestry {
namespace {

template <class Model>
constexpr ModelRow row(ModelType type, decltype(ModelRow::gradcheck) gradcheck) {
  return {.type = type,
          .parameters = parameters_of<Model>,
          .gradcheck = gradcheck,
          .shapes = shape_flow<Model>,
          .dry = dry_training<Model>};
}

GradcheckCase causal_gradcheck(const std::string& name, const ModelOptions& options) {
  return language_model_gradcheck(name, options, /*causal=*/true);
}

GradcheckCase masked_gradcheck(const std::string& name, const ModelOptions& options) {
  return language_model_gradcheck(name, options, /*causal=*/false);
}

std::shared_ptr<const ParamStore> pooling_parameters(const Config& config, const TokenizerPair&) {
  const auto model =
      std::make_shared<RegressionModel>(config, Points{{0}, {0}}, ModelUse::kTraining);
  return {model, &model->store};
}

}  // namespace

// Constant, so that the tables of tasks may be made of them at any time.
constinit const ModelRow kEncoderDecoderModel =
    row<EncoderDecoder>(ModelType::kEncoderDecoder, encoder_decoder_gradcheck);
constinit const ModelRow kRnnAttentionModel =
    row<RnnAttention>(ModelType::kRnnAttention, rnn_attention_gradcheck);
constinit const ModelRow kCausalModel = row<LanguageModel>(ModelType::kDecoder, causal_gradcheck);
constinit const ModelRow kMaskedModel = row<LanguageModel>(ModelType::kEncoder, masked_gradcheck);
constinit const ModelRow kTextClassifierModel =
    row<SequenceClassifier>(ModelType::kEncoder, classifier_gradcheck);
constinit const ModelRow kSpanModel =
    row<SpanExtractor>(ModelType::kEncoder, span_extractor_gradcheck);
constinit const ModelRow kTokenClassifierModel =
    row<TokenClassifier>(ModelType::kEncoder, token_classifier_gradcheck);
constinit const ModelRow kTextEmbedderModel =
    row<TextEmbedder>(ModelType::kEncoder, text_embedder_gradcheck);
constinit const ModelRow kVisionTransformerModel =
    row<ImageClassifier>(ModelType::kVit, vision_transformer_gradcheck);
constinit const ModelRow kLinearClassifierModel =
    row<ImageClassifier>(ModelType::kLinear, linear_classifier_gradcheck);
constinit const ModelRow kAttentionPoolingModel{.type = ModelType::kAttentionPooling,
                                                .parameters = pooling_parameters,
                                                .gradcheck = attention_pooling_gradcheck};

}  // namespace tapestry
