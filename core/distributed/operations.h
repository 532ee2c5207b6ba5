// Collective operations as state machines, which one thread drives over a Transport without
// blocking.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/distributed/transport.h"
#include "core/tensor.h"

namespace tapestry {

/// Elements that all ranks have, cut into as many equal slices as there are ranks.
struct Bucket {
  void* data = nullptr;
  int64_t elements = 0;  ///< a multiple of the number of ranks
  DType dtype = DType::kFloat32;
  Tensor memory = {};  ///< kept until the operation has ended, if it is defined
  Device device = {};
};

/// Ranks that cut a block into equal pieces, one each, in the order of their numbers.
struct Stage {
  std::vector<int> ranks;
  int place = 0;  ///< of this rank
};

/// The stages of an exchange between ranks on these hosts (one name for each rank): all with all,
/// or, if every host has the same power of two of consecutive ranks, first the ranks of a host,
/// then those of equal place on their hosts. The sums have the same bits, but fewer bytes go
/// between hosts.
std::vector<Stage> stages_of(int rank, const std::vector<std::string>& hosts);

/// All with all.
Stage stage_of_all(int rank, int ranks);

/// The slice of a bucket that this rank owns.
int owned_slice(const std::vector<Stage>& stages);

class Operation {
 public:
  virtual ~Operation() = default;

  /// Sends the first messages. `tag` is the first of kTags of its own.
  virtual void begin(Transport& transport, int tag) = 0;
  /// Makes progress; true when nothing is left to do. Throws Error.
  virtual bool advance(Transport& transport) = 0;
  /// True if this rank is ready for it; a GPU may still compute the data.
  virtual bool is_reached() const { return true; }
  /// True if a GPU will finish it without the host.
  virtual bool is_on_its_way() const { return false; }
  static constexpr int kTags = 4;

  /// Ranks whose messages have not arrived.
  std::vector<int> awaited() const;

 protected:
  void send(Transport& transport, int to, int tag, const void* data, int64_t bytes);
  void receive(Transport& transport, int from, int tag, void* data, int64_t bytes);
  /// True if all messages are sent and received.
  bool all_done(Transport& transport);

 private:
  struct Pending {
    Transport::RequestPtr request;
    int from;  // -1 for a send
  };
  std::vector<Pending> pending_;
};

enum class Exchange {
  kReduceScatter,  ///< each rank gets the sum of its slice: kernels::tree_add over the ranks
  kAllGather,      ///< each rank's slice goes to all
  kAllReduce,      ///< one after the other
};

/// Part of an exchange within a stage, in which each rank has a piece of the block. To reduce, it
/// receives its own piece from the others and adds them up; the sum is the block of the next stage.
/// To gather reverses this.
struct ExchangeStep {
  const Stage* stage;
  char* block;
  int64_t bytes;  ///< of a piece
  bool gathers;

  int others() const { return static_cast<int>(stage->ranks.size()) - 1; }
  char* piece(int place) const { return block + place * bytes; }
  char* own() const { return piece(stage->place); }
};

/// Throws Error when the bucket cannot be cut into equal slices. `stages` must outlive the steps.
std::vector<ExchangeStep> exchange_steps(Exchange exchange, const Bucket& bucket,
                                         const std::vector<Stage>& stages);

std::unique_ptr<Operation> bucket_operation(Exchange exchange, const Bucket& bucket,
                                            const std::vector<Stage>& stages);

/// result[r] becomes rank r's `mine`; with `from_0_only` every rank's result is {rank 0's}.
std::unique_ptr<Operation> string_operation(std::string mine, bool from_0_only,
                                            std::vector<std::string>& result);

}  // namespace tapestry
