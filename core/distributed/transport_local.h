// Ranks that are threads of one process: tests run the exchange on it, with delays on demand, and
// under ThreadSanitizer. Received bytes are read from the sender's own memory, so a sender that
// writes there too early is seen.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/distributed/transport.h"

namespace tapestry {

struct LocalJobOptions {
  std::vector<std::string> hosts;    ///< of each rank
  double longest_delay_seconds = 0;  ///< each message takes a random time up to this
  uint64_t seed = 1;
};

class LocalJob {
 public:
  explicit LocalJob(const LocalJobOptions& options);
  ~LocalJob();

  /// The transport of a rank; it may outlive this object.
  std::unique_ptr<Transport> open(int rank);
  /// Drops all later messages of this rank, as if its host or its link had failed.
  void cut_off(int rank);
  /// The code that end_job() was called with first; -1 while the job runs.
  int code() const;

 private:
  struct State;
  class Rank;
  std::shared_ptr<State> state_;
};

}  // namespace tapestry
