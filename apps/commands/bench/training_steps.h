// Training steps of a config's model, timed.
#pragma once

#include <optional>
#include <vector>

#include "apps/commands/bench/bench.h"
#include "apps/commands/bench/ranks.h"
#include "core/profile.h"

namespace tapestry {

/// What timed training steps took.
struct Measured {
  std::vector<double> seconds;
  std::vector<double> tokens;  ///< of source and target, without padding
  double flops = 0;            ///< of one step; 0 when steps differ
  PartSeconds parts{};         ///< of the timed steps together
  int64_t system_calls = 0;    ///< allocations that the warm steps took from the system
  double loss = 0;
  double update_seconds = 0;           ///< of all timed steps, on a CPU
  std::optional<RanksMeasured> ranks;  ///< if there are several
};

/// Steps on synthetic tokens of the shape that the arguments name. Throws Error(kConfig) for a
/// model without such batches.
Measured measure_synthetic(const Config& config, const BenchArguments& arguments, Ranks& ranks);

/// Steps on the config's data.
Measured measure_data(Config config, const BenchArguments& arguments, Ranks& ranks);

}  // namespace tapestry
