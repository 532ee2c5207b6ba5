// Shared by the vectorised kernels: loops over any length, writes that set or add, and an
// exponential for x <= 0.
//
// Every vectorised kernel file has the same frame, Highway's run-time dispatch
// (https://google.github.io/highway/, "Dynamic dispatch"):
//
//   #define HWY_TARGET_INCLUDE "this file"
//   #include "hwy/foreach_target.h"   includes this file again for each instruction set (target)
//   #include ".../simd-inl.h"         must come later; its guard lets each target read it once
//   #ifndef TAPESTRY_... #endif       what all targets share: the struct of function pointers
//   HWY_BEFORE_NAMESPACE(); ... HWY_AFTER_NAMESPACE();
//                                     compiled for each target, in its namespace HWY_NAMESPACE;
//                                     fills the struct. A lambda with vectors needs HWY_ATTR
//   #if HWY_ONCE                      ordinary code, compiled once, after the targets
//   HWY_EXPORT(f)                     the table of each target's f
//   HWY_DYNAMIC_DISPATCH(f)           the f of the best target that this processor has
#if defined(TAPESTRY_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_SIMD_INL_H_
#undef TAPESTRY_KERNELS_SIMD_INL_H_
#else
#define TAPESTRY_KERNELS_SIMD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/kernels/common.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Vectors that compute with elements of T: bfloat16 is loaded as float, and rounded when stored.
template <class T>
using Tag = hn::ScalableTag<Wider<T>>;

template <class T>
HWY_INLINE int64_t lanes_of() {
  return static_cast<int64_t>(hn::Lanes(Tag<T>()));
}

template <class D>
using Halves = hn::Rebind<uint16_t, D>;

template <class D, class H>
HWY_INLINE hn::Vec<D> widen(D d, H half) {
  const hn::RebindToUnsigned<D> bits;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, half)));
}

/// Rounds as BFloat16(float) does.
template <class D, class V>
HWY_INLINE hn::Vec<Halves<D>> narrow(D, V v) {
  const hn::RebindToUnsigned<D> bits;
  const auto word = hn::BitCast(bits, v);
  const auto upper = hn::ShiftRight<16>(word);
  const auto odd = hn::And(upper, hn::Set(bits, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(word, hn::Add(odd, hn::Set(bits, 0x7fff))));
  const auto nan = hn::RebindMask(bits, hn::IsNaN(v));
  return hn::TruncateTo(Halves<D>(),
                        hn::IfThenElse(nan, hn::Or(upper, hn::Set(bits, 0x40)), rounded));
}

/// Whole vectors to and from memory of any alignment.
struct Whole {
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const BFloat16* p) const {
    return widen(d, hn::LoadU(Halves<D>(), &p->bits));
  }
  template <class D, class V>
  HWY_INLINE void store(D d, V v, BFloat16* p) const {
    hn::StoreU(narrow(d, v), Halves<D>(), &p->bits);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) const {
    return hn::LoadU(d, p);
  }
  template <class D, class V>
  HWY_INLINE void store(D d, V v, hn::TFromD<D>* p) const {
    hn::StoreU(v, d, p);
  }
  /// `v` in the lanes that exist, `other` in the rest.
  template <class D, class V>
  HWY_INLINE V or_else(D, V v, V) const {
    return v;
  }
};

/// The first n lanes of a vector, 0 < n < Lanes(d); a load gives zeros in the others. Does not
/// touch memory behind the n elements.
struct Part {
  int64_t n;

  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const BFloat16* p) const {
    const Halves<D> half;
    HWY_ALIGN uint16_t buffer[hn::MaxLanes(half)] = {};
    std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(*p));
    return widen(d, hn::Load(half, buffer));
  }
  template <class D, class V>
  HWY_INLINE void store(D d, V v, BFloat16* p) const {
    const Halves<D> half;
    HWY_ALIGN uint16_t buffer[hn::MaxLanes(half)];
    hn::Store(narrow(d, v), half, buffer);
    std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(*p));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) const {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
    HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)] = {};
    std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(*p));
    return hn::Load(d, buffer);
#endif
  }
  template <class D, class V>
  HWY_INLINE void store(D d, V v, hn::TFromD<D>* p) const {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
    HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)];
    hn::Store(v, d, buffer);
    std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(*p));
#endif
  }
  template <class D, class V>
  HWY_INLINE V or_else(D d, V v, V other) const {
    return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n)), v, other);
  }
};

/// Calls body(io, i) for each vector that covers [0, n), i the index of its first element and io a
/// Whole, or a Part at the end.
template <class D, class Body>
HWY_INLINE void each_vector(D d, int64_t n, Body body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(Whole{}, i);
  if (i < n) body(Part{n - i}, i);
}

template <Write kWrite>
using WriteConstant = std::integral_constant<Write, kWrite>;

/// *p (=|+=) v
template <Write kWrite, class Io, class D, class V, class T>
HWY_INLINE void deliver(WriteConstant<kWrite>, Io io, D d, V v, T* p) {
  if constexpr (kWrite == Write::kAdd) v = hn::Add(io.load(d, p), v);
  io.store(d, v, p);
}

