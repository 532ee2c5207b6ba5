#include "optim/backward_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/dispatch_device.h"
#include "core/kernels/optimizer.h"
#include "core/shapes_only.h"
#include "optim/optimizer_rules.h"

namespace tapestry {

// Called when the gradient of a parameter is complete.
struct BackwardSteps::Leaf final : GradientListener {
  Leaf(BackwardSteps& steps, size_t slot) : steps(steps), slot(slot) {}
  void complete(Gradient&) override {
    if (steps.open_) steps.complete(slot);
  }
  BackwardSteps& steps;
  size_t slot;
};

BackwardSteps::BackwardSteps(Optimizer& optimizer) : optimizer_(optimizer) {
  for (size_t i = 0; i < optimizer_.slots_.size(); ++i) {
    const Var& var = optimizer_.slots_[i].var;
    if (const Device device = var.value().device(); !device.is_cpu()) {
      fail(ErrorKind::kConfig, "[optimizer] updates in backward are for a CPU, '",
           optimizer_.slots_[i].name, "' is on ", device, '.');
    }
    leaves_.push_back(std::make_unique<Leaf>(*this, i));
    var.set_listener(leaves_.back().get());
  }
  offsets_.resize(leaves_.size());
  pieces_.resize(leaves_.size());
}

BackwardSteps::~BackwardSteps() {
  for (const Optimizer::Slot& slot : optimizer_.slots_) {
    try {
      slot.var.set_listener(nullptr);
    } catch (const Error&) {
      // A tape that an error left behind holds uses. It is not walked any more.
    }
  }
}

void BackwardSteps::open(double learning_rate, const ClipOptions& clip,
                         std::span<const Tensor> losses) {
  optimizer_.expect_launch(learning_rate);
  check(clip.max_own_norm() == 0, "optimizer",
        "updates in backward cannot be clipped by their own norm, got max_grad_norm ",
        clip.max_grad_norm, '.');
  learning_rate_ = learning_rate;
  clip_ = clip;
  updated_ = 0;
  culprit_.clear();
  squared_ = Tensor::zeros({}, DType::kFloat64);
  spoil_if_not_finite(losses, squared_);
  finite_ = std::isfinite(squared_.item());
  // Those that no gradient can reach are no part of Optimizer's sum.
  int64_t offset = 0;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Var& var = optimizer_.slots_[i].var;
    pieces_[i].clear();
    offsets_[i] = offset;
    if (var.needs_grad() && var.gradient()->awaited()) offset += var.value().numel();
  }
  for (GradientFigures& figures : optimizer_.figures_) {
    figures = {.name = std::move(figures.name)};
  }
  open_ = true;
}

void BackwardSteps::complete(size_t index) {
  const Optimizer::Slot& slot = optimizer_.slots_[index];
  const Tensor gradient = slot.var.needs_grad() ? slot.var.grad() : Tensor();
  if (!gradient.defined()) return;
  check(pieces_[index].empty(), "optimizer",
        "expected one backward pass in an update, got another one that reaches '", slot.name, "'.");
  if (ShapesOnly::is_on()) {
    int64_t bytes = 0;
    for (const Optimizer::Slot& other : optimizer_.slots_) {
      if (const Tensor held = other.var.grad(); held.defined()) bytes += held.bytes();
    }
    most_bytes_ = std::max(most_bytes_, bytes);
  }
  double squares = 0;
  int64_t zeros = 0;
  dispatch(gradient, [&](auto device, auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<decltype(device), Cpu>) {
      const ElementSpan<T> span{gradient.data<T>(), gradient.numel()};
      kernels::piece_squares<T>(device, span, offsets_[index], pieces_[index]);
    }
  });
  for (const kernels::TensorSquares& piece : pieces_[index]) {
    squares += piece.squares;
    zeros += piece.zeros;
  }
  if (!optimizer_.figures_.empty()) {
    GradientFigures& figures = optimizer_.figures_[index];
    figures.squares = squares;
    figures.zeros = zeros;
    figures.elements = gradient.numel();
  }
  if (finite_ && !std::isfinite(squares)) {
    finite_ = false;
    if (updated_ > 0) culprit_ = slot.name;
  }
  if (finite_) {
    GradientTransform transform;
    transform.scale = clip_.scale();
    if (clip_.clip_value > 0) transform.limit = clip_.clip_value;
    optimizer_.update(std::span(&slot, 1), learning_rate_, transform);
    ++updated_;
  }
  slot.var.gradient()->take();
}

// The same additions in the same order as of all gradients in one pass.
void BackwardSteps::close() {
  check(open_, "optimizer", "close() without open().");
  open_ = false;
  std::vector<double> chunks;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    auto chunk = static_cast<size_t>(offsets_[i] / kernels::kSquaresChunk);
    chunks.resize(std::max(chunks.size(), chunk + pieces_[i].size()), 0.0);
    for (const kernels::TensorSquares& piece : pieces_[i]) chunks[chunk++] += piece.squares;
  }
  double sum = 0;
  kernels::add_chunks(Cpu{}, chunks.data(), std::ssize(chunks), &sum);
  *squared_.data<double>() += sum;
  // What was updated is not undone: no counts go back.
  optimizer_.launched_ = Optimizer::Launched{
      HostCopy(squared_), /*gradient_scale=*/1, {}, culprit_.empty() ? 0 : updated_, culprit_};
}

}  // namespace tapestry
