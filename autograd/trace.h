// Records the operations of a forward pass, to show a model's structure.
#pragma once

#include <span>
#include <vector>

#include "autograd/observer.h"

namespace tapestry {

/// While it lives, every operation that a tape records on its thread is noted here, in order. It
/// keeps all values alive.
class OperationTrace : public TapeObserver {
 public:
  struct Call {
    std::vector<Var> inputs;  ///< parameters among them; undefined ones are left out
    Var output;               ///< the first output, if there are two
  };

  const std::vector<Call>& calls() const { return calls_; }

  void computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                std::span<const Var* const> outputs, bool recorded) override;

 private:
  std::vector<Call> calls_;
};

}  // namespace tapestry
