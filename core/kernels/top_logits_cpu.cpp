#include "core/kernels/top_logits.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cross_entropy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/top_logits_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_KERNELS_TOP_LOGITS_ONCE_
#define TAPESTRY_KERNELS_TOP_LOGITS_ONCE_
namespace tapestry {
namespace {

// The largest seen so far, as pairs of a token and its logit.
template <class T>
class TopPairs {
 public:
  TopPairs(double* pairs, int64_t count, const int32_t* banned)
      : pairs_(pairs), count_(count), banned_(banned) {
    for (int64_t k = 0; k < count; ++k) set(k, -1, -std::numeric_limits<T>::infinity());
  }
  // The logit that a later token must exceed.
  T least() const { return static_cast<T>(pairs_[2 * count_ - 1]); }
  // Tokens must be offered in ascending order.
  void offer(int64_t token, T logit) {
    if (!(logit > least()) || has_token(banned_, token)) return;
    int64_t k = count_ - 1;
    for (; k > 0 && logit > pairs_[2 * k - 1]; --k) {
      pairs_[2 * k] = pairs_[2 * k - 2], pairs_[2 * k + 1] = pairs_[2 * k - 1];
    }
    set(k, token, logit);
  }

 private:
  void set(int64_t k, int64_t token, T logit) {
    pairs_[2 * k] = static_cast<double>(token), pairs_[2 * k + 1] = static_cast<double>(logit);
  }
  double* pairs_;
  int64_t count_;
  const int32_t* banned_;
};

template <class T>
struct TopPasses {
  void (*offer_all)(const T* z, int64_t n, TopPairs<Wider<T>>& top);
};

}  // namespace
}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// Few logits exceed the smallest kept one: blocks of four vectors without such a logit are skipped.
template <class T>
void offer_all(const T* z, int64_t n, TopPairs<Wider<T>>& top) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  constexpr int64_t kVectors = 4;
  const int64_t lanes = lanes_of<T>(), block = kVectors * lanes;
  int64_t i = 0;
  for (; i + block <= n; i += block) {
    V vectors[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) vectors[v] = Whole{}.load(d, z + i + v * lanes);
    const V largest = hn::Max(hn::Max(vectors[0], vectors[1]), hn::Max(vectors[2], vectors[3]));
    if (hn::AllFalse(d, hn::Gt(largest, hn::Set(d, top.least())))) continue;
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t first = i + v * lanes;
      uint64_t above = 0;
      hn::StoreMaskBits(d, hn::Gt(vectors[v], hn::Set(d, top.least())),
                        reinterpret_cast<uint8_t*>(&above));
      for (; above != 0; above &= above - 1) {
        const int64_t token = first + std::countr_zero(above);
        top.offer(token, static_cast<Wider<T>>(z[token]));
      }
    }
  }
  for (; i < n; ++i) top.offer(i, static_cast<Wider<T>>(z[i]));
}

const PerType<TopPasses>* passes() {
  static constexpr PerType<TopPasses> functions = {
      {offer_all<float>}, {offer_all<double>}, {offer_all<BFloat16>}};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {
HWY_EXPORT(passes);
}  // namespace

namespace kernels {

template <class T>
void top_logits(Cpu, const TopLogitsShape& shape, const T* logits, const int32_t* banned,
                double* top) {
  const auto& passes = HWY_DYNAMIC_DISPATCH(passes)()->template of<T>();
  parallel_for(shape.rows, [&](int64_t r) {
    const T* const z = logits + r * shape.vocab;
    double* const result = top + r * (1 + 2 * shape.count);
    result[0] = log_sum_exp(Cpu{}, z, shape.vocab);
    TopPairs<Wider<T>> pairs(result + 1, shape.count, banned);
    passes.offer_all(z, shape.vocab, pairs);
  });
}

template void top_logits(Cpu, const TopLogitsShape&, const float*, const int32_t*, double*);
template void top_logits(Cpu, const TopLogitsShape&, const double*, const int32_t*, double*);
template void top_logits(Cpu, const TopLogitsShape&, const BFloat16*, const int32_t*, double*);

}  // namespace kernels
}  // namespace tapestry
#endif
