// The operations of a forward pass, for those who look at a model from outside.
#pragma once

#include <span>
#include <vector>

#include "autograd/var.h"

namespace tapestry {

/// While it lives, every operation that a tape records on its thread is noted here, in order. It
/// keeps all values alive.
class OperationTrace {
 public:
  struct Call {
    std::vector<Var> inputs;  ///< parameters among them; undefined ones are left out
    Var output;               ///< the first one, where there are two
  };

  OperationTrace();
  ~OperationTrace();
  OperationTrace(const OperationTrace&) = delete;
  OperationTrace& operator=(const OperationTrace&) = delete;

  const std::vector<Call>& calls() const { return calls_; }

  /// The tape calls it. It does nothing without a living trace.
  static void note(std::span<const Var* const> inputs, const Var& output);

 private:
  std::vector<Call> calls_;
};

}  // namespace tapestry
