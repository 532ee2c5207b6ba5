// The largest number among the values of forward passes, at next to no cost.
#pragma once

#include "autograd/observer.h"

namespace tapestry {

/// While it lives, it looks at one in 64 blocks of 256 elements of what each operation of its
/// thread computes, on a CPU. Which ones depends on `seed`, so that updates look at different ones.
class ActivationWatch : public TapeObserver {
 public:
  explicit ActivationWatch(int64_t seed) : seed_(seed) {}

  /// NaN where one was none.
  double largest() const { return largest_; }

  void computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                std::span<const Var* const> outputs, bool recorded) override;

 private:
  int64_t seed_;
  double largest_ = 0;
};

}  // namespace tapestry
