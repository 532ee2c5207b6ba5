#include "core/kernels/elementwise/unary.h"

#include <tuple>

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tiling.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/elementwise/unary_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/activation_simd-inl.h"
#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/cpu/unary_simd-inl.h"

#ifndef TAPESTRY_UNARY_RANGES
#define TAPESTRY_UNARY_RANGES
namespace tapestry {

template <class T, class F>
struct UnaryRanges {
  void (*forward)(F f, const T* x, T* y, int64_t n);
  void (*backward)(F f, const T* x, const T* y, const T* dy, T* dx, int64_t n, Write write);
};
template <class T>
using UnaryFunctions = std::tuple<UnaryRanges<T, Unary>, UnaryRanges<T, Activation>>;

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T, class F>
void forward(F f, const T* x, T* y, int64_t n) {
  const Tag<T> d;
  with_functor(f, [&](auto functor) HWY_ATTR {
    using Form = simd::Form<decltype(functor)>;
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      io.store(d, Form::f(d, io.load(d, x + i)), y + i);
    });
  });
}

template <class T, class F>
void backward(F f, const T* x, const T* y, const T* dy, T* dx, int64_t n, Write write) {
  const Tag<T> d;
  with_functor(f, [&](auto functor) HWY_ATTR {
    using Form = simd::Form<decltype(functor)>;
    const T* const v = functors::argument_of_df<Form>(x, y, dy);
    with_write(write, [&](auto mode) HWY_ATTR {
      each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
        const auto slope = Form::df(d, io.load(d, v + i));
        deliver(mode, io, d, hn::Mul(slope, io.load(d, dy + i)), dx + i);
      });
    });
  });
}

template <class T>
constexpr UnaryFunctions<T> kFunctions = {{forward<T, Unary>, backward<T, Unary>},
                                          {forward<T, Activation>, backward<T, Activation>}};

const PerType<UnaryFunctions>* unary_ranges() {
  static constexpr PerType<UnaryFunctions> functions = {kFunctions<float>, kFunctions<double>,
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
HWY_EXPORT(unary_ranges);

template <class T, class F>
const UnaryRanges<T, F>& ranges() {
  return std::get<UnaryRanges<T, F>>(HWY_DYNAMIC_DISPATCH(unary_ranges)()->of<T>());
}
}  // namespace

namespace kernels {

template <class T, class F>
void unary(Cpu, F f, const T* x, T* y, int64_t n) {
  const auto forward = ranges<T, F>().forward;
  parallel_ranges(n, kTileElements, [&](int64_t begin, int64_t end) {
    forward(f, x + begin, y + begin, end - begin);
  });
}

template <class T, class F>
void unary_backward(Cpu, F f, const T* x, const T* y, const T* dy, T* dx, int64_t n, Write write) {
  const auto backward = ranges<T, F>().backward;
  parallel_ranges(n, kTileElements, [&](int64_t begin, int64_t end) {
    backward(f, x == nullptr ? x : x + begin, y == nullptr ? y : y + begin, dy + begin, dx + begin,
             end - begin, write);
  });
}

#define TAPESTRY_UNARY(T, F)                          \
  template void unary(Cpu, F, const T*, T*, int64_t); \
  template void unary_backward(Cpu, F, const T*, const T*, const T*, T*, int64_t, Write);
TAPESTRY_UNARY(float, Unary)
TAPESTRY_UNARY(double, Unary)
TAPESTRY_UNARY(BFloat16, Unary)
TAPESTRY_UNARY(float, Activation)
TAPESTRY_UNARY(double, Activation)
TAPESTRY_UNARY(BFloat16, Activation)

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
