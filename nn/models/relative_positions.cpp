#include "nn/models/relative_positions.h"

#include <algorithm>
#include <cmath>

namespace tapestry {
namespace {

// (H, 2 * reach - 1): -slope * |d|.
Tensor alibi_table(int64_t heads, int64_t reach, DType dtype, Device device) {
  Tensor table = Tensor::empty({heads, 2 * reach - 1}, DType::kFloat64);
  double* element = table.data<double>();
  for (const double slope : alibi_slopes(heads)) {
    for (int64_t d = 1 - reach; d < reach; ++d) *element++ = -slope * double(std::abs(d));
  }
  return table.to(dtype).to(device);
}

}  // namespace

std::vector<double> alibi_slopes(int64_t heads) {
  int64_t whole = 1;  // the largest power of two up to `heads`
  while (2 * whole <= heads) whole *= 2;
  std::vector<double> slopes;
  for (int64_t i = 1; i <= whole; ++i)
    slopes.push_back(std::exp2(-8.0 * double(i) / double(whole)));
  for (int64_t i = 1; i <= heads - whole; ++i) {
    slopes.push_back(std::exp2(-4.0 * double(2 * i - 1) / double(whole)));
  }
  return slopes;
}

int64_t relative_bucket(int64_t distance, bool both_ways, int64_t buckets, int64_t farthest) {
  int64_t first = 0, away = both_ways ? std::abs(distance) : std::max<int64_t>(0, -distance);
  if (both_ways) {
    buckets /= 2;
    first = distance > 0 ? buckets : 0;
  }
  const int64_t exact = buckets / 2;
  if (away < exact) return first + away;
  const double share = std::log(double(away) / double(exact)) /
                       std::log(double(farthest) / double(exact)) * double(buckets - exact);
  return first + std::min(exact + static_cast<int64_t>(share), buckets - 1);
}

RelativePositions::RelativePositions(const ModelOptions& o, bool causal, const ParamScope& scope)
    : heads_(o.num_attention_heads) {
  if (o.position_embedding == PositionEmbedding::kAlibi) {
    slopes_ = alibi_table(heads_, o.max_position_embeddings, scope.dtype(), scope.device());
  }
  if (o.position_embedding != PositionEmbedding::kRelative) return;
  const double deviation =
      o.initializer_range > 0 ? o.initializer_range : 1 / std::sqrt(double(o.hidden_size));
  const int64_t buckets = o.relative_attention_num_buckets,
                farthest = o.relative_attention_max_distance;
  weight = scope.create("weight", {buckets, heads_}, Init::normal(deviation));
  std::vector<int32_t> of_distance;
  for (int64_t d = -farthest; d <= farthest; ++d) {
    of_distance.push_back(static_cast<int32_t>(relative_bucket(d, !causal, buckets, farthest)));
  }
  buckets_ = Tensor::from(of_distance, {1, 2 * farthest + 1}, scope.device());
}

Var RelativePositions::bias(int64_t length) const {
  if (slopes_.defined()) {
    if (length <= (slopes_.shape()[1] + 1) / 2) return slopes_;
    return alibi_table(heads_, length, slopes_.dtype(), slopes_.device());
  }
  if (!weight.defined()) return {};
  const Var by_distance = embedding(buckets_, weight);  // (1, 2R - 1, H)
  return permute(reshape(by_distance, {buckets_.shape()[1], heads_}), {1, 0});
}

}  // namespace tapestry