/// Calls f(WriteConstant) so that loops are compiled for each mode.
template <class F>
HWY_INLINE void with_write(Write write, F f) {
  if (write == Write::kSet) {
    f(WriteConstant<Write::kSet>());
  } else {
    f(WriteConstant<Write::kAdd>());
  }
}

template <class D, class V>
HWY_INLINE hn::TFromD<D> max_lanes(D d, V v) {
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

/// Vectors that hold a line: 64 bytes of Wider<T>, the longest vector of all targets. Sums along a
/// row are kept by lines, element i in sum i mod 16 (8 of double), so that every target adds in the
/// same order.
template <class T>
inline constexpr int kLineVectors = 64 / sizeof(Wider<T>) / hn::MaxLanes(Tag<T>());

template <int kPart>
using LinePart = std::integral_constant<int, kPart>;

/// Calls body(LinePart<p>()) for the vectors p of a line.
template <class T, class Body>
HWY_INLINE void each_part(Body body) {
  [&]<int... kPart>(std::integer_sequence<int, kPart...>) HWY_ATTR {
    (body(LinePart<kPart>()), ...);
  }
  (std::make_integer_sequence<int, kLineVectors<T>>());
}

/// Calls body(io, i, part) as each_vector() calls body(io, i); part, a LinePart, is the vector's
/// place in its line.
template <class T, class Body>
HWY_INLINE void each_line(int64_t n, Body body) {
  constexpr int64_t kLanes = hn::MaxLanes(Tag<T>()), kLine = kLineVectors<T> * kLanes;
  int64_t i = 0;
  for (; i + kLine <= n; i += kLine) {
    each_part<T>([&](auto part) HWY_ATTR { body(Whole{}, i + part * kLanes, part); });
  }
  each_part<T>([&](auto part) HWY_ATTR {
    const int64_t left = n - i - part * kLanes;
    if (left >= kLanes) {
      body(Whole{}, i + part * kLanes, part);
    } else if (left > 0) {
      body(Part{left}, i + part * kLanes, part);
    }
  });
}

/// The sum of all lanes, by halves.
template <class D, class V>
HWY_INLINE hn::TFromD<D> sum_by_halves(D d, V v) {
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(d);
  return hn::GetLane(v);
#else
  constexpr size_t kLanes = hn::MaxLanes(d);
  if constexpr (kLanes * sizeof(hn::TFromD<D>) > 16) {
    const hn::Half<D> half;
    return sum_by_halves(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else if constexpr (kLanes == 4) {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  } else {
    static_assert(kLanes == 2);
    return hn::GetLane(hn::Add(v, hn::Shuffle01(v)));
  }
#endif
}

/// A line of sums, 0 at first, of a row of T.
template <class T>
struct LineSums {
  using V = hn::Vec<Tag<T>>;

  HWY_INLINE LineSums() {
#pragma GCC unroll 16
    for (int p = 0; p < kLineVectors<T>; ++p) parts[p] = hn::Zero(Tag<T>());
  }
  template <int kPart>
  HWY_INLINE V& operator[](LinePart<kPart>) {
    return parts[kPart];
  }
  /// A line more.
  HWY_INLINE void add(const LineSums& other) {
#pragma GCC unroll 16
    for (int p = 0; p < kLineVectors<T>; ++p) parts[p] = hn::Add(parts[p], other.parts[p]);
  }
  /// Their sum, by halves: i + i + 8, then i + i + 4, and so on.
  HWY_INLINE Wider<T> total() {
#pragma GCC unroll 4
    for (int half = kLineVectors<T> / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
      for (int p = 0; p < half; ++p) parts[p] = hn::Add(parts[p], parts[p + half]);
    }
    return sum_by_halves(Tag<T>(), parts[0]);
  }

  V parts[kLineVectors<T>];
};

/// e^x for x <= 0: -inf gives 0, a result below the smallest normal number gives 0, NaN stays NaN
/// (a softmax must not hide one). In float: Cody-Waite reduction to [-ln2/2, ln2/2] and the Taylor
/// polynomial of degree 7, within 1.5 ulp.
template <class D, class V>
HWY_INLINE V exp_negative(D d, V x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
  } else {
    const hn::RebindToSigned<D> di;
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa.
    const V shift = hn::Set(d, 12582912.0f);
    const V low = hn::Set(d, -87.0f);
    const auto vanishes = hn::Lt(x, low);
    const V clamped = hn::IfThenElse(vanishes, low, x);
    const V shifted = hn::MulAdd(clamped, hn::Set(d, 1.44269504f), shift);
    const V n = hn::Sub(shifted, shift);
    V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
    r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
    V p = hn::Set(d, 1.0f / 5040);
    p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6));
    p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
    const auto bits = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
    const V power = hn::BitCast(d, hn::Add(bits, hn::BitCast(di, hn::Set(d, 1.0f))));
    return hn::IfThenZeroElse(vanishes, hn::Mul(p, power));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#endif  // include guard
