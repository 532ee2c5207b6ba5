// The part of `tapestry bench` for several ranks: the link between them, steps that exchange
// gradients, and predictions of optim/step_prediction.h for them and for other numbers of ranks.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/run/ranks.h"
#include "optim/step_prediction.h"

namespace tapestry {

struct RanksMeasured {
  int64_t ranks = 1, micro_batches = 1;  ///< micro-batches of one rank
  std::string library;
  int hosts = 1;
  Link link;
  StepCost cost;
  double step_seconds = 0;    ///< the median of the slowest rank
  double waited_seconds = 0;  ///< of it, for the sums; of this rank
  StepPrediction predicted;   ///< of the step
  Shard shard = Shard::kNone;
};

struct RanksBench {
  int64_t steps = 10, warmup_steps = 2;
  double micro_batch_seconds = 0, update_seconds = 0;  ///< of this rank, measured without others
  std::function<void()> micro_batch;                   ///< forward and backward
};

/// Measures the link, and updates of training.gradient_accumulation_steps micro-batches (of as many
/// as there are ranks, at least) that the ranks share. All ranks call it.
RanksMeasured measure_ranks(Ranks& ranks, const Config& config,
                            const std::vector<ParamGroup>& groups, const RanksBench& bench);

/// Adds the measurements, and "prediction": rows for 2, 4 and 8 ranks and both ways to shard.
void add_ranks(const RanksMeasured& measured, nlohmann::ordered_json& figures);
/// The rows of "prediction", for people.
void print_prediction(const nlohmann::ordered_json& figures);

}  // namespace tapestry
