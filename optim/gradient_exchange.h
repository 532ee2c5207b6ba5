// The gradients of an update that several ranks, or the parts of one rank, compute: their sum has
// the same bits however many ranks there are.
//
// An update has P parts. Each of R ranks computes P / R of them, one after the other. The gradient
// of a part is a leaf of the tree T(0, P) of core/kernels/tree_add.h. P / R is a power of two, so
// what a rank adds up by itself is a node of that tree, and the ranks' nodes add up by the same
// rule. On a rank the tree is a binary counter: after part j, as many sums are taken back from a
// stack as j has low bits set.
//
// All gradients lie in one flat array, parameter after parameter, cut into buckets, which go to the
// other ranks while backward computes the rest.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/enumerators.h"
#include "core/distributed/communicator.h"
#include "optim/optimizer.h"

namespace tapestry {

enum class Shard {
  kNone,       ///< every rank updates every parameter
  kOptimizer,  ///< each rank keeps the state of its slices and updates them (ZeRO stage 1,
               ///< Rajbhandari et al. 2020); the same bits, in less memory. What must not be cut
               ///< (ParamGroup::orthogonalize) belongs to one rank as a whole.
};

constexpr const char* name_of(Shard shard) {
  switch (shard) {
    case Shard::kNone:
      return "none";
    case Shard::kOptimizer:
      return "optimizer";
  }
  return nullptr;
}

inline constexpr auto kShards = enumerators<Shard>();

struct ExchangeOptions {
  int64_t parts = 1;                        ///< P
  Shard shard = Shard::kNone;               ///< one rank has nobody to share the state with: kNone
  int64_t bucket_bytes = int64_t{8} << 20;  ///< at most Transport::kLargestMessage counts
};

/// A bucket of gradients in a backward pass, and the seconds that the pass took after the bucket
/// was complete.
struct BucketReady {
  double bytes = 0;
  double seconds_left = 0;
};

/// True if R ranks can share P parts: R divides P, and P / R is a power of two (or R is 1).
bool parts_fit(int64_t parts, int64_t ranks);

class GradientExchange {
 public:
  /// `groups` hold the parameters in the optimizer's order, all of one dtype, float32 or float64.
  /// Those of several ranks may be on GPUs after Communicator::connect_gpus(). Throws
  /// Error(kConfig) unless parts_fit(). The communicator must outlive this.
  GradientExchange(Communicator& communicator, const std::vector<ParamGroup>& groups,
                   const ExchangeOptions& options);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  /// Parts that this rank computes of an update; its first has the number rank * local_parts().
  int64_t local_parts() const { return local_parts_; }
  /// The parameters that this rank's Optimizer updates: all, or with Shard::kOptimizer some of them
  /// and pieces of others, which share their memory.
  const std::vector<ParamGroup>& groups() const { return owned_; }
  int64_t buckets() const { return static_cast<int64_t>(buckets_.size()); }

  // One update: for each local part, add up the gradients of its micro-batches but the last; then
  // open_part(), the last one's backward, close_part(). Then finish(). Between open_part() and
  // close_part() a gradient must be complete once: a second tape that adds to one throws.

  void open_part();
  void close_part();
  /// Waits for the sums and gives them to groups() as their gradients; to no parameter that no part
  /// of any rank reached. Zeros count for a part that did not reach one that others did. Returns
  /// `word` of each rank.
  std::vector<std::string> finish(const std::string& word = "");
  /// The sum of the squares of all gradients after finish(), float64: for Optimizer::launch.
  const Tensor& squares() const { return squares_; }
  /// The buckets in the order in which they go, as the last update's last part completed them.
  std::vector<BucketReady> ready() const;
  /// Seconds that finish() waited for other ranks, of all updates.
  double seconds_waited() const { return seconds_waited_; }

  /// After the optimizer's step, with Shard::kOptimizer: every rank gets all parameters.
  void share_parameters();

  // For checkpoints, which are the same for any number of ranks. All ranks call them.

  /// The state of groups() on all ranks as one Optimizer of all parameters names it.
  NamedTensors gather_state(const Optimizer& optimizer);
  /// The reverse, from the whole state.
  void load_state(Optimizer& optimizer, const NamedTensors& whole) const;
  /// Gathers Optimizer::masters().
  NamedTensors gather_masters(const Optimizer& optimizer);
  void load_masters(const Optimizer& optimizer, const NamedTensors& whole) const;

 private:
  struct Leaf;
  struct Param {
    std::string name;
    Var var;
    int64_t begin, end;  // in the flat array
    int64_t owner = -1;  // the slice of the rank that it belongs to as a whole; -1: it is cut
    int64_t place = 0;   // of such a one among those of its owner, in elements
  };
  struct BucketState {
    int64_t begin, end;                      // in the flat array
    int64_t first, last;                     // parameters that lie in it, [first, last)
    bool has_cut = true, has_whole = false;  // kinds of parameters that lie in it
    int64_t missing = 0;                     // of them, in this part
    double completed = 0;                    // when, in the last part (steady_seconds())
    Communicator::Ticket ticket = -1;
  };
  // Elements of one parameter within one slice of this rank.
  struct Piece {
    std::string name;
    size_t param;
    int64_t begin, end;  // in the flat array
    Var var;
  };

  void find_owners(const std::vector<ParamGroup>& groups);
  void cut_into_buckets();
  void cut_own_pieces();
  void complete(size_t param);
  void deliver(size_t param);
  void start_buckets();
  Tensor start_squares(const Tensor& flat);
  void add_up_squares(const Tensor& sums);
  Tensor flat_buffer();
  Bucket bucket_of(const BucketState& bucket, const Tensor& flat) const;
  // [begin, end) of the slice of a bucket.
  std::pair<int64_t, int64_t> slice_of(const BucketState& bucket, int64_t slice) const;
  void gather_pieces(const Tensor& flat);
  bool is_mine(const Param& param) const { return param.owner == communicator_.slice(); }
  void share_whole();
  Tensor gather_whole(const std::map<std::string, Tensor>& own, const std::string& name,
                      const Shape& shape);
  Tensor gather(const std::map<std::string, Tensor>& own, const std::string& prefix);

  Communicator& communicator_;
  const ExchangeOptions options_;
  const int64_t ranks_, local_parts_;
  std::vector<Param> params_;
  std::vector<ParamGroup> owned_;
  std::vector<Piece> pieces_;
  std::vector<std::unique_ptr<Leaf>> leaves_;
  std::vector<BucketState> buckets_;
  std::vector<size_t> order_;      // in which buckets go
  std::vector<size_t> completed_;  // in which they were complete in the first update
  bool order_known_ = false;
  DType dtype_ = DType::kFloat32;      // of the parameters
  DType sum_dtype_ = DType::kFloat32;  // of the sums: the wider one
  Device device_;
  int64_t elements_ = 0;    // of the flat array, with the zeros at its end
  int64_t most_owned_ = 0;  // elements of the parameters that belong to one rank, at most

  // Buffers of one update.
  std::vector<Tensor> stack_, free_;
  Tensor target_;             // destination of the open part's gradients
  std::vector<Tensor> sums_;  // sums that are added to them, the target last
  std::vector<bool> delivered_, reached_;
  int64_t part_ = 0;
  size_t started_ = 0;
  bool open_ = false, last_ = false;  // a part is open; it is the last of this rank
  double closed_ = 0;                 // when the last part was
  Tensor squares_;
  Communicator::Ticket squares_ticket_ = -1;
  double seconds_waited_ = 0;
};

}  // namespace tapestry
