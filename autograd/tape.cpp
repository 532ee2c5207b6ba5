#include "autograd/tape.h"

#include <algorithm>

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
  release_uses(/*walked=*/false);
  recording = outer_;
}

Tape* Tape::current() { return recording; }

NoTape::NoTape() : tape_(recording) { recording = nullptr; }

NoTape::~NoTape() { recording = tape_; }

PhiloxKey Tape::next_random() {
  const PhiloxKey key = random_;
  ++random_.stream;
  return key;
}

bool Tape::records(std::span<const Var* const> inputs) {
  if (recording == nullptr) return false;
  for (const Var* input : inputs) {
    if (!input->needs_grad()) continue;
    if (!recording->paused_) return true;
    recording->skipped_ = true;
    recording->note_uses(inputs);
    return false;
  }
  return false;
}

bool Tape::holds(const Var& value) const {
  const Gradient* gradient = value.gradient().get();
  return gradient != nullptr &&
         std::any_of(nodes_.rbegin(), nodes_.rend(), [gradient](const Node& node) {
           return node.outputs[0] == gradient || node.outputs[1] == gradient;
         });
}

void Tape::backward(const Var& loss, double seed) {
  check(loss.defined() && loss.value().numel() == 1, "backward",
        "the loss must have one element, got ", loss.shape(), '.');
  backward(loss, Tensor::full(loss.shape(), seed, loss.dtype(), loss.value().device()));
}

void Tape::backward(const Var& output, const Tensor& gradient) {
  check(holds(output), "backward",
        "the value was not recorded on this tape, or depends on no parameter.");
  check(gradient.shape() == output.shape() && gradient.dtype() == output.dtype(), "backward",
        "the gradient is ", gradient.dtype(), ' ', gradient.shape(), ", the value ", output.dtype(),
        ' ', output.shape(), '.');
  // A copy: it may become a leaf's gradient, to which others are added.
  output.gradient()->accept(gradient.clone());
  walk();
}

void Tape::walk() {
  while (!nodes_.empty()) {
    nodes_.back().run(nodes_.back().closure);
    if (!watched_.empty()) tell_observers();
    pop();
    release_uses(/*walked=*/true);
  }
}

void Tape::note_operation(OperationName name, std::span<const Var* const> inputs,
                          std::span<const Var* const> outputs, bool recorded) {
  const TapeOperation operation = TapeObserver::begin(name);
  TapeObserver::tell_computed(operation, inputs, outputs, recorded);
  if (!recorded || !TapeObserver::looks_back()) return;
  Watched& watched = recording->watched_.emplace_back(
      Watched{.node = recording->nodes_.size() - 1, .operation = operation, .gradients = {}});
  for (const Var* input : inputs) {
    if (input->needs_grad()) watched.gradients.push_back(input->gradient());
  }
}

void Tape::tell_observers() {
  const Watched& last = watched_.back();
  if (last.node + 1 != nodes_.size()) return;
  TapeObserver::tell_walked_back(last.operation, last.gradients);
  watched_.pop_back();
}

void Tape::note_use(const Var& input) {
  ++input.gradient_->uses_;
  uses_.push_back({nodes_.size(), input.gradient_});
}

void Tape::release_uses(bool walked) {
  while (!uses_.empty() && uses_.back().node >= nodes_.size()) {
    const std::shared_ptr<Gradient> gradient = std::move(uses_.back().gradient);
    uses_.pop_back();
    if (--gradient->uses_ == 0 && walked && gradient->listener_ != nullptr) {
      gradient->listener_->complete(*gradient);
    }
  }
}

void Tape::pop() {
  const Node node = nodes_.back();
  nodes_.pop_back();
  node.destroy(node.closure);
  host_free(node.closure, node.bytes);
}

}  // namespace tapestry
