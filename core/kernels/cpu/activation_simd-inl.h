// The vectorised forms of activation_functors.h.
#if defined(TAPESTRY_KERNELS_ACTIVATION_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_ACTIVATION_SIMD_INL_H_
#undef TAPESTRY_KERNELS_ACTIVATION_SIMD_INL_H_
#else
#define TAPESTRY_KERNELS_ACTIVATION_SIMD_INL_H_
#endif

#include "core/kernels/cpu/unary_simd-inl.h"
#include "core/kernels/elementwise/activation_functors.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {
namespace simd {

template <>
struct Form<functors::Identity> : functors::Identity {
  template <class D>
  static HWY_INLINE V<D> f(D, V<D> x) {
    return x;
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D>) {
    return constant(d, 1);
  }
};

template <>
struct Form<functors::Relu> : functors::Relu {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> v) {
    return hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), constant(d, 1));
  }
};

template <>
struct Form<functors::Relu2> : functors::Relu2 {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    const V<D> y = Form<functors::Relu>::f(d, x);
    return hn::Mul(y, y);
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> y) {
    return hn::Mul(constant(d, 2), hn::Sqrt(y));
  }
};

template <>
struct Form<functors::Silu> : functors::Silu {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    return hn::Mul(x, Sigmoid::f(d, x));
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> x) {
    V<D> s, slope;
    sigmoid(d, x, s, slope);
    return hn::MulAdd(x, slope, s);
  }
};

// (1 + tanh(u)) / 2 = sigmoid(2 u)
template <>
struct Form<functors::GeluTanh> : functors::GeluTanh {
  template <class D>
  static HWY_INLINE V<D> twice_inner(D d, V<D> x) {
    const V<D> cubic = hn::MulAdd(constant(d, kCubic), hn::Mul(x, x), constant(d, 1));
    return hn::Mul(hn::Mul(constant(d, 2 * kRootTwoOverPi), x), cubic);
  }
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    return hn::Mul(x, Sigmoid::f(d, twice_inner(d, x)));
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> x) {
    V<D> s, slope;
    sigmoid(d, twice_inner(d, x), s, slope);
    const V<D> inner_slope = hn::MulAdd(constant(d, 6 * kRootTwoOverPi * kCubic), hn::Mul(x, x),
                                        constant(d, 2 * kRootTwoOverPi));
    return hn::MulAdd(hn::Mul(x, slope), inner_slope, s);
  }
};

template <>
struct Form<functors::Gelu> : functors::Gelu {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    if constexpr (sizeof(hn::TFromD<D>) == 8) {
      return LaneByLane<functors::Gelu>::f(d, x);
    } else {
      return hn::Mul(x, distribution(d, x, bell(d, x)));
    }
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> x) {
    if constexpr (sizeof(hn::TFromD<D>) == 8) {
      return LaneByLane<functors::Gelu>::df(d, x);
    } else {
      const V<D> e = bell(d, x);
      return hn::MulAdd(hn::Mul(constant(d, kDensityAt0), x), e, distribution(d, x, e));
    }
  }

 private:
  template <class D>
  static HWY_INLINE V<D> bell(D d, V<D> x) {
    return exp_negative(d, hn::Mul(hn::Mul(constant(d, -0.5), x), x));
  }

  // Phi(x), given e^(-x^2/2). Phi(-|x|) = e^(-x^2/2) g(t) with t = 1 / (1 + 0.3 |x|), g a
  // polynomial fitted to the least relative error for |x| < 14: 6e-8.
  template <class D>
  static HWY_INLINE V<D> distribution(D d, V<D> x, V<D> e) {
    const V<D> one = constant(d, 1);
    const V<D> t = hn::Div(one, hn::MulAdd(constant(d, 0.3), hn::Abs(x), one));
    V<D> g = constant(d, 0.03837845098169536);
    g = hn::MulAdd(g, t, constant(d, -0.16916685889533944));
    g = hn::MulAdd(g, t, constant(d, 0.22866154058300103));
    g = hn::MulAdd(g, t, constant(d, -0.07650804219299798));
    g = hn::MulAdd(g, t, constant(d, 0.142536527350511));
    g = hn::MulAdd(g, t, constant(d, 0.09468313098673475));
    g = hn::MulAdd(g, t, constant(d, 0.12192043308506731));
    g = hn::MulAdd(g, t, constant(d, 0.1194876775522902));
    g = hn::MulAdd(g, t, constant(d, 7.1694672620836925e-06));
    const V<D> tail = hn::Mul(e, g);
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(one, tail), tail);
  }
};

}  // namespace simd
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#endif  // include guard
