// The vectorised forms of unary_functors.h, under the same names: f(d, x) and df(d, v).
#if defined(TAPESTRY_KERNELS_UNARY_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_UNARY_SIMD_INL_H_
#undef TAPESTRY_KERNELS_UNARY_SIMD_INL_H_
#else
#define TAPESTRY_KERNELS_UNARY_SIMD_INL_H_
#endif

#include <limits>

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/unary_functors.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {
namespace simd {

template <class D>
using V = hn::Vec<D>;

template <class D>
HWY_INLINE V<D> constant(D d, double value) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}

// A functor of one element, lane by lane.
template <class D, class F>
HWY_INLINE V<D> each_lane(D d, V<D> v, F f) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i]);
  return hn::Load(d, lanes);
}

struct Relu : functors::Relu {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> v) {
    return hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), constant(d, 1));
  }
};

// sigmoid(x) and sigmoid(x) * sigmoid(-x), both without cancellation.
template <class D>
HWY_INLINE void sigmoid(D d, V<D> x, V<D>& s, V<D>& slope) {
  const V<D> one = constant(d, 1);
  const V<D> e = exp_negative(d, hn::Neg(hn::Abs(x)));
  const V<D> share = hn::Div(one, hn::Add(one, e));
  const V<D> rest = hn::Mul(e, share);
  s = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), rest, share);
  slope = hn::Mul(share, rest);
}

struct Sigmoid : functors::Sigmoid {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    V<D> s, slope;
    sigmoid(d, x, s, slope);
    return s;
  }
  template <class D>
  static HWY_INLINE V<D> df(D, V<D> y) {
    return hn::NegMulAdd(y, y, y);
  }
};

struct Silu : functors::Silu {
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
struct GeluTanh : functors::GeluTanh {
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

struct Gelu : functors::Gelu {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    if constexpr (sizeof(hn::TFromD<D>) == 8) {
      return each_lane(d, x, [](double v) { return functors::Gelu::f(v); });
    } else {
      return hn::Mul(x, distribution(d, x, bell(d, x)));
    }
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> x) {
    if constexpr (sizeof(hn::TFromD<D>) == 8) {
      return each_lane(d, x, [](double v) { return functors::Gelu::df(v); });
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

struct Tanh : functors::Tanh {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> y) {
    return hn::NegMulAdd(y, y, constant(d, 1));
  }
};

struct Exp : functors::Exp {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    // Above the limit the result overflows to inf, as it should; far above it would not.
    const V<D> limit = constant(d, sizeof(hn::TFromD<D>) == 4 ? 100 : 800);
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, hn::Min(x, limit)));
  }
  template <class D>
  static HWY_INLINE V<D> df(D, V<D> y) {
    return y;
  }
};

struct Log : functors::Log {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    const auto infinity = constant(d, std::numeric_limits<double>::infinity());
    const auto nan = constant(d, std::numeric_limits<double>::quiet_NaN());
    V<D> y = hn::Log(d, x);
    y = hn::IfThenElse(hn::Eq(x, infinity), x, y);
    y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
    return hn::IfThenElse(hn::Ge(x, hn::Zero(d)), y, nan);
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> x) {
    return hn::Div(constant(d, 1), x);
  }
};

struct Sqrt : functors::Sqrt {
  template <class D>
  static HWY_INLINE V<D> f(D, V<D> x) {
    return hn::Sqrt(x);
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> y) {
    return hn::Div(constant(d, 0.5), y);
  }
};

}  // namespace simd
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#endif  // include guard
