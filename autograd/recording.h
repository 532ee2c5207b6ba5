// What the ops_*.cpp files share; not part of the vocabulary.
#pragma once

#include "autograd/tape.h"

namespace tapestry {

using GradientRef = std::shared_ptr<Gradient>;

/// x's gradient when one is wanted, else null: what a backward closure captures.
inline GradientRef gradient_of(const Var& x) { return x.needs_grad() ? x.gradient() : nullptr; }

/// Target of an optional gradient: an undefined tensor when it is not wanted.
inline Gradient::Target target_of(const GradientRef& gradient) {
  return gradient ? gradient->target() : Gradient::Target{Tensor(), Write::kSet};
}

template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

/// Throws unless b (when defined) has a's dtype and device.
inline void check_same_kind(const char* who, const Var& a, const Var& b) {
  check(a.defined(), who, "an input is undefined.");
  if (!b.defined()) return;
  check(a.dtype() == b.dtype() && a.value().device() == b.value().device(), who,
        "inputs differ in kind: ", a.dtype(), " on ", a.value().device(), ", ", b.dtype(), " on ",
        b.value().device(), '.');
}

}  // namespace tapestry
