#include "autograd/var.h"

#include "core/allocator.h"
#include "core/dispatch_device.h"
#include "core/kernels/elementwise/elementwise.h"

namespace tapestry {

void Gradient::own() {
  if (value_.defined() && !value_.shared()) return;
  value_ = filled_ ? value_.clone() : Tensor::empty(shape_, dtype_, device_);
}

Gradient::Target Gradient::target() {
  own();
  const Write write = filled_ ? Write::kAdd : Write::kSet;
  filled_ = true;
  return {value_, write};
}

void Gradient::accept(Tensor contribution) {
  if (!filled_) {
    value_ = contribution.reshape(shape_);
    filled_ = true;
    return;
  }
  own();
  dispatch(value_, [&](auto device, auto type) {
    using T = decltype(type);
    kernels::affine(device, 1.0, contribution.data<T>(), 0.0, value_.data<T>(), value_.numel(),
                    Write::kAdd);
  });
}

Tensor Gradient::take() {
  if (retained) return value_.clone();
  filled_ = false;
  return std::exchange(value_, Tensor());
}

Var Var::parameter(Tensor value) {
  Var var(std::move(value));
  var.gradient_ = std::allocate_shared<Gradient>(HostAllocator<Gradient>(), var.value_);
  return var;
}

void Var::set_requires_grad(bool on) const {
  check(gradient_ != nullptr, "set_requires_grad", "expected a parameter, got a constant.");
  gradient_->enabled = on;
}

void Var::set_listener(GradientListener* listener) const {
  check(gradient_ != nullptr, "set_listener", "expected a parameter, got a constant.");
  check(gradient_->uses_ == 0, "set_listener", "a tape holds uses of this parameter.");
  gradient_->listener_ = listener;
}

void Var::retain_grad() const {
  check(gradient_ != nullptr, "retain_grad", "no gradient flows into this value.");
  gradient_->retained = true;
}

}  // namespace tapestry
