#include "core/kernels/frozen/frozen_rows.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/frozen/frozen_rows_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_KERNELS_FROZEN_ROWS_ONCE_
#define TAPESTRY_KERNELS_FROZEN_ROWS_ONCE_
namespace tapestry {
namespace {

struct AllFrozenRows {
  FrozenRows<float> floats;
  FrozenRows<BFloat16> halves;
};

}  // namespace
}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kGroup = 32, kHalf = kGroup / 2;  // columns of int4

template <class T>
void read_bfloat16(const uint8_t* row, int64_t /*cols*/, int64_t begin, int64_t end, T* out) {
  const Tag<float> d;
  const auto* const from = reinterpret_cast<const BFloat16*>(row) + begin;
  each_vector(d, end - begin,
              [&](auto io, int64_t i) HWY_ATTR { io.store(d, io.load(d, from + i), out + i); });
}

template <class T>
void read_int8(const uint8_t* row, int64_t /*cols*/, int64_t begin, int64_t end, T* out) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  const hn::Rebind<int8_t, Tag<float>> d8;
  float scale;
  std::memcpy(&scale, row, sizeof scale);
  const auto scales = hn::Set(d, scale);
  const auto* const from = reinterpret_cast<const int8_t*>(row) + sizeof scale + begin;
  const int64_t count = end - begin, lanes = lanes_of<float>();
  const auto widened = [&](auto bytes) HWY_ATTR {
    return hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, bytes)), scales);
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Whole{}.store(d, widened(hn::LoadU(d8, from + i)), out + i);
  }
  if (i == count) return;
  HWY_ALIGN int8_t rest[hn::MaxLanes(d8)] = {};
  std::copy_n(from + i, count - i, rest);
  Part{count - i}.store(d, widened(hn::Load(d8, rest)), out + i);
}

// A group's 32 columns.
template <class T>
HWY_INLINE void read_group(const uint8_t* bytes, float scale, T* out) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  const hn::Rebind<uint8_t, Tag<float>> d8;
  const auto scales = hn::Set(d, scale);
  const auto eights = hn::Set(di, 8);
  for (int64_t i = 0; i < kHalf; i += lanes_of<float>()) {
    const auto both = hn::PromoteTo(di, hn::LoadU(d8, bytes + i));
    const auto low = hn::Sub(hn::And(both, hn::Set(di, 15)), eights);
    const auto high = hn::Sub(hn::ShiftRight<4>(both), eights);
    Whole{}.store(d, hn::Mul(hn::ConvertTo(d, low), scales), out + i);
    Whole{}.store(d, hn::Mul(hn::ConvertTo(d, high), scales), out + kHalf + i);
  }
}

template <class T>
void read_int4(const uint8_t* row, int64_t cols, int64_t begin, int64_t end, T* out) {
  const int64_t groups = (cols + kGroup - 1) / kGroup;
  const auto* const scales = reinterpret_cast<const BFloat16*>(row + groups * kHalf);
  for (int64_t k = begin; k < end; k += kGroup, out += kGroup) {
    const int64_t group = k / kGroup;
    const auto scale = static_cast<float>(scales[group]);
    if (k + kGroup <= end) {
      read_group(row + group * kHalf, scale, out);
    } else {
      T whole[kGroup];
      read_group(row + group * kHalf, scale, whole);
      std::copy_n(whole, end - k, out);
    }
  }
}

template <class T>
constexpr FrozenRows<T> kRows = {read_bfloat16<T>, read_int8<T>, read_int4<T>};

const AllFrozenRows* frozen_rows() {
  static constexpr AllFrozenRows functions = {kRows<float>, kRows<BFloat16>};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(frozen_rows);

}  // namespace

template <>
const FrozenRows<float>& frozen_rows_functions() {
  return HWY_DYNAMIC_DISPATCH(frozen_rows)()->floats;
}
template <>
const FrozenRows<BFloat16>& frozen_rows_functions() {
  return HWY_DYNAMIC_DISPATCH(frozen_rows)()->halves;
}

}  // namespace tapestry
#endif
