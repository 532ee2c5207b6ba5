// What the ranks of a training say to each other. A thread of its own owns the transport and does
// all of it, so that gradients travel while backward still computes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/distributed/device_link.h"
#include "core/distributed/operations.h"
#include "core/distributed/transport.h"

namespace tapestry {

struct CommunicatorOptions {
  double timeout_seconds = 60;   ///< a rank that is silent for so long is dead
  double heartbeat_seconds = 2;  ///< how often a rank says that it lives
  double notice_seconds = 30;    ///< rank 0 says for whom it has waited so long, and again
  double goodbye_seconds = 2;    ///< the longest that the end of a job waits for MPI
  /// Gets what a user should read, at once and from the communicator's thread: for whom this rank
  /// waits, and the failure after which that thread ends the job. May be null.
  std::function<void(const std::string&)> report = nullptr;
};

/// Every rank makes the same calls in the same order, whatever happens to it: decide from what all
/// ranks know. A failure anywhere is thrown, as Error, by the next call or the one that waits.
class Communicator {
 public:
  /// One rank alone: no thread, no transport; every call returns at once.
  Communicator();
  /// Makes the transport in its thread and waits for the other ranks, for timeout_seconds. Throws
  /// Error.
  Communicator(const std::function<std::unique_ptr<Transport>()>& open,
               const CommunicatorOptions& options);
  /// Without finish() this ends the job with code 1: the others would wait for ever.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  /// Of each rank.
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// Ranks of this host that may use the very cores that this one may use, itself included.
  int ranks_on_these_cores() const { return ranks_on_these_cores_; }
  /// "open mpi 4.1.4"
  const std::string& library() const { return library_; }
  /// The slice of a bucket that this rank owns: reduce_scatter() sums it, all_gather() sends it.
  int slice() const { return slice_; }

  // Small and blocking.

  /// The text of each rank.
  std::vector<std::string> all_gather(const std::string& mine);
  /// Rank 0's text.
  std::string broadcast(const std::string& text);

  // Of buckets, in the background: they begin in the order of the calls, at most kInFlight at a
  // time, and end in any. Nobody else may touch a bucket until wait() has returned.

  static constexpr size_t kInFlight = 4;
  using Ticket = int64_t;
  /// A bucket on a GPU travels after what the calling thread has put on the GPU's stream so far.
  Ticket start(Exchange exchange, const Bucket& bucket);
  /// For a bucket on a GPU: until its exchange is on the GPU. What this thread puts on the stream
  /// from then on comes after it; the host need not wait.
  void wait(Ticket ticket);

  /// Buckets on GPUs travel from here on, over NCCL. All ranks call it, before the first bucket,
  /// each with a GPU of its own, in whose memory it has allocated something. With DeviceSums::kNccl
  /// slice() may change. Throws Error(kConfig) where there is no NCCL. One rank needs none.
  void connect_gpus(DeviceSums sums);
  bool connects_gpus() const;

  /// What this rank is doing from now on, in a few words that live for ever: others read it when
  /// they wait for this rank.
  void doing(const char* phase);

  /// All ranks are done. Whatever is called after that, but for end_job(), throws.
  void finish();
  /// All processes of the job end with this code. Returns where ranks are threads, and where there
  /// is one rank.
  void end_job(int code) noexcept;

 private:
  class Engine;

  std::shared_ptr<Engine> engine_;
  int rank_ = 0, slice_ = 0, ranks_on_these_cores_ = 1;
  std::vector<std::string> hosts_ = {"localhost"};
  std::string library_;
  double timeout_seconds_ = 0;
  std::unordered_set<Ticket> on_gpus_;  // not waited for
};

}  // namespace tapestry
