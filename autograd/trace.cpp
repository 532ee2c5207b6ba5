#include "autograd/trace.h"

namespace tapestry {

void OperationTrace::computed(const TapeOperation& /*operation*/,
                              std::span<const Var* const> inputs,
                              std::span<const Var* const> outputs, bool recorded) {
  if (!recorded) return;
  Call& call = calls_.emplace_back();
  for (const Var* input : inputs) {
    if (input->defined()) call.inputs.push_back(*input);
  }
  call.output = *outputs.front();
}

}  // namespace tapestry
