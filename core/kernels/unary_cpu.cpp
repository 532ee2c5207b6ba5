#include "core/kernels/unary.h"

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tiling.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/unary_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/cpu/unary_simd-inl.h"

#ifndef TAPESTRY_UNARY_RANGES
#define TAPESTRY_UNARY_RANGES
namespace tapestry {

template <class T>
struct UnaryRanges {
  void (*forward)(Unary f, const T* x, T* y, int64_t n);
  void (*backward)(Unary f, const T* x, const T* y, const T* dy, T* dx, int64_t n, Write write);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// Calls g(functor).
template <class G>
HWY_INLINE void with_functor(Unary f, G g) {
  switch (f) {
    case Unary::kRelu:
      return g(simd::Relu());
    case Unary::kGelu:
      return g(simd::Gelu());
    case Unary::kGeluTanh:
      return g(simd::GeluTanh());
    case Unary::kSilu:
      return g(simd::Silu());
    case Unary::kTanh:
      return g(simd::Tanh());
    case Unary::kSigmoid:
      return g(simd::Sigmoid());
    case Unary::kExp:
      return g(simd::Exp());
    case Unary::kLog:
      return g(simd::Log());
    case Unary::kSqrt:
      return g(simd::Sqrt());
  }
}

template <class T>
void forward(Unary f, const T* x, T* y, int64_t n) {
  const Tag<T> d;
  with_functor(f, [&](auto functor) HWY_ATTR {
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      io.store(d, functor.f(d, io.load(d, x + i)), y + i);
    });
  });
}

template <class T>
void backward(Unary f, const T* x, const T* y, const T* dy, T* dx, int64_t n, Write write) {
  const Tag<T> d;
  with_functor(f, [&](auto functor) HWY_ATTR {
    constexpr functors::Needs needs = decltype(functor)::kNeeds;
    const bool from_x =
        needs == functors::Needs::kInput || (needs == functors::Needs::kEither && x != nullptr);
    const T* const v = from_x ? x : y;
    with_write(write, [&](auto mode) HWY_ATTR {
      each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
        const auto slope = functor.df(d, io.load(d, v + i));
        deliver(mode, io, d, hn::Mul(slope, io.load(d, dy + i)), dx + i);
      });
    });
  });
}

template <class T>
constexpr UnaryRanges<T> kFunctions = {forward<T>, backward<T>};

const PerType<UnaryRanges>* unary_ranges() {
  static constexpr PerType<UnaryRanges> functions = {kFunctions<float>, kFunctions<double>};
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
}  // namespace

namespace kernels {

template <class T>
void unary(Cpu, Unary f, const T* x, T* y, int64_t n) {
  const auto forward = HWY_DYNAMIC_DISPATCH(unary_ranges)()->of<T>().forward;
  parallel_ranges(n, kTileElements, [&](int64_t begin, int64_t end) {
    forward(f, x + begin, y + begin, end - begin);
  });
}

template <class T>
void unary_backward(Cpu, Unary f, const T* x, const T* y, const T* dy, T* dx, int64_t n,
                    Write write) {
  const auto backward = HWY_DYNAMIC_DISPATCH(unary_ranges)()->of<T>().backward;
  parallel_ranges(n, kTileElements, [&](int64_t begin, int64_t end) {
    backward(f, x == nullptr ? x : x + begin, y == nullptr ? y : y + begin, dy + begin, dx + begin,
             end - begin, write);
  });
}

template void unary(Cpu, Unary, const float*, float*, int64_t);
template void unary(Cpu, Unary, const double*, double*, int64_t);
template void unary_backward(Cpu, Unary, const float*, const float*, const float*, float*, int64_t,
                             Write);
template void unary_backward(Cpu, Unary, const double*, const double*, const double*, double*,
                             int64_t, Write);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
