#include "autograd/ops.h"
#include "autograd/recording.h"
#include "core/dispatch_device.h"
#include "core/kernels/elementwise/activation_functors.h"
#include "core/kernels/matmul/gemm.h"

namespace tapestry {
namespace {

// C = op(A) op(B) for `batch` dense matrices; batch stride 0 shares B.
struct ProductShape {
  int64_t m, n, k, batch;
  bool trans_a, trans_b;
  bool shared_b;
};

template <class T>
Gemm<T> product(const ProductShape& s, const Tensor& a, const Tensor& b, const Tensor& c) {
  Gemm<T> g;
  g.m = s.m, g.n = s.n, g.k = s.k;
  g.a = a.data<T>(), g.lda = s.trans_a ? s.m : s.k, g.trans_a = s.trans_a;
  g.b = b.data<T>(), g.ldb = s.trans_b ? s.k : s.n, g.trans_b = s.trans_b;
  g.c = c.data<T>(), g.ldc = s.n;
  g.batch = s.batch;
  g.stride_a = s.m * s.k, g.stride_b = s.shared_b ? 0 : s.k * s.n, g.stride_c = s.m * s.n;
  return g;
}

double beta_of(Write write) { return write == Write::kAdd ? 1.0 : 0.0; }

// dA for every batch: dA = dC op(B)^T, stored as A is.
template <class T>
Gemm<T> product_wrt_a(const ProductShape& s, const Tensor& b, const Tensor& dc, const Tensor& da,
                      Write write) {
  Gemm<T> g;
  g.batch = s.batch, g.beta = beta_of(write), g.c = da.data<T>();
  g.stride_c = s.m * s.k;
  const int64_t stride_b = s.shared_b ? 0 : s.k * s.n;
  if (!s.trans_a) {  // (m, k) = dC (m, n) op(B)^T (n, k)
    g.m = s.m, g.n = s.k, g.k = s.n, g.ldc = s.k;
    g.a = dc.data<T>(), g.lda = s.n, g.stride_a = s.m * s.n;
    g.b = b.data<T>(), g.trans_b = !s.trans_b, g.stride_b = stride_b;
    g.ldb = s.trans_b ? s.k : s.n;
  } else {  // (k, m) = op(B) (k, n) dC^T (n, m)
    g.m = s.k, g.n = s.m, g.k = s.n, g.ldc = s.m;
    g.a = b.data<T>(), g.trans_a = s.trans_b, g.stride_a = stride_b;
    g.lda = s.trans_b ? s.k : s.n;
    g.b = dc.data<T>(), g.ldb = s.n, g.trans_b = true, g.stride_b = s.m * s.n;
  }
  return g;
}

// dB = op(A)^T dC, stored as B is.
template <class T>
Gemm<T> product_wrt_b(const ProductShape& s, const Tensor& a, const Tensor& dc, const Tensor& db,
                      Write write) {
  Gemm<T> g;
  g.batch = s.batch, g.beta = beta_of(write), g.c = db.data<T>();
  g.stride_c = s.k * s.n;
  const int64_t lda = s.trans_a ? s.m : s.k;
  if (!s.trans_b) {  // (k, n) = op(A)^T (k, m) dC (m, n)
    g.m = s.k, g.n = s.n, g.k = s.m, g.ldc = s.n;
    g.a = a.data<T>(), g.lda = lda, g.trans_a = !s.trans_a, g.stride_a = s.m * s.k;
    g.b = dc.data<T>(), g.ldb = s.n, g.stride_b = s.m * s.n;
  } else {  // (n, k) = dC^T (n, m) op(A) (m, k)
    g.m = s.n, g.n = s.k, g.k = s.m, g.ldc = s.k;
    g.a = dc.data<T>(), g.lda = s.n, g.trans_a = true, g.stride_a = s.m * s.n;
    g.b = a.data<T>(), g.ldb = lda, g.trans_b = s.trans_a, g.stride_b = s.m * s.k;
  }
  return g;
}

}  // namespace

// C = op(A) op(B).  dA = dC op(B)^T and dB = op(A)^T dC, transposed back where op transposes.
Var matmul(const Var& a, const Var& b, const MatmulOptions& options) {
  check_same_kind("matmul", a, b);
  const Shape& sa = a.shape();
  const Shape& sb = b.shape();
  check(sa.rank() >= 2 && sb.rank() >= 2 && (sb.rank() == 2 || sb.rank() == sa.rank()), "matmul",
        "expected matrices or equal batches of them: a is ", sa, ", b is ", sb, '.');
  ProductShape s{};
  s.trans_a = options.trans_a, s.trans_b = options.trans_b;
  s.m = s.trans_a ? sa[-1] : sa[-2];
  s.k = s.trans_a ? sa[-2] : sa[-1];
  s.n = s.trans_b ? sb[-2] : sb[-1];
  check(s.k == (s.trans_b ? sb[-1] : sb[-2]), "matmul", "inner dimensions differ: a is ", sa,
        s.trans_a ? " transposed" : "", ", b is ", sb, s.trans_b ? " transposed." : ".");
  s.batch = 1;
  for (int i = 0; i + 2 < sa.rank(); ++i) {
    check(sb.rank() == 2 || sa[i] == sb[i], "matmul", "batch sizes differ: a is ", sa, ", b is ",
          sb, '.');
    s.batch *= sa[i];
  }
  s.shared_b = sb.rank() == 2;
  if (s.shared_b && !s.trans_a) {  // a batch of rows against one matrix is one product
    s.m *= s.batch;
    s.batch = 1;
  }
  Var c = Tensor::empty(sa.with(-2, s.trans_a ? sa[-1] : sa[-2]).with(-1, s.n), a.dtype(),
                        a.value().device());
  dispatch(c.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::gemm(device, product<T>(s, a.value(), b.value(), c.value()));
  });
  Tape::record(
      {&a, &b}, c,
      [s, va = b.needs_grad() ? a.value() : Tensor(), vb = a.needs_grad() ? b.value() : Tensor(),
       da = gradient_of(a), db = gradient_of(b)](Tensor dc) {
        dispatch(dc, [&](auto device, auto type) {
          using T = decltype(type);
          if (da) {
            const auto [target, write] = da->target();
            kernels::gemm(device, product_wrt_a<T>(s, vb, dc, target, write));
          }
          if (!db) return;
          const auto [target, write] = db->target();
          if (!s.shared_b || s.batch == 1) {
            kernels::gemm(device, product_wrt_b<T>(s, va, dc, target, write));
            return;
          }
          for (int64_t i = 0; i < s.batch; ++i) {  // a shared B sums over the batch
            Gemm<T> g = product_wrt_b<T>(s, va, dc, target, i == 0 ? write : Write::kAdd);
            g.batch = 1;
            g.a += i * g.stride_a;
            g.b += i * g.stride_b;
            kernels::gemm(device, g);
          }
        });
      });
  return c;
}

