// Saves memory for time: a part of the forward pass that keeps its inputs but not its activations.
#pragma once

#include <utility>

#include "autograd/tape.h"

namespace tapestry {

/// f(), a Var, as one operation of the tape (activation recomputation: Chen et al. 2016, "Training
/// deep nets with sublinear memory cost"). The tape keeps f with its captured values, which must be
/// copies or outlive the tape, but nothing that f computes. Backward runs f again and walks through
/// it. Losses and gradients have the same bits as those of a plain f(): the random draws are
/// repeated, and gradients reach the values that f uses, captured ones and parameters, in the same
/// order. f may call recompute() itself; nothing inside it can retain_grad().
template <class F>
Var recompute(F f) {
  Tape* const tape = Tape::current();
  if (tape == nullptr || tape->paused_) return f();
  struct Pause {
    explicit Pause(Tape& tape) : tape(tape) { tape.paused_ = true, tape.skipped_ = false; }
    ~Pause() { tape.paused_ = false; }
    Tape& tape;
  };
  const PhiloxKey draws = tape->random_;
  Var y = [&] {
    const Pause pause(*tape);
    return f();
  }();
  if (!tape->skipped_) return y;  // no gradient flows
  tape->add_node(std::array{&y}, [draws, f = std::move(f)](Tensor dy) {
    Tape again(draws);
    again.repeats_ = true;
    // Only the gradient is needed, not the value.
    const std::shared_ptr<Gradient> gradient = f().gradient();
    if (gradient == nullptr || !gradient->enabled) return;
    gradient->accept(std::move(dy));
    again.walk();
  });
  return y;
}

}  // namespace tapestry
