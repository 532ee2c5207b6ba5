// The processes that train together, as the command sees them: how they begin, agree, fail and end.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/config.h"
#include "core/base/error.h"
#include "core/distributed/communicator.h"
#include "core/tensor.h"

namespace tapestry {

/// A single rank, until join() finds others. It must outlive the report of an error: it names the
/// rank that failed, and ends the others.
class Ranks {
 public:
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// Finds the other ranks if a launcher started this process as one of several. Throws
  /// Error(kConfig) if the engine is mpi and there was no launcher.
  void join(const DistributedOptions& options);
  /// All ranks are done.
  void leave();
  /// The last call: ends all ranks with this message and code. Prints the message, rank 0 first: if
  /// all ranks fail alike, only its message appears. Returns the code, if at all.
  int fail(const std::string& message, int code);

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  bool is_first() const { return rank() == 0; }
  bool is_alone() const { return size() == 1; }
  Communicator& communicator() { return *communicator_; }
  /// "rank 2, hostb", of any rank.
  std::string name_of(int rank) const;
  /// "[rank 2, hostb] " for this rank; empty if it is the only one.
  std::string prefix() const;
  /// "4 ranks on 2 hosts"
  std::string summary() const;
  /// The device of this rank: if the config does not name a GPU ("auto", "cuda"), each rank of a
  /// host gets one of its own.
  std::string device(const std::string& name) const;
  /// The reason why the ranks of this host cannot use all of it, with the remedy; "" if they can.
  std::string few_cores_warning() const;
  /// For set_num_threads() if the user gave none: this rank's share of the cores.
  int threads() const;

  // All ranks call these in the same order.

  /// The numbers of each rank.
  std::vector<std::vector<double>> all_gather(const std::vector<double>& mine);
  /// Rank 0's texts.
  std::vector<std::string> broadcast(const std::vector<std::string>& texts);
  /// Rank 0's elements, in place.
  void broadcast(const Tensor& tensor);
  /// "" if all ranks agree, else "expected <what> of rank 0 everywhere, which is ...; got ...".
  std::string difference(const std::string& what, const std::string& mine);
  /// Throws that, on all ranks.
  void expect_equal(const std::string& what, const std::string& mine,
                    ErrorKind kind = ErrorKind::kRuntime);

 private:
  std::unique_ptr<Communicator> communicator_;
};

/// Numbers as bytes that travel, and back.
std::string bytes_of(const std::vector<double>& numbers);
std::vector<double> numbers_of(const std::string& bytes);

/// XXH3 of this program: ranks of several builds compute several bits.
std::string program_checksum();

}  // namespace tapestry
