// The vectorised forms of unary_functors.h.
#if defined(TAPESTRY_KERNELS_UNARY_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_UNARY_SIMD_INL_H_
#undef TAPESTRY_KERNELS_UNARY_SIMD_INL_H_
#else
#define TAPESTRY_KERNELS_UNARY_SIMD_INL_H_
#endif

#include <limits>

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/elementwise/unary_functors.h"
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

// A functor of single elements, called for each lane.
template <class F>
struct LaneByLane : F {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    return each_lane(d, x, [](auto v) { return F::f(v); });
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> v) {
    return each_lane(d, v, [](auto v) { return F::df(v); });
  }

 private:
  template <class D, class G>
  static HWY_INLINE V<D> each_lane(D d, V<D> v, G g) {
    HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
    hn::Store(v, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = g(lanes[i]);
    return hn::Load(d, lanes);
  }
};

// The vectorised form of a functor F: f(d, x) and df(d, v). Without a specialisation it works lane
// by lane, which is right but slow.
template <class F>
struct Form : LaneByLane<F> {};

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

template <>
struct Form<functors::Sigmoid> : functors::Sigmoid {
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
using Sigmoid = Form<functors::Sigmoid>;

template <>
struct Form<functors::Tanh> : functors::Tanh {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
  }
  template <class D>
  static HWY_INLINE V<D> df(D d, V<D> y) {
    return hn::NegMulAdd(y, y, constant(d, 1));
  }
};
using Tanh = Form<functors::Tanh>;

template <>
struct Form<functors::Exp> : functors::Exp {
  template <class D>
  static HWY_INLINE V<D> f(D d, V<D> x) {
    // Clamps x: just above the limit the result overflows to inf, as it should, but far above it
    // would not.
    const V<D> limit = constant(d, sizeof(hn::TFromD<D>) == 4 ? 100 : 800);
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, hn::Min(x, limit)));
  }
  template <class D>
  static HWY_INLINE V<D> df(D, V<D> y) {
    return y;
  }
};

template <>
struct Form<functors::Log> : functors::Log {
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
using Log = Form<functors::Log>;

template <>
struct Form<functors::Sqrt> : functors::Sqrt {
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
