#include "nn/attention/guided_alignment.h"

#include <algorithm>
#include <cmath>

#include "core/shapes_only.h"

namespace tapestry {

Tensor hidden_keys(const Tensor& lengths, int64_t keys) {
  constexpr float kHidden = -1e30F;  // finite: no share of 0 times it is a NaN
  Tensor hidden = Tensor::zeros({lengths.numel(), 1, keys}, DType::kFloat32);
  if (!ShapesOnly::has_memory(hidden.bytes())) return hidden;
  for (int64_t b = 0; b < lengths.numel(); ++b) {
    float* const row = hidden.data<float>() + b * keys;
    std::fill(row + std::min<int64_t>(keys, lengths.data<int32_t>()[b]), row + keys, kHidden);
  }
  return hidden;
}

void GuidedHead::attend(const Var& q, const Var& k, const AttentionOptions& options) {
  const double scale =
      options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.shape()[2]));
  Var scores = matmul(q, k, {.trans_b = true});
  if (scores.dtype() == DType::kBFloat16) scores = convert(scores, DType::kFloat32);
  scores = scale * scores;
  if (options.softcap > 0) scores = softcap(scores, options.softcap);
  const Tensor unseen = hidden.to(scores.dtype()).to(scores.value().device());
  log_weights = log_softmax(scores + Var(unseen));
}

CrossEntropy with_alignment(CrossEntropy loss, const Var& log_attention,
                            const GuidedAlignment& guided, double normalizer) {
  const Shape& one = guided.shares.shape();
  const int64_t passes = log_attention.shape()[0] / std::max<int64_t>(1, one[0]);
  check(passes > 0 && log_attention.shape() == one.with(0, passes * one[0]), "guided_alignment",
        "expected attention like the alignment's shares ", one, ", got ", log_attention.shape(),
        '.');
  const Var shares(guided.shares.to(log_attention.dtype()).to(log_attention.value().device()));
  const Var of_passes =
      passes == 1 ? shares : concat(std::vector<Var>(static_cast<size_t>(passes), shares), 0);
  const Var all = sum(of_passes * log_attention);
  const double divisor =
      normalizer > 0 ? normalizer : static_cast<double>(std::max<int64_t>(1, loss.tokens));
  const auto count = static_cast<double>(passes);
  const Var guidance = (-guided.weight / (count * divisor)) * all;
  loss.loss = loss.loss + convert(guidance, loss.loss.dtype());
  const NoTape constants;
  std::vector<Var> sums = {Var(loss.sums)};
  if (loss.sums.numel() == 3) {  // without a teacher, from which it would diverge
    sums.emplace_back(Tensor::zeros({1}, DType::kFloat64, loss.sums.device()));
  }
  sums.push_back((-1 / count) * Var(all.value().to(DType::kFloat64).reshape({1})));
  loss.sums = concat(sums, 0).value();
  return loss;
}

}  // namespace tapestry
