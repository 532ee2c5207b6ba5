#include "autograd/trace.h"

#include "core/error.h"

namespace tapestry {
namespace {

thread_local OperationTrace* trace = nullptr;

}  // namespace

OperationTrace::OperationTrace() {
  check(trace == nullptr, "trace", "another trace is alive on this thread.");
  trace = this;
}

OperationTrace::~OperationTrace() { trace = nullptr; }

void OperationTrace::note(std::span<const Var* const> inputs, const Var& output) {
  if (trace == nullptr) return;
  Call& call = trace->calls_.emplace_back();
  for (const Var* input : inputs) {
    if (input->defined()) call.inputs.push_back(*input);
  }
  call.output = output;
}

}  // namespace tapestry
