// Shared by the ops_*.cpp files; not part of the vocabulary.
#pragma once

#include <array>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/shapes_only.h"

namespace tapestry {

using GradientRef = std::shared_ptr<Gradient>;

/// x's gradient if x needs one, else null. Backward closures capture it.
inline GradientRef gradient_of(const Var& x) { return x.needs_grad() ? x.gradient() : nullptr; }

/// Target of an optional gradient: an undefined tensor if the gradient is null.
inline Gradient::Target target_of(const GradientRef& gradient) {
  return gradient ? gradient->target() : Gradient::Target{Tensor(), Write::kSet};
}

/// The targets of a kernel that writes several gradients at once. If two inputs are the same value,
/// the kernel must not write both gradients to one tensor, because it promises no order. The later
/// gradient gets a tensor of its own, which deliver() adds.
template <size_t N>
class Targets {
 public:
  explicit Targets(std::array<GradientRef, N> gradients) : gradients_(std::move(gradients)) {
    for (size_t i = 0; i < N; ++i) {
      const size_t first = first_use(i);
      targets_[i] = first == i
                        ? target_of(gradients_[i])
                        : Gradient::Target{Tensor::empty_like(targets_[first].tensor), Write::kSet};
    }
  }
  const Gradient::Target& operator[](size_t i) const { return targets_[i]; }

  /// Call it after the kernel.
  void deliver() {
    for (size_t i = 0; i < N; ++i) {
      if (first_use(i) != i) gradients_[i]->accept(std::move(targets_[i].tensor));
    }
  }

 private:
  size_t first_use(size_t i) const {
    for (size_t j = 0; j < i; ++j) {
      if (gradients_[i] && gradients_[j] == gradients_[i]) return j;
    }
    return i;
  }

  std::array<GradientRef, N> gradients_;
  std::array<Gradient::Target, N> targets_;
};

template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

/// Throws unless b (when defined) has a's dtype and device.
inline void check_same_kind(const char* who, const Var& a, const Var& b) {
  check(a.defined(), who, "an input is undefined.");
  if (!b.defined()) return;
  check(a.dtype() == b.dtype() && a.value().device() == b.value().device(), who,
        "inputs differ in dtype or device: ", a.dtype(), " on ", a.value().device(), ", ",
        b.dtype(), " on ", b.value().device(), '.');
}

/// Throws unless x can be multiplied by the weight.
inline void check_weight(const char* who, const Var& x, const Weight& weight) {
  if (!weight.frozen) return check_same_kind(who, x, weight.value);
  check(x.defined() && x.value().device().is_cpu(), who,
        "frozen weights are for inputs in host memory.");
}

/// The elements of position_offsets, null if it is undefined: (batch) int32, without gradients.
template <std::same_as<Var>... V>
const int32_t* offsets_of(const char* who, const Tensor& offsets, int64_t batch,
                          const V&... inputs) {
  if (!offsets.defined()) return nullptr;
  check(offsets.shape() == Shape{batch}, who, "position_offsets must be (", batch, "), got ",
        offsets.shape(), '.');
  check(!Tape::records(inputs...), who, "no gradient flows through position_offsets.");
  return offsets.data<int32_t>();
}

/// The elements of `positions` (B, T) int32, null if it is undefined. Throws unless they have the
/// shape of `tokens` and, in host memory, are rows of a table of `most`.
inline const int32_t* positions_of(const char* who, const Tensor& positions, const Shape& tokens,
                                   int64_t most) {
  if (!positions.defined()) return nullptr;
  check(positions.shape() == tokens && positions.dtype() == DType::kInt32, who,
        "positions must be int32 ", tokens, ", got ", positions.dtype(), ' ', positions.shape(),
        '.');
  const int32_t* const rows = positions.data<int32_t>();
  if (!positions.device().is_cpu() || !ShapesOnly::has_memory(positions.bytes())) return rows;
  for (int64_t i = 0; i < positions.numel(); ++i) {
    check(rows[i] >= 0 && rows[i] < most, who, "positions must be in [0, ", most, "), got ",
          rows[i], '.');
  }
  return rows;
}

}  // namespace tapestry
