// The largest number among the values of forward passes, at next to no cost.
#pragma once

#include "autograd/observer.h"

namespace tapestry {

/// While it lives, it samples the output of each operation of its thread on a CPU: one in 64 blocks
/// of 256 elements. `seed` selects the blocks, so that updates look at different ones.
class ActivationWatch : public TapeObserver {
 public:
  explicit ActivationWatch(int64_t seed) : seed_(seed) {}

  /// NaN if one of them was NaN.
  double largest() const { return largest_; }

  void computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                std::span<const Var* const> outputs, bool recorded) override;

 private:
  int64_t seed_;
  double largest_ = 0;
};

}  // namespace tapestry
