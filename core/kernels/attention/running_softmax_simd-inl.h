// The softmax of queries over keys that come block by block.
#if defined(TAPESTRY_KERNELS_RUNNING_SOFTMAX_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_RUNNING_SOFTMAX_SIMD_INL_H_
#undef TAPESTRY_KERNELS_RUNNING_SOFTMAX_SIMD_INL_H_
#else
#define TAPESTRY_KERNELS_RUNNING_SOFTMAX_SIMD_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/cpu/unary_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// The running softmax of each query over the key blocks seen so far.
template <class T>
struct RunningSoftmax {
  T* max;
  T* sum;
};

template <class T>
HWY_INLINE T largest_of(const T* x, int64_t n, T start) {
  const Tag<T> d;
  auto largest = hn::Set(d, start);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    largest = hn::Max(largest, io.or_else(d, io.load(d, x + i), largest));
  });
  return max_lanes(d, largest);
}

// x[i] = e^(scale * x[i] - shift); returns the sum.
template <class T>
HWY_INLINE T exponentials(T* x, int64_t n, T scale, T shift) {
  const Tag<T> d;
  const auto scales = hn::Set(d, scale), shifts = hn::Set(d, shift);
  LineSums<T> sums;
  each_line<T>(n, [&](auto io, int64_t i, auto part) HWY_ATTR {
    const auto e = exp_negative(d, hn::MulSub(io.load(d, x + i), scales, shifts));
    sums[part] = hn::Add(sums[part], io.or_else(d, e, hn::Zero(d)));
    io.store(d, e, x + i);
  });
  return sums.total();
}

// y = factor * x
template <class T>
HWY_INLINE void scaled_copy(const Wider<T>* x, Wider<T> factor, T* y, int64_t n) {
  const Tag<T> d;
  const auto factors = hn::Set(d, factor);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Mul(io.load(d, x + i), factors), y + i);
  });
}

// lse = max + log(sum), -inf where the sum is 0.
template <class T>
HWY_INLINE void write_log_sum_exp(const RunningSoftmax<T>& state, int64_t n, T* lse) {
  const Tag<T> d;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    const auto log_sum = simd::Log::f(d, io.load(d, state.sum + i));
    io.store(d, hn::Add(io.load(d, state.max + i), log_sum), lse + i);
  });
}

// Turns the first `seen` scores of query `i` into weights and updates its running softmax. Returns
// the factor for the sums accumulated so far.
template <class T>
HWY_INLINE T update_softmax(const RunningSoftmax<T>& state, int64_t i, T* scores, int64_t seen,
                            T scale) {
  const T before = state.max[i];
  const T max =
      std::max(before, scale * largest_of(scores, seen, -std::numeric_limits<T>::infinity()));
  const T shift = max == -std::numeric_limits<T>::infinity() ? T{0} : max;
  const T sum = exponentials(scores, seen, scale, shift);
  const hn::CappedTag<T, 1> one;
  const T shrink =
      state.sum[i] == 0 ? T{0} : hn::GetLane(exp_negative(one, hn::Set(one, before - shift)));
  state.sum[i] = state.sum[i] * shrink + sum;
  state.max[i] = max;
  return shrink;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#endif  // include guard
