// The softcap of the scores of attention and what is added to them (ScoreBias), one row at a time.
#if defined(TAPESTRY_KERNELS_ATTENTION_BIAS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_ATTENTION_BIAS_SIMD_INL_H_
#undef TAPESTRY_KERNELS_ATTENTION_BIAS_SIMD_INL_H_
#else
#define TAPESTRY_KERNELS_ATTENTION_BIAS_SIMD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/kernels/attention/attention_common.h"
#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/cpu/unary_simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// y += x
template <class T>
HWY_INLINE void add_row(const T* x, Wider<T>* y, int64_t n) {
  const Tag<T> d;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Add(io.load(d, y + i), io.load(d, x + i)), y + i);
  });
}

template <class T>
HWY_INLINE void add_number(T x, T* y, int64_t n) {
  const Tag<T> d;
  const auto numbers = hn::Set(d, x);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Add(io.load(d, y + i), numbers), y + i);
  });
}

// x *= factors
template <class T>
HWY_INLINE void multiply(T* x, const T* factors, int64_t n) {
  const Tag<T> d;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Mul(io.load(d, x + i), io.load(d, factors + i)), x + i);
  });
}

// y = cap * tanh(y / cap); `slopes`, which may be null, gets the derivatives.
template <class T>
HWY_INLINE void cap_row(T cap, T* y, int64_t n, T* slopes) {
  const Tag<T> d;
  const auto caps = hn::Set(d, cap), shares = hn::Set(d, 1 / cap);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    const auto t = simd::Tanh::f(d, hn::Mul(io.load(d, y + i), shares));
    io.store(d, hn::Mul(caps, t), y + i);
    if (slopes != nullptr) io.store(d, simd::Tanh::df(d, t), slopes + i);
  });
}

// y = -inf where seen is 0. A hidden score that is not a number stays hidden.
template <class T>
HWY_INLINE void hide_unseen(const int32_t* seen, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = seen[i] != 0 ? y[i] : -std::numeric_limits<T>::infinity();
  }
}

// Whether products need more than a factor to become scores.
template <class T>
HWY_INLINE bool changes_scores(const AttentionShape& shape, const ScoreBias<T>& bias) {
  return bias.any() || shape.softcap > 0;
}

// The products of query t of (b, head) with keys [key, key + n) become scores: scaled, capped, with
// all that is added to them. `slopes`, which may be null, gets the derivatives of the softcap. A
// function of its own, so that attention where scores are only scaled keeps its registers.
template <class T>
HWY_NOINLINE void changed_scores(const AttentionShape& shape, const ScoreBias<T>& bias, int64_t b,
                                 int64_t head, int64_t t, int64_t key, int64_t n, Wider<T>* scores,
                                 Wider<T>* slopes = nullptr) {
  using W = Wider<T>;
  const Tag<T> d;
  const auto scales = hn::Set(d, static_cast<W>(shape.scale));
  const int64_t element =
      b * bias.batch_stride + head * bias.head_stride + t * bias.row_stride + key;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Mul(io.load(d, scores + i), scales), scores + i);
  });
  if (shape.softcap > 0) cap_row(static_cast<W>(shape.softcap), scores, n, slopes);
  if (bias.added != nullptr) add_row(bias.added + element, scores, n);
  if (bias.relative != nullptr) {
    const RelativeRow row(shape, bias.reach, t, key, n);
    const T* const numbers = bias.relative + head * row.width;
    add_number(static_cast<W>(numbers[0]), scores, row.inside.first);
    add_row(numbers + row.first + row.inside.first, scores + row.inside.first,
            row.inside.last - row.inside.first);
    add_number(static_cast<W>(numbers[row.width - 1]), scores + row.inside.last,
               n - row.inside.last);
  }
  if (bias.seen != nullptr) hide_unseen(bias.seen + element, scores, n);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#endif  // include guard
