#include "core/kernels/packed/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/packed/quantize_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_KERNELS_QUANTIZE_ONCE_
#define TAPESTRY_KERNELS_QUANTIZE_ONCE_
namespace tapestry::kernels {
namespace {

struct QuantizePasses {
  // The bits of the largest |x|.
  int32_t (*largest_bits)(const float* x, int64_t n);
  // q = x * factor, rounded, ^ flip
  void (*round)(const float* x, int64_t n, float factor, uint8_t flip, uint8_t* q);
};

}  // namespace
}  // namespace tapestry::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// Without their signs, the bits of floats are ordered like the floats, and those of a NaN are above
// all others, so that none gets lost.
int32_t largest_bits(const float* x, int64_t n) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  auto most = hn::Zero(di);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    most = hn::Max(most, hn::BitCast(di, hn::Abs(io.load(d, x + i))));
  });
  return max_lanes(di, most);
}

void round(const float* x, int64_t n, float factor, uint8_t flip, uint8_t* q) {
  const Tag<float> d;
  const hn::Rebind<int8_t, Tag<float>> d8;
  const hn::Rebind<uint8_t, Tag<float>> du;
  const auto factors = hn::Set(d, factor);
  const auto flips = hn::Set(du, flip);
  const auto bytes_of = [&](auto io, int64_t i) HWY_ATTR {
    const auto integers = hn::NearestInt(hn::Mul(io.load(d, x + i), factors));
    return hn::Xor(hn::BitCast(du, hn::DemoteTo(d8, integers)), flips);
  };
  const int64_t lanes = lanes_of<float>();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(bytes_of(Whole{}, i), du, q + i);
  if (i == n) return;
  HWY_ALIGN uint8_t rest[hn::MaxLanes(du)];
  hn::Store(bytes_of(Part{n - i}, i), du, rest);
  std::copy_n(rest, n - i, q + i);
}

const kernels::QuantizePasses* quantize_passes() {
  static constexpr kernels::QuantizePasses passes = {largest_bits, round};
  return &passes;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(quantize_passes);

}  // namespace

float kernels::quantize_row(const float* x, int64_t n, uint8_t flip, uint8_t* q) {
  constexpr float kLeast = 0x1p-100F;  // below it 127 / max could be infinite
  const QuantizePasses& passes = *HWY_DYNAMIC_DISPATCH(quantize_passes)();
  const auto max = std::bit_cast<float>(passes.largest_bits(x, n));
  if (max < kLeast) {
    std::fill_n(q, n, flip);
    return 0;
  }
  passes.round(x, n, 127 / max, flip, q);
  return max <= std::numeric_limits<float>::max() ? max / 127
                                                  : std::numeric_limits<float>::quiet_NaN();
}

float kernels::round_to_int4(const float* w, int64_t n, uint8_t* q) {
  float peak = 0;
  for (int64_t k = 0; k < n; ++k) {
    if (!(std::abs(w[k]) <= std::abs(peak))) peak = w[k];
  }
  const float factor = peak != 0 ? -8 / peak : 0;
  constexpr float kToInteger = 0x1.8p23F;  // adding it rounds numbers below 2^22
  float products = 0, squares = 0;
  for (int64_t k = 0; k < n; ++k) {
    const float rounded = std::clamp(w[k] * factor + kToInteger - kToInteger, -8.0F, 7.0F);
    q[k] = static_cast<uint8_t>(std::isfinite(rounded) ? rounded + 8 : 8);
    products += rounded * w[k], squares += rounded * rounded;
  }
  return peak == 0 ? 0 : products / squares;
}

}  // namespace tapestry
#endif
