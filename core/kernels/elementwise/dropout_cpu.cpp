#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tiling.h"
#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/elementwise/dropout_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/philox_simd-inl.h"
#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_DROPOUT_RANGE
#define TAPESTRY_DROPOUT_RANGE
namespace tapestry {

template <class T>
struct DropoutRange {
  // Elements begin to end - 1 of x and y.
  void (*apply)(const Dropout& dropout, const T* x, T* y, int64_t begin, int64_t end, Write write);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void apply(const Dropout& dropout, const T* x, T* y, int64_t begin, int64_t end, Write write) {
  constexpr int64_t kChunk = 256;  // factors stay in L1
  const Tag<T> d;
  using W = Wider<T>;
  const DropoutFactors<W> factors(dropout);
  HWY_ALIGN W memory[kChunk + DropoutFactors<W>::kPadding];
  with_write(write, [&](auto mode) HWY_ATTR {
    for (int64_t i = begin; i < end; i += kChunk) {
      const int64_t n = std::min(kChunk, end - i);
      const W* const factor = factors.fill(static_cast<uint64_t>(i), n, memory);
      each_vector(d, n, [&](auto io, int64_t j) HWY_ATTR {
        const auto v = hn::Mul(io.load(d, x + i + j), io.load(d, factor + j));
        deliver(mode, io, d, v, y + i + j);
      });
    }
  });
}

const PerType<DropoutRange>* dropout_range() {
  static constexpr PerType<DropoutRange> functions = {
      {apply<float>}, {apply<double>}, {apply<BFloat16>}};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {
HWY_EXPORT(dropout_range);
}  // namespace

namespace kernels {

template <class T>
void dropout(Cpu, const Dropout& dropout, const T* x, T* y, int64_t n, Write write) {
  if (dropout.p <= 0) return affine(Cpu{}, 1, x, 0, y, n, write);
  const auto apply = HWY_DYNAMIC_DISPATCH(dropout_range)()->of<T>().apply;
  parallel_ranges(n, kTileElements,
                  [&](int64_t begin, int64_t end) { apply(dropout, x, y, begin, end, write); });
}

template void dropout(Cpu, const Dropout&, const float*, float*, int64_t, Write);
template void dropout(Cpu, const Dropout&, const double*, double*, int64_t, Write);
template void dropout(Cpu, const Dropout&, const BFloat16*, BFloat16*, int64_t, Write);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
