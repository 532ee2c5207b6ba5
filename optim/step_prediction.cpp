#include "optim/step_prediction.h"

#include <algorithm>

#include "core/base/error.h"

namespace tapestry {

StepPrediction predict_step(const StepCost& cost, const Link& link, Shard shard, int64_t ranks,
                            int64_t micro_batches) {
  check(ranks >= 1 && micro_batches >= 1, "predict_step",
        "expected 1 rank and 1 micro-batch at least, got ", ranks, " and ", micro_batches, '.');
  const double computing = static_cast<double>(micro_batches) * cost.micro_batch_seconds;
  const double alone = computing + cost.update_seconds;
  if (ranks == 1) return {alone, 0, 1};
  const bool whole = shard == Shard::kNone;
  double bytes = 0, exposed = 0;
  const auto one_way = [&] { return bytes_sent(bytes, ranks) / 2 / link.bytes_per_second; };
  for (auto bucket = cost.ready.rbegin(); bucket != cost.ready.rend(); ++bucket) {
    bytes += bucket->bytes;
    exposed = std::max(exposed, (whole ? 2 : 1) * one_way() - bucket->seconds_left);
  }
  double update = cost.update_seconds;
  if (!whole) {
    exposed += one_way() + link.latency_seconds;
    update /= static_cast<double>(ranks);
  }
  const double seconds = computing + exposed + update;
  return {seconds, exposed, alone / seconds};
}

int64_t micro_batches_for(double efficiency, const StepCost& cost, const Link& link, Shard shard,
                          int64_t ranks) {
  const auto reaches = [&](int64_t count) {
    return predict_step(cost, link, shard, ranks, count).efficiency >= efficiency;
  };
  // More micro-batches never make it worse: the exposed time does not depend on their number.
  int64_t enough = 1;
  while (!reaches(enough)) {
    if (enough > 1'000'000) return 0;
    enough *= 2;
  }
  int64_t few = enough / 2;  // too few, or 0
  while (enough - few > 1) {
    const int64_t middle = few + (enough - few) / 2;
    (reaches(middle) ? enough : few) = middle;
  }
  return enough;
}

}  // namespace tapestry
