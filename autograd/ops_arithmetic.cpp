#include "autograd/ops.h"
#include "autograd/recording.h"
#include "core/dispatch_device.h"
#include "core/kernels/elementwise/elementwise.h"

namespace tapestry {
namespace {

// y = a op b.  da = sum over broadcast axes of dy * d(a op b)/da, and db in the same way.
Var binary(const char* who, Binary op, const Var& a, const Var& b) {
  check(b.defined(), who, "an input is undefined.");
  check_same_kind(who, a, b);
  const BroadcastPlan plan = broadcast_plan(who, a.shape(), b.shape());
  Var y = Tensor::empty(broadcast_shapes(who, a.shape(), b.shape()), a.dtype(), a.value().device());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::binary(device, op, plan, a.value().data<T>(), b.value().data<T>(),
                    y.value().data<T>());
  });
  // Sums need no operand in backward.
  const bool linear = op == Binary::kAdd || op == Binary::kSub;
  Tape::record(
      {&a, &b}, y,
      [op, plan, linear, va = linear ? Tensor() : a.value(), vb = linear ? Tensor() : b.value(),
       da = gradient_of(a), db = gradient_of(b), same_a = a.shape() == y.shape(),
       same_b = b.shape() == y.shape()](Tensor dy) {
        auto write_operand = [&](int wrt, const GradientRef& gradient) {
          const auto [target, write] = gradient->target();
          dispatch(dy, [&, target = target, write = write](auto device, auto type) {
            using T = decltype(type);
            kernels::binary_backward(device, op, wrt, plan, data_or_null<T>(va),
                                     data_or_null<T>(vb), dy.data<T>(), target.data<T>(), write);
          });
        };
        if (db && op == Binary::kAdd && same_b) {
          db->accept(dy);
        } else if (db) {
          write_operand(1, db);
        }
        if (da && linear && same_a) {
          da->accept(std::move(dy));
        } else if (da) {
          write_operand(0, da);
        }
      },
      who);
  return y;
}

}  // namespace

Var add(const Var& a, const Var& b) { return binary("add", Binary::kAdd, a, b); }
Var sub(const Var& a, const Var& b) { return binary("sub", Binary::kSub, a, b); }
Var mul(const Var& a, const Var& b) { return binary("mul", Binary::kMul, a, b); }
Var div(const Var& a, const Var& b) { return binary("div", Binary::kDiv, a, b); }

// y = alpha x + beta.  dx = alpha dy.
Var affine(const Var& x, double alpha, double beta) {
  Var y = Tensor::empty_like(x.value());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::affine(device, alpha, x.value().data<T>(), beta, y.value().data<T>(),
                    y.value().numel());
  });
  Tape::record({&x}, y, [alpha, dx = gradient_of(x)](Tensor dy) {
    const auto [target, write] = dx->target();
    dispatch(dy, [&, target = target, write = write](auto device, auto type) {
      using T = decltype(type);
      kernels::affine(device, alpha, dy.data<T>(), 0.0, target.data<T>(), dy.numel(), write);
    });
  });
  return y;
}

}  // namespace tapestry
