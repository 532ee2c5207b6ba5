// What the end of a job's processes means: a lost rank, or a training that must not start again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/run/launch/rank_job.h"

namespace tapestry {

struct LostRank {
  std::string reason;  ///< a line of the job's messages, or the signal
  int rank = -1;       ///< -1: not known
};

/// Nothing if the job is done, was stopped by a signal that a user or a scheduler sends, or ended
/// with an error that comes again on any number of ranks: usage, config, data, a training that
/// diverged, or a launcher that started no rank.
std::optional<LostRank> lost_rank(const RankJobEnd& end);

/// The largest number of ranks below `ranks` that can share the parts (parts_fit()), but 1 at
/// least.
int64_t fewer_ranks(int64_t parts, int64_t ranks);

/// The GPUs that the ranks of this machine may use: those of CUDA_VISIBLE_DEVICES, else one for
/// each rank.
class VisibleGpus {
 public:
  explicit VisibleGpus(int64_t ranks);
  /// Takes out the GPU of this rank; -1: none.
  void lose(int rank);
  /// What limits another start to those that are left; empty if none was lost.
  Environment environment() const;

 private:
  std::vector<std::string> names_;
  bool changed_ = false;
};

}  // namespace tapestry
