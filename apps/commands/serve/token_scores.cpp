#include "apps/commands/serve/token_scores.h"

#include <algorithm>
#include <cmath>

#include "apps/commands/serve/http_error.h"
#include "autograd/ops.h"

namespace tapestry {

TokenScores token_scores(ServedModel& model, const std::vector<int32_t>& ids) {
  TokenScores scores;
  const auto count = static_cast<int64_t>(ids.size()) - 1;
  if (count < 1) return scores;
  if (count > model.texts().longest()) {
    refuse(400, "the prompt has ", ids.size(), " tokens, the model reads at most ",
           model.texts().longest() + 1, '.');
  }
  const TextModel& texts = model.texts().first();
  const Tensor in = Tensor::from(std::vector(ids.begin(), ids.end() - 1), {1, count});
  const std::lock_guard lock(model.computing());
  const Var hidden = texts.model.hidden(in.to(texts.device()));
  const Tensor logits = texts.model.logits(hidden).value().to(Device{}).to(DType::kFloat32);
  const int64_t vocab = logits.shape()[2];
  for (int64_t t = 0; t < count; ++t) {
    const float* const z = logits.data<float>() + t * vocab;
    const float* const best = std::max_element(z, z + vocab);
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(z[v]) - *best);
    const double normaliser = *best + std::log(sum);
    scores.each.push_back(z[ids[static_cast<size_t>(t) + 1]] - normaliser);
    scores.best.push_back(static_cast<int32_t>(best - z));
    scores.best_each.push_back(*best - normaliser);
  }
  return scores;
}

}  // namespace tapestry
