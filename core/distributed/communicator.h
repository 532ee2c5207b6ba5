// Communication between the ranks of a training. A thread of its own owns the transport and does
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
  double heartbeat_seconds = 2;  ///< interval of the messages that say a rank lives
  double notice_seconds = 30;    ///< interval at which rank 0 reports the ranks that it waits for
  double goodbye_seconds = 2;    ///< the longest that the end of a job waits for MPI
  /// Receives messages for the user, at once and from the communicator's thread: the ranks that
  /// this one waits for, and the failure after which that thread ends the job. May be null.
  std::function<void(const std::string&)> report = nullptr;
};

/// Every rank makes the same calls in the same order, whatever happens to it, so a decision must
/// depend only on what all ranks know. A failure of any rank is thrown, as Error, by the next call
/// or the one that waits.
class Communicator {
 public:
  /// A single rank: no thread, no transport; every call returns at once.
  Communicator();
  /// Makes the transport in its thread and waits for the other ranks, for timeout_seconds. Throws
  /// Error.
  Communicator(const std::function<std::unique_ptr<Transport>()>& open,
               const CommunicatorOptions& options);
  /// Ends the job with code 1 if finish() was not called: the others would wait for ever.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  /// The host of each rank.
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

  // Starts the exchange of buckets in the background. They begin in the order of the calls, at most
  // kInFlight at a time, and end in any order. Nobody else may touch a bucket until wait() has
  // returned.

  static constexpr size_t kInFlight = 4;
  using Ticket = int64_t;
  /// A bucket on a GPU is sent after all work that the calling thread has put on the GPU's stream
  /// so far.
  Ticket start(Exchange exchange, const Bucket& bucket);
  /// For a bucket on a GPU, waits until its exchange is on the GPU. Later work of this thread on
  /// the stream comes after it; the host does not wait.
  void wait(Ticket ticket);

  /// Sends buckets on GPUs over NCCL from now on. All ranks call it before the first bucket, each
  /// with a GPU of its own, in whose memory it has allocated something. With DeviceSums::kNccl
  /// slice() may change. Throws Error(kConfig) if there is no NCCL. A single rank needs none.
  void connect_gpus(DeviceSums sums);
  bool connects_gpus() const;

  /// Sets what this rank is doing, in a few words with static lifetime. Other ranks show it while
  /// they wait for this one.
  void doing(const char* phase);

  /// All ranks are done. Whatever is called after that, but for end_job(), throws.
  void finish();
  /// Ends all processes of the job with this code. Returns if ranks are threads, or if there is one
  /// rank.
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
