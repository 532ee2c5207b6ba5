#include "autograd/tape.h"

namespace tapestry {
namespace {

thread_local Tape* recording = nullptr;

}  // namespace

Tape::Tape(PhiloxKey random) : random_(random), outer_(recording) {
  nodes_.reserve(1024);
  recording = this;
}

Tape::~Tape() {
  while (!nodes_.empty()) pop();
  recording = outer_;
}

Tape* Tape::current() { return recording; }

PhiloxKey Tape::next_random() {
  const PhiloxKey key = random_;
  ++random_.stream;
  return key;
}

bool Tape::records(std::span<const Var* const> inputs) {
  if (recording == nullptr) return false;
  for (const Var* input : inputs) {
    if (input->needs_grad()) return true;
  }
  return false;
}

void Tape::backward(const Var& loss, double seed) {
  check(loss.defined() && loss.value().numel() == 1, "backward",
        "the loss must have one element, got ", loss.shape(), '.');
  backward(loss, Tensor::full(loss.shape(), seed, loss.dtype(), loss.value().device()));
}

void Tape::backward(const Var& output, Tensor gradient) {
  check(output.needs_grad() && !nodes_.empty(), "backward",
        "the value was not recorded on this tape, or depends on no parameter.");
  check(gradient.shape() == output.shape(), "backward", "the gradient is ", gradient.shape(),
        ", the value ", output.shape(), '.');
  output.gradient()->accept(std::move(gradient));
  while (!nodes_.empty()) {
    nodes_.back().run(nodes_.back().closure);
    pop();
  }
}

void Tape::pop() {
  const Node node = nodes_.back();
  nodes_.pop_back();
  node.destroy(node.closure);
  host_free(node.closure, node.bytes);
}

}  // namespace tapestry
