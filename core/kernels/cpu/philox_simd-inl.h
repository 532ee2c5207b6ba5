// The draws of core/base/philox.h, computed in vectors, and dropout factors made from them.
#if defined(TAPESTRY_KERNELS_PHILOX_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_PHILOX_SIMD_INL_H_
#undef TAPESTRY_KERNELS_PHILOX_SIMD_INL_H_
#else
#define TAPESTRY_KERNELS_PHILOX_SIMD_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/kernels/common.h"
#include "core/kernels/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

/// The draws from 4 * block on, in order, as two vectors: 2 * Lanes(uint32) draws.
///
/// Each of a block's four words has a vector of its own and lies in the low half of a 64-bit lane.
/// So MulEven gives both halves of a product at once; the high halves may hold anything.
HWY_INLINE void philox_draws(const PhiloxKey& key, uint64_t block, hn::Vec<Tag<uint32_t>>& first,
                             hn::Vec<Tag<uint32_t>>& second) {
  const Tag<uint64_t> d64;
  const hn::Repartition<uint32_t, Tag<uint64_t>> d32;
  // Even lanes hold the blocks of the first half, odd lanes those of the second, so that the
  // interleaving at the end puts every block in its place.
  const auto iota = hn::Iota(d64, 0);
  const auto half = hn::IfThenElseZero(hn::TestBit(iota, hn::Set(d64, 1)),
                                       hn::Set(d64, static_cast<uint64_t>(hn::Lanes(d64) / 2)));
  const auto counter = hn::Add(hn::Set(d64, block), hn::Add(hn::ShiftRight<1>(iota), half));

  auto c0 = hn::BitCast(d32, counter);
  auto c1 = hn::BitCast(d32, hn::ShiftRight<32>(counter));
  auto c2 = hn::Set(d32, key.step);
  auto c3 = hn::Set(d32, key.stream);
  const auto m0 = hn::Set(d32, 0xD2511F53u), m1 = hn::Set(d32, 0xCD9E8D57u);
  auto k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const auto p0 = hn::MulEven(c0, m0), p1 = hn::MulEven(c2, m1);
    const auto high0 = hn::BitCast(d32, hn::ShiftRight<32>(p0));
    const auto high1 = hn::BitCast(d32, hn::ShiftRight<32>(p1));
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d32, k0));
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d32, k1));
    c1 = hn::BitCast(d32, p1);
    c3 = hn::BitCast(d32, p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const auto high_word = [&](auto c) HWY_ATTR {
    return hn::BitCast(d32, hn::ShiftLeft<32>(hn::BitCast(d64, c)));
  };
  const auto v01 = hn::BitCast(d64, hn::OddEven(high_word(c1), c0));
  const auto v23 = hn::BitCast(d64, hn::OddEven(high_word(c3), c2));
  first = hn::BitCast(d32, hn::InterleaveLower(d64, v01, v23));
  second = hn::BitCast(d32, hn::InterleaveUpper(d64, v01, v23));
}

#endif  // HWY_TARGET != HWY_SCALAR

template <class T>
class WideDropoutFactors {
 public:
  /// fill() needs memory for n + kPadding elements.
  static constexpr int64_t kPadding = 8 + 2 * static_cast<int64_t>(hn::MaxLanes(Tag<uint32_t>()));

  /// 0 < p <= 1
  explicit WideDropoutFactors(const Dropout& dropout)
      : key_(dropout.key),
        last_dropped_(static_cast<uint32_t>(
            static_cast<uint64_t>(std::ceil(static_cast<double>(dropout.p) * 0x1p32)) - 1)),
        factor_(static_cast<T>(1 / (1 - static_cast<double>(dropout.p)))) {}

  /// Writes the factors of elements index to index + n - 1 into `memory` (n + kPadding elements),
  /// not always at its start, and returns the address of the first.
  HWY_INLINE const T* fill(uint64_t index, int64_t n, T* memory) const {
    const int64_t skip = static_cast<int64_t>(index % 4);
    uint64_t block = index / 4;
#if HWY_TARGET == HWY_SCALAR
    for (int64_t i = 0; i < n + skip; i += 4, ++block) {
      const Philox4 bits = philox(key_, block);
      store(bits.v, 4, memory + i);
    }
#else
    const int64_t lanes = lanes_of<uint32_t>();
    for (int64_t i = 0; i < n + skip; i += 2 * lanes, block += static_cast<uint64_t>(lanes / 2)) {
      hn::Vec<Tag<uint32_t>> first, second;
      philox_draws(key_, block, first, second);
      store(first, memory + i);
      store(second, memory + i + lanes);
    }
#endif
    return memory + skip;
  }

 private:
  HWY_INLINE void store(const uint32_t* bits, int64_t n, T* out) const {
    for (int64_t i = 0; i < n; ++i) out[i] = bits[i] > last_dropped_ ? factor_ : T{0};
  }

  HWY_INLINE void store(hn::Vec<Tag<uint32_t>> bits, T* out) const {
    const Tag<uint32_t> d32;
    if constexpr (std::is_same_v<T, float>) {
      const Tag<float> d;
      const auto kept = hn::RebindMask(d, hn::Gt(bits, hn::Set(d32, last_dropped_)));
      hn::StoreU(hn::IfThenElseZero(kept, hn::Set(d, factor_)), d, out);
    } else {
      HWY_ALIGN uint32_t draws[hn::MaxLanes(d32)];
      hn::Store(bits, d32, draws);
      store(draws, lanes_of<uint32_t>(), out);
    }
  }

  PhiloxKey key_;
  uint32_t last_dropped_;  // draws up to this one are below p * 2^32
  T factor_;
};

/// The factors of dropout: 0 or 1 / (1 - p), in Wider<T>.
template <class T>
using DropoutFactors = WideDropoutFactors<Wider<T>>;

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#endif  // include guard
