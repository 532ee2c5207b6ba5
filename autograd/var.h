// A value on the tape.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/common.h"
#include "core/tensor.h"

namespace tapestry {

class Gradient;

/// Called when the gradient of a parameter is complete.
class GradientListener {
 public:
  virtual ~GradientListener() = default;
  /// Called once in a backward pass of a tape that recorded a use of the parameter, after the last
  /// use has been walked back over, so that no contribution can follow. The gradient is not filled
  /// if no use contributed to it. The listener may take it.
  virtual void complete(Gradient& gradient) = 0;
};

/// Collects the gradient of one value. The first contribution sets it, the following ones add, so a
/// value that is used several times needs no zero fill and no special case.
class Gradient {
 public:
  explicit Gradient(const Tensor& value)
      : shape_(value.shape()), dtype_(value.dtype()), device_(value.device()) {}

  /// The tensor to which a backward kernel writes its contribution, and how.
  struct Target {
    Tensor tensor;
    Write write;
  };
  Target target();

  /// Contributes a tensor that nobody will write to again. The first contribution is kept without a
  /// copy; it is copied before others are added only if someone else still holds it.
  void accept(Tensor contribution);

  /// The sum of the contributions; undefined if there are none.
  Tensor value() const { return filled_ ? value_ : Tensor(); }
  bool filled() const { return filled_; }
  /// True while a tape holds uses that may still contribute; only if there is a listener.
  bool awaited() const { return uses_ > 0; }

  /// Moves the sum out; if `retained`, returns a copy and keeps the sum.
  Tensor take();
  /// Forgets the contributions; the next one reuses the memory.
  void clear() { filled_ = false; }
  /// Allocates the memory before the first contribution, so that long-lived memory stands apart
  /// from what a pass allocates and frees.
  void reserve() { own(); }

  bool enabled = true;    ///< false: frozen, takes no gradient
  bool retained = false;  ///< true: an intermediate whose gradient stays readable after backward

 private:
  friend class Tape;
  friend class Var;

  // Makes value_ a copy of its own if others hold its storage.
  void own();

  Shape shape_;
  DType dtype_;
  Device device_;
  Tensor value_;
  bool filled_ = false;
  GradientListener* listener_ = nullptr;
  int64_t uses_ = 0;  // uses that are recorded and not walked back over; counted only if there is a
                      // listener
};

/// A tensor and, if it takes gradients, their collector. Copies refer to the same value.
class Var {
 public:
  Var() = default;
  /// A constant.
  Var(Tensor value) : value_(std::move(value)) {}  // NOLINT: constants convert on purpose
  /// A leaf that needs a gradient: a trained parameter.
  static Var parameter(Tensor value);

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }

  bool needs_grad() const { return gradient_ != nullptr && gradient_->enabled; }
  /// The gradient after Tape::backward(); undefined if none reached this value.
  Tensor grad() const { return gradient_ ? gradient_->value() : Tensor(); }
  void zero_grad() const {
    if (gradient_) gradient_->clear();
  }
  /// Freezes or unfreezes a parameter. Throws on a constant.
  void set_requires_grad(bool on) const;
  /// Sets the listener that is called when this parameter's gradient is complete; null: none. It
  /// must outlive every backward pass. Do not call while a tape holds uses of the parameter. Throws
  /// on a constant.
  void set_listener(GradientListener* listener) const;
  /// Keeps an intermediate's gradient readable after backward. Call it while the tape records.
  void retain_grad() const;

  /// Null for a constant. Backward closures hold this and the tensors they read, not the whole Var.
  const std::shared_ptr<Gradient>& gradient() const { return gradient_; }

 private:
  friend class Tape;
  Tensor value_;
  std::shared_ptr<Gradient> gradient_;
};

using NamedVars = std::vector<std::pair<std::string, Var>>;

}  // namespace tapestry
