// Every endpoint, in the order of the description.
#include "apps/commands/serve/endpoints.h"

namespace tapestry {

extern const Endpoint kPageEndpoint, kHealthEndpoint, kMetricsEndpoint, kModelsEndpoint,
    kOpenapiEndpoint, kTranslateEndpoint, kLanguagesEndpoint, kCompletionsEndpoint, kChatEndpoint,
    kEmbeddingsEndpoint, kScoreEndpoint, kFillMaskEndpoint, kClassifyEndpoint, kAnswerEndpoint;

std::span<const Endpoint* const> endpoints() {
  static constexpr const Endpoint* kEndpoints[] = {
      &kPageEndpoint,     &kHealthEndpoint,     &kMetricsEndpoint,   &kModelsEndpoint,
      &kOpenapiEndpoint,  &kTranslateEndpoint,  &kLanguagesEndpoint, &kCompletionsEndpoint,
      &kChatEndpoint,     &kEmbeddingsEndpoint, &kScoreEndpoint,     &kFillMaskEndpoint,
      &kClassifyEndpoint, &kAnswerEndpoint};
  return kEndpoints;
}

}  // namespace tapestry
