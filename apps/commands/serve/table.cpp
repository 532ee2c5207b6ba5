// Every endpoint, in the order of the description.
#include "apps/commands/serve/endpoints.h"

namespace tapestry {

extern const Endpoint kPageEndpoint, kHealthEndpoint, kMetricsEndpoint, kModelsEndpoint,
    kOpenapiEndpoint, kTranslateEndpoint, kDetectEndpoint, kLanguagesEndpoint, kFileEndpoint,
    kDownloadEndpoint, kCompletionsEndpoint, kChatEndpoint, kEmbeddingsEndpoint, kScoreEndpoint,
    kFillMaskEndpoint, kClassifyEndpoint, kRateEndpoint, kRerankEndpoint, kAnswerEndpoint,
    kAttentionEndpoint;

std::span<const Endpoint* const> endpoints() {
  static constexpr const Endpoint* kEndpoints[] = {
      &kPageEndpoint,       &kHealthEndpoint,    &kMetricsEndpoint,     &kModelsEndpoint,
      &kOpenapiEndpoint,    &kTranslateEndpoint, &kDetectEndpoint,      &kLanguagesEndpoint,
      &kFileEndpoint,       &kDownloadEndpoint,  &kCompletionsEndpoint, &kChatEndpoint,
      &kEmbeddingsEndpoint, &kScoreEndpoint,     &kFillMaskEndpoint,    &kClassifyEndpoint,
      &kRateEndpoint,       &kRerankEndpoint,    &kAnswerEndpoint,      &kAttentionEndpoint};
  return kEndpoints;
}

}  // namespace tapestry
