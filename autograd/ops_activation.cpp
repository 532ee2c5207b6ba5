#include "autograd/ops.h"
#include "autograd/recording.h"
#include "core/dispatch_device.h"
#include "core/kernels/elementwise/activation_functors.h"
#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/elementwise/glu.h"
#include "core/kernels/softmax.h"

namespace tapestry {
namespace {

const char* name_of(Unary f) {
  switch (f) {
    case Unary::kTanh:
      return "tanh";
    case Unary::kSigmoid:
      return "sigmoid";
    case Unary::kExp:
      return "exp";
    case Unary::kLog:
      return "log";
    case Unary::kSqrt:
      return "sqrt";
  }
  return "unary";
}

// y = f(x).  dx = f'(x) dy. The tape keeps x or y, whichever f' is computed from.
template <class F>
Var element_wise(F f, const Var& x, const char* name) {
  Var y = Tensor::empty_like(x.value());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::unary(device, f, x.value().data<T>(), y.value().data<T>(), y.value().numel());
  });
  const functors::Needs needs = derivative_needs(f);
  Tape::record(
      {&x}, y,
      [f, vx = needs == functors::Needs::kInput ? x.value() : Tensor(),
       vy = needs == functors::Needs::kOutput ? y.value() : Tensor(),
       dx = gradient_of(x)](Tensor dy) {
        const auto [target, write] = dx->target();
        dispatch(dy, [&, target = target, write = write](auto device, auto type) {
          using T = decltype(type);
          kernels::unary_backward(device, f, data_or_null<T>(vx), data_or_null<T>(vy), dy.data<T>(),
                                  target.data<T>(), dy.numel(), write);
        });
      },
      name);
  return y;
}

}  // namespace

Var unary(Unary f, const Var& x) { return element_wise(f, x, name_of(f)); }
Var activate(Activation f, const Var& x) { return element_wise(f, x, name_of(f)); }

// y = f(a) b with x = [a | b].  da = f'(a) b dy, db = f(a) dy.
Var glu(Activation f, const Var& x) {
  const Shape& shape = x.shape();
  check(shape.rank() >= 1 && shape[-1] % 2 == 0, "glu", "the last axis must be even, x is ", shape,
        '.');
  const int64_t rows = shape.rows(), cols = shape.cols() / 2;
  Var y = Tensor::empty(shape.with(shape.rank() - 1, cols), x.dtype(), x.value().device());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::glu(device, f, x.value().data<T>(), y.value().data<T>(), rows, cols);
  });
  Tape::record({&x}, y, [f, rows, cols, vx = x.value(), dx = gradient_of(x)](Tensor dy) {
    const auto [target, write] = dx->target();
    dispatch(dy, [&, target = target, write = write](auto device, auto type) {
      using T = decltype(type);
      kernels::glu_backward(device, f, vx.data<T>(), dy.data<T>(), target.data<T>(), rows, cols,
                            write);
    });
  });
  return y;
}

Var convert(const Var& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Var y = x.value().to(dtype);
  Tape::record({&x}, y, [from = x.dtype(), dx = gradient_of(x)](const Tensor& dy) {
    dx->accept(dy.to(from));
  });
  return y;
}

// y_i = exp(x_i - c) / sum_j exp(x_j - c).  dx = y (dy - sum(dy y)).
Var softmax(const Var& x) {
  Var y = Tensor::empty_like(x.value());
  const int64_t rows = x.shape().rows(), cols = x.shape().cols();
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::softmax(device, x.value().data<T>(), y.value().data<T>(), rows, cols);
  });
  Tape::record({&x}, y, [rows, cols, vy = y.value(), dx = gradient_of(x)](Tensor dy) {
    const auto [target, write] = dx->target();
    dispatch(dy, [&, target = target, write = write](auto device, auto type) {
      using T = decltype(type);
      kernels::softmax_backward(device, vy.data<T>(), dy.data<T>(), target.data<T>(), rows, cols,
                                write);
    });
  });
  return y;
}

// y = x - logsumexp(x).  dx = dy - exp(y) sum(dy).
Var log_softmax(const Var& x) {
  Var y = Tensor::empty_like(x.value());
  const int64_t rows = x.shape().rows(), cols = x.shape().cols();
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::log_softmax(device, x.value().data<T>(), y.value().data<T>(), rows, cols);
  });
  Tape::record({&x}, y, [rows, cols, vy = y.value(), dx = gradient_of(x)](Tensor dy) {
    const auto [target, write] = dx->target();
    dispatch(dy, [&, target = target, write = write](auto device, auto type) {
      using T = decltype(type);
      kernels::log_softmax_backward(device, vy.data<T>(), dy.data<T>(), target.data<T>(), rows,
                                    cols, write);
    });
  });
  return y;
}

namespace {

// How a mask covers x: as x's leading axes (each mask element then covers `inner` elements) or as
// its trailing axes (the mask then repeats).
struct MaskPlan {
  int64_t count;
  int64_t inner;
};

MaskPlan mask_plan(const Shape& x, const Shape& mask) {
  auto matches_from = [&](int first) {
    for (int i = 0; i < mask.rank(); ++i) {
      if (mask[i] != x[first + i]) return false;
    }
    return true;
  };
  check(mask.rank() <= x.rank(), "masked_fill", "the mask is ", mask, ", x ", x, '.');
  const int64_t count = mask.numel();
  if (matches_from(x.rank() - mask.rank())) return {count, 1};
  check(matches_from(0), "masked_fill",
        "the mask must have x's leading or trailing sizes: the mask is ", mask, ", x ", x, '.');
  return {count, x.numel() / count};
}

}  // namespace

// y = mask ? value : x.  dx = mask ? 0 : dy.
Var masked_fill(const Var& x, const Tensor& mask, double value) {
  Var y = Tensor::empty_like(x.value());
  if (x.value().numel() == 0) return y;
  const MaskPlan plan = mask_plan(x.shape(), mask.shape());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::masked_fill(device, x.value().data<T>(), mask.data<int32_t>(), plan.count, plan.inner,
                         value, y.value().data<T>(), y.value().numel(), Write::kSet);
  });
  Tape::record({&x}, y, [plan, mask, dx = gradient_of(x)](Tensor dy) {
    const auto [target, write] = dx->target();
    dispatch(dy, [&, target = target, write = write](auto device, auto type) {
      using T = decltype(type);
      kernels::masked_fill(device, dy.data<T>(), mask.data<int32_t>(), plan.count, plan.inner, 0.0,
                           target.data<T>(), dy.numel(), write);
    });
  });
  return y;
}

// y = x * keep / (1 - p).  dx = dy * keep / (1 - p), with the same draws, drawn again.
Var dropout(const Var& x, double p) {
  check(p >= 0 && p < 1, "dropout", "the probability must be in [0, 1), got ", p, '.');
  if (p == 0 || Tape::current() == nullptr) return x;
  const Dropout drop{static_cast<float>(p), Tape::current()->next_random()};
  Var y = Tensor::empty_like(x.value());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::dropout(device, drop, x.value().data<T>(), y.value().data<T>(), y.value().numel(),
                     Write::kSet);
  });
  Tape::record({&x}, y, [drop, dx = gradient_of(x)](Tensor dy) {
    const auto [target, write] = dx->target();
    dispatch(dy, [&, target = target, write = write](auto device, auto type) {
      using T = decltype(type);
      kernels::dropout(device, drop, dy.data<T>(), target.data<T>(), dy.numel(), write);
    });
  });
  return y;
}

}  // namespace tapestry
