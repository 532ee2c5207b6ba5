// A value on the tape.
#pragma once

#include <memory>
#include <utility>

#include "core/kernels/common.h"
#include "core/tensor.h"

namespace tapestry {

/// Collects the gradient of one value. The first contribution sets it, the following ones add, so a
/// value that is used several times needs no zero fill and no special case.
class Gradient {
 public:
  explicit Gradient(const Tensor& value)
      : shape_(value.shape()), dtype_(value.dtype()), device_(value.device()) {}

  /// Where a backward kernel writes its contribution, and how.
  struct Target {
    Tensor tensor;
    Write write;
  };
  Target target();

  /// Contributes a tensor that nobody writes to any more: kept as it is when it comes first, and
  /// copied before others are added to it only if somebody still reads it.
  void accept(Tensor contribution);

  /// The sum of the contributions; undefined when none came.
  Tensor value() const { return filled_ ? value_ : Tensor(); }
  bool filled() const { return filled_; }

  /// Hands out the sum and forgets it, unless it is to be retained: then a copy.
  Tensor take();
  /// Forgets the contributions; the memory is used again by the next one.
  void clear() { filled_ = false; }

  bool enabled = true;    ///< false: frozen, nothing flows here
  bool retained = false;  ///< an intermediate whose gradient stays readable after backward

 private:
  // Nobody else may see what is written to value_.
  void own();

  Shape shape_;
  DType dtype_;
  Device device_;
  Tensor value_;
  bool filled_ = false;
};

/// A tensor and, when gradients flow into it, where they collect. Copies refer to the same value.
class Var {
 public:
  Var() = default;
  /// A constant.
  Var(Tensor value) : value_(std::move(value)) {}  // NOLINT: constants convert on purpose
  /// A leaf whose gradient is wanted: a trained parameter.
  static Var parameter(Tensor value);

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }

  bool needs_grad() const { return gradient_ != nullptr && gradient_->enabled; }
  /// The gradient after Tape::backward(); undefined when none reached this value.
  Tensor grad() const { return gradient_ ? gradient_->value() : Tensor(); }
  void zero_grad() const {
    if (gradient_) gradient_->clear();
  }
  /// Freezes or unfreezes a parameter. Throws on a constant.
  void set_requires_grad(bool on) const;
  /// Keeps an intermediate's gradient readable after backward. Call it while the tape records.
  void retain_grad() const;

  /// Null for a constant. Backward closures hold this and the tensors they read, not the whole Var.
  const std::shared_ptr<Gradient>& gradient() const { return gradient_; }

 private:
  friend class Tape;
  Tensor value_;
  std::shared_ptr<Gradient> gradient_;
};

}  // namespace tapestry