namespace {

// What backward reads of a weight: its tensors, not the Var.
Weight constant(const Weight& weight) {
  return weight.frozen ? weight : Weight(weight.value.value());
}

}  // namespace

// z = x W^T + b, y = act(z).  dz = act'(z) dy, dx = dz W, dW = dz^T x, db = column sums of dz.
Var linear(const Var& x, const Weight& w, const Var& bias, const LinearOptions& options) {
  const Activation activation = options.activation;
  const Var& weight = w.value;
  check_weight("linear", x, w);
  check_same_kind("linear", x, bias);
  check(w.shape().rank() == 2 && x.shape().rank() >= 1 && x.shape()[-1] == w.shape()[1], "linear",
        "inner dimensions differ: x is ", x.shape(), ", weight is ", w.shape(), '.');
  check(!bias.defined() || bias.shape() == Shape{w.shape()[0]}, "linear", "weight is ", w.shape(),
        ", bias is ", bias.shape(), '.');
  const LinearShape shape{x.shape().rows(), w.shape()[1], w.shape()[0], activation,
                          options.precision};
  Var y = Tensor::empty(x.shape().with(-1, shape.out), x.dtype(), x.value().device());
  const functors::Needs needs = derivative_needs(activation);
  const bool keeps_z = needs == functors::Needs::kInput && Tape::records(x, weight, bias);
  const Tensor z = keeps_z ? Tensor::empty_like(y.value()) : Tensor();
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::linear(
        device, shape,
        LinearForward<T>{x.value().data<T>(), w.numbers<T>(), data_or_null<T>(bias.value()),
                         data_or_null<T>(z), y.value().data<T>(), w.frozen_or_null()});
  });
  Tape::record({&x, &weight, &bias}, y,
               [shape, z, vx = weight.needs_grad() ? x.value() : Tensor(),
                vw = x.needs_grad() ? constant(w) : Weight(),
                vy = needs == functors::Needs::kOutput ? y.value() : Tensor(), gx = gradient_of(x),
                gw = gradient_of(weight), gb = gradient_of(bias)](Tensor dy) {
                 Targets<3> targets({gx, gw, gb});
                 const auto &dx = targets[0], &dw = targets[1], &db = targets[2];
                 dispatch(dy, [&](auto device, auto type) {
                   using T = decltype(type);
                   LinearBackward<T> args{};
                   args.x = data_or_null<T>(vx);
                   args.weight = vw.numbers<T>();
                   args.frozen = vw.frozen_or_null();
                   args.z = data_or_null<T>(z);
                   args.y = data_or_null<T>(vy);
                   args.dy = dy.data<T>();
                   args.dx = data_or_null<T>(dx.tensor), args.dx_write = dx.write;
                   args.d_weight = data_or_null<T>(dw.tensor), args.d_weight_write = dw.write;
                   args.d_bias = data_or_null<T>(db.tensor), args.d_bias_write = db.write;
                   kernels::linear_backward(device, shape, args);
                 });
                 targets.deliver();
               });
  return y;
}

// y = round(x).  dx = dy.
Var fake_quantize(const Var& x, Rounding rounding) {
  Var y = Tensor::empty_like(x.value());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::fake_quantize(device, rounding, x.value().data<T>(), y.value().data<T>(),
                           x.shape().rows(), x.shape().cols());
  });
  Tape::record({&x}, y, [dx = gradient_of(x)](Tensor dy) { dx->accept(std::move(dy)); });
  return y;
}

}  // namespace tapestry
