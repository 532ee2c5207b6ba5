// Updates of parameters while backward goes on ("optimizer in backward", "fused backward": Lv et
// al. 2023, LOMO), so that no pass holds the gradients of all.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/kernels/sum_squares.h"
#include "optim/optimizer.h"

namespace tapestry {

/// Stands for Optimizer::launch() in updates of one backward pass on a CPU: each parameter is
/// updated as soon as its gradient is complete, which is then freed. Weights, state, norm and
/// figures have the same bits. The norm of all gradients is known only at the end, so nothing can
/// be clipped by it, but by another one (ClipOptions::norm).
///
/// If a loss is not finite, nothing is updated, and the update counts as skipped. If a gradient is
/// not, it and those after it change nothing, but those before it have been updated:
/// Optimizer::outcome() names it.
class BackwardSteps {
 public:
  /// Becomes the listener of the parameters. The optimizer must outlive this. Throws Error(kConfig)
  /// if they are not on a CPU.
  explicit BackwardSteps(Optimizer& optimizer);
  ~BackwardSteps();
  BackwardSteps(const BackwardSteps&) = delete;
  BackwardSteps& operator=(const BackwardSteps&) = delete;

  // An update: forward, open(), Tape::backward(), close(), Optimizer::outcome(). Passes that are
  // walked back over while it is closed leave their gradients as they are.

  /// Throws as Optimizer::launch(), and if the own norm should be clipped. `losses` are its
  /// `also_finite`.
  void open(double learning_rate, const ClipOptions& clip = {},
            std::span<const Tensor> losses = {});
  void close();

  /// The most bytes of gradients that were complete or begun at a time. Counted in a dry run
  /// (core/shapes_only.h) only.
  int64_t most_bytes() const { return most_bytes_; }

 private:
  struct Leaf;
  void complete(size_t slot);

  Optimizer& optimizer_;
  std::vector<std::unique_ptr<Leaf>> leaves_;
  // Of an update.
  bool open_ = false;
  double learning_rate_ = 0;
  ClipOptions clip_;
  bool finite_ = true;  // so far
  int64_t updated_ = 0;
  std::string culprit_;
  Tensor squared_;  // 0, or not finite if a loss is not
  std::vector<int64_t> offsets_;
  std::vector<std::vector<kernels::TensorSquares>> pieces_;  // of each slot
  int64_t most_bytes_ = 0;
};

}  // namespace tapestry
