#include "core/kernels/elementwise/glu.h"

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tiling.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/elementwise/glu_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/activation_simd-inl.h"
#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_GLU_RANGES
#define TAPESTRY_GLU_RANGES
namespace tapestry {

// n elements of one row: a and b are side by side in memory, and so are their gradients.
template <class T>
struct GluRanges {
  void (*forward)(Activation f, const T* a, const T* b, T* y, int64_t n);
  void (*backward)(Activation f, const T* a, const T* b, const T* dy, T* da, T* db, int64_t n,
                   Write write);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void forward(Activation f, const T* a, const T* b, T* y, int64_t n) {
  const Tag<T> d;
  with_functor(f, [&](auto functor) HWY_ATTR {
    using Gate = simd::Form<decltype(functor)>;
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      io.store(d, hn::Mul(Gate::f(d, io.load(d, a + i)), io.load(d, b + i)), y + i);
    });
  });
}

template <class T>
void backward(Activation f, const T* a, const T* b, const T* dy, T* da, T* db, int64_t n,
              Write write) {
  const Tag<T> d;
  with_functor(f, [&](auto functor) HWY_ATTR {
    using Gate = simd::Form<decltype(functor)>;
    with_write(write, [&](auto mode) HWY_ATTR {
      each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
        const auto va = io.load(d, a + i), g = io.load(d, dy + i);
        const auto through_b = hn::Mul(g, io.load(d, b + i));
        const auto opened = Gate::f(d, va);
        const auto slope = Gate::df(d, Gate::kNeeds == functors::Needs::kOutput ? opened : va);
        deliver(mode, io, d, hn::Mul(slope, through_b), da + i);
        deliver(mode, io, d, hn::Mul(opened, g), db + i);
      });
    });
  });
}

template <class T>
constexpr GluRanges<T> kFunctions = {forward<T>, backward<T>};

const PerType<GluRanges>* glu_ranges() {
  static constexpr PerType<GluRanges> functions = {kFunctions<float>, kFunctions<double>,
                                                   kFunctions<BFloat16>};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {
HWY_EXPORT(glu_ranges);
}  // namespace

namespace kernels {

template <class T>
void glu(Cpu, Activation f, const T* x, T* y, int64_t rows, int64_t cols) {
  const auto forward = HWY_DYNAMIC_DISPATCH(glu_ranges)()->of<T>().forward;
  parallel_rows(rows, cols, [&](int64_t row, int64_t begin, int64_t end) {
    const T* const a = x + row * 2 * cols + begin;
    forward(f, a, a + cols, y + row * cols + begin, end - begin);
  });
}

template <class T>
void glu_backward(Cpu, Activation f, const T* x, const T* dy, T* dx, int64_t rows, int64_t cols,
                  Write write) {
  const auto backward = HWY_DYNAMIC_DISPATCH(glu_ranges)()->of<T>().backward;
  parallel_rows(rows, cols, [&](int64_t row, int64_t begin, int64_t end) {
    const int64_t place = row * 2 * cols + begin;
    backward(f, x + place, x + place + cols, dy + row * cols + begin, dx + place, dx + place + cols,
             end - begin, write);
  });
}

template void glu(Cpu, Activation, const float*, float*, int64_t, int64_t);
template void glu(Cpu, Activation, const double*, double*, int64_t, int64_t);
template void glu(Cpu, Activation, const BFloat16*, BFloat16*, int64_t, int64_t);
template void glu_backward(Cpu, Activation, const float*, const float*, float*, int64_t, int64_t,
                           Write);
template void glu_backward(Cpu, Activation, const double*, const double*, double*, int64_t, int64_t,
                           Write);
template void glu_backward(Cpu, Activation, const BFloat16*, const BFloat16*, BFloat16*, int64_t,
                           int64_t, Write);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
