// The processes that train together, as the command sees them: how they begin, agree, fail and end.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/config.h"
#include "core/distributed/communicator.h"
#include "core/error.h"
#include "core/tensor.h"

namespace tapestry {

/// One rank alone, until join() finds others. It must outlive the report of an error: it says which
/// rank had it, and ends the others.
class Ranks {
 public:
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// Finds the others where a launcher started this process as one of several. Throws
  /// Error(kConfig) where the engine is mpi and no launcher did.
  void join(const DistributedOptions& options);
  /// All ranks are done.
  void leave();
  /// The message and the code of this process go to all: the last call. Prints the message, rank 0
  /// first: where all ranks fail alike its message stands alone. Returns the code, if at all.
  int fail(const std::string& message, int code);

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  bool is_first() const { return rank() == 0; }
  bool is_alone() const { return size() == 1; }
  Communicator& communicator() { return *communicator_; }
  /// "rank 2, hostb", of any rank.
  std::string name_of(int rank) const;
  /// "[rank 2, hostb] ", of this one; empty where it is alone.
  std::string prefix() const;
  /// "4 ranks on 2 hosts"
  std::string summary() const;
  /// Where this rank computes: where the config leaves the GPU open ("auto", "cuda"), each rank of
  /// a host has one of its own.
  std::string device(const std::string& name) const;
  /// What keeps the ranks of this host from using it, and the remedy; "" where nothing.
  std::string few_cores_warning() const;
  /// For set_num_threads() where the user gave none: those of the cores that are this rank's.
  int threads() const;

  // All ranks call these in the same order.

  /// The numbers of each rank.
  std::vector<std::vector<double>> all_gather(const std::vector<double>& mine);
  /// Rank 0's texts.
  std::vector<std::string> broadcast(const std::vector<std::string>& texts);
  /// Rank 0's elements, in place.
  void broadcast(const Tensor& tensor);
  /// "" where all say the same, else "expected <what> of rank 0 everywhere, which is ...; got ...".
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
