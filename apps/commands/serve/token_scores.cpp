#include "apps/commands/serve/token_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/commands/serve/http_error.h"
#include "autograd/ops.h"

namespace tapestry {
namespace {

PlaceScores scores_of(const float* z, int64_t vocab, int32_t own, int64_t top) {
  const float best = *std::max_element(z, z + vocab);
  double sum = 0;
  for (int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(z[v]) - best);
  const double normaliser = best + std::log(sum);
  PlaceScores scores{.own = {own, z[own] - normaliser}};
  std::vector<int32_t> order(static_cast<size_t>(top > 0 ? vocab : 0));
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::min<int64_t>(top, vocab);
  const auto better = [&](int32_t a, int32_t b) { return z[a] > z[b] || (z[a] == z[b] && a < b); };
  std::partial_sort(order.begin(), order.begin() + count, order.end(), better);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t token = order[static_cast<size_t>(i)];
    scores.top.push_back({token, z[token] - normaliser});
  }
  return scores;
}

Tensor floats_of(const Tensor& logits) { return logits.to(Device{}).to(DType::kFloat32); }

}  // namespace

std::vector<PlaceScores> token_scores(ServedModel& model, const std::vector<int32_t>& ids,
                                      int64_t top, const CallEnd& end) {
  const auto count = static_cast<int64_t>(ids.size()) - 1;
  if (count < 1) return {};
  if (count > model.texts().longest()) {
    refuse(400, "the prompt has ", ids.size(), " tokens, the model reads at most ",
           model.texts().longest() + 1, '.');
  }
  const TextModel& texts = model.texts().first();
  const Tensor in = Tensor::from(std::vector(ids.begin(), ids.end() - 1), {1, count});
  const Turns::Turn turn(model.computing(), end);
  const Var hidden = texts.model.hidden(in.to(texts.device()));
  const Tensor logits = floats_of(texts.model.logits(hidden).value());
  const int64_t vocab = logits.shape()[2];
  std::vector<PlaceScores> scores;
  for (int64_t t = 0; t < count; ++t) {
    scores.push_back(
        scores_of(logits.data<float>() + t * vocab, vocab, ids[static_cast<size_t>(t) + 1], top));
  }
  return scores;
}

NextScores::NextScores(ServedModel& model, std::vector<int32_t> prompt, int64_t top)
    : model_(model), prompt_(std::move(prompt)), top_(top), fed_(prompt_.back()) {}

PlaceScores NextScores::next(int32_t token, const CallEnd& end) {
  const Turns::Turn turn(model_.computing(), end);
  if (!steps_) {
    steps_ = model_.texts().steps();
    steps_->add({{.index = 0, .prompt = prompt_}});
  }
  const Tensor logits = floats_of(steps_->step({fed_}));
  fed_ = token;
  return scores_of(logits.data<float>(), logits.shape()[1], token, top_);
}

}  // namespace tapestry
