#include "core/kernels/softmax.h"

#include <cmath>
#include <limits>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/simd_select.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/softmax_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_SOFTMAX_ROWS
#define TAPESTRY_SOFTMAX_ROWS
namespace tapestry {

// Each handles one row.
template <class T>
struct SoftmaxRows {
  void (*softmax)(const T* x, T* y, int64_t cols);
  void (*softmax_backward)(const T* y, const T* dy, T* dx, int64_t cols, Write write);
  void (*log_softmax)(const T* x, T* y, int64_t cols);
  void (*log_softmax_backward)(const T* y, const T* dy, T* dx, int64_t cols, Write write);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
constexpr bool kRounds = !std::is_same_v<T, Wider<T>>;

// The largest element, or 0 if all elements are -inf, so that x - shift is never inf - inf.
template <class T>
Wider<T> row_shift(const T* x, int64_t cols) {
  using W = Wider<T>;
  const Tag<T> d;
  auto largest = hn::Set(d, -std::numeric_limits<W>::infinity());
  each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
    largest = hn::Max(largest, io.or_else(d, io.load(d, x + i), largest));
  });
  const W result = max_lanes(d, largest);
  return result == -std::numeric_limits<W>::infinity() ? W{0} : result;
}

template <class T>
void softmax(const T* x, T* y, int64_t cols) {
  const Tag<T> d;
  const auto shift = hn::Set(d, row_shift(x, cols));
  LineSums<T> sums;
  each_line<T>(cols, [&](auto io, int64_t i, auto part) HWY_ATTR {
    const auto e = exp_negative(d, hn::Sub(io.load(d, x + i), shift));
    sums[part] = hn::Add(sums[part], io.or_else(d, e, hn::Zero(d)));
    if constexpr (!kRounds<T>) io.store(d, e, y + i);
  });
  const Wider<T> sum = sums.total();
  const auto factor = hn::Set(d, sum == 0 ? Wider<T>{0} : 1 / sum);
  each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
    // y has the exponential itself only where it could keep all its digits.
    const auto e =
        kRounds<T> ? exp_negative(d, hn::Sub(io.load(d, x + i), shift)) : io.load(d, y + i);
    io.store(d, hn::Mul(e, factor), y + i);
  });
}

template <class T>
void softmax_backward(const T* y, const T* dy, T* dx, int64_t cols, Write write) {
  const Tag<T> d;
  LineSums<T> sums;
  each_line<T>(cols, [&](auto io, int64_t i, auto part) HWY_ATTR {
    sums[part] = hn::MulAdd(io.load(d, y + i), io.load(d, dy + i), sums[part]);
  });
  const auto dot = hn::Set(d, sums.total());
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
      const auto g = hn::Mul(io.load(d, y + i), hn::Sub(io.load(d, dy + i), dot));
      deliver(mode, io, d, g, dx + i);
    });
  });
}

template <class T>
void log_softmax(const T* x, T* y, int64_t cols) {
  const Tag<T> d;
  const Wider<T> shift = row_shift(x, cols);
  const auto shifts = hn::Set(d, shift);
  LineSums<T> sums;
  each_line<T>(cols, [&](auto io, int64_t i, auto part) HWY_ATTR {
    const auto e = exp_negative(d, hn::Sub(io.load(d, x + i), shifts));
    sums[part] = hn::Add(sums[part], io.or_else(d, e, hn::Zero(d)));
  });
  const Wider<T> sum = sums.total();
  // A row of only -inf stays unchanged.
  const auto log_sum = hn::Set(d, sum == 0 ? Wider<T>{0} : std::log(sum));
  each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Sub(hn::Sub(io.load(d, x + i), shifts), log_sum), y + i);
  });
}

template <class T>
void log_softmax_backward(const T* y, const T* dy, T* dx, int64_t cols, Write write) {
  const Tag<T> d;
  LineSums<T> sums;
  each_line<T>(cols, [&](auto io, int64_t i, auto part)
                         HWY_ATTR { sums[part] = hn::Add(sums[part], io.load(d, dy + i)); });
  const auto sum = hn::Set(d, sums.total());
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
      const auto p = exp_negative(d, io.load(d, y + i));
      deliver(mode, io, d, hn::NegMulAdd(p, sum, io.load(d, dy + i)), dx + i);
    });
  });
}

template <class T>
constexpr SoftmaxRows<T> kFunctions = {softmax<T>, softmax_backward<T>, log_softmax<T>,
                                       log_softmax_backward<T>};

const PerType<SoftmaxRows>* row_functions() {
  static constexpr PerType<SoftmaxRows> functions = {kFunctions<float>, kFunctions<double>,
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

HWY_EXPORT(row_functions);

template <class T>
const SoftmaxRows<T>& functions() {
  return HWY_DYNAMIC_DISPATCH(row_functions)()->of<T>();
}

// Rows per tile: about 4096 exponentials.
int64_t row_grain(int64_t cols) { return std::max<int64_t>(1, 4096 / std::max<int64_t>(1, cols)); }

// Calls f(offset of the row's first element) for each row.
template <class F>
void each_row(int64_t rows, int64_t cols, F&& f) {
  parallel_ranges(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) f(r * cols);
  });
}

}  // namespace

namespace kernels {

template <class T>
void softmax(Cpu, const T* x, T* y, int64_t rows, int64_t cols) {
  const auto row = functions<T>().softmax;
  each_row(rows, cols, [&](int64_t i) { row(x + i, y + i, cols); });
}

template <class T>
void softmax_backward(Cpu, const T* y, const T* dy, T* dx, int64_t rows, int64_t cols,
                      Write write) {
  const auto row = functions<T>().softmax_backward;
  each_row(rows, cols, [&](int64_t i) { row(y + i, dy + i, dx + i, cols, write); });
}

template <class T>
void log_softmax(Cpu, const T* x, T* y, int64_t rows, int64_t cols) {
  const auto row = functions<T>().log_softmax;
  each_row(rows, cols, [&](int64_t i) { row(x + i, y + i, cols); });
}

template <class T>
void log_softmax_backward(Cpu, const T* y, const T* dy, T* dx, int64_t rows, int64_t cols,
                          Write write) {
  const auto row = functions<T>().log_softmax_backward;
  each_row(rows, cols, [&](int64_t i) { row(y + i, dy + i, dx + i, cols, write); });
}

template void softmax(Cpu, const float*, float*, int64_t, int64_t);
template void softmax(Cpu, const double*, double*, int64_t, int64_t);
template void softmax(Cpu, const BFloat16*, BFloat16*, int64_t, int64_t);
template void softmax_backward(Cpu, const float*, const float*, float*, int64_t, int64_t, Write);
template void softmax_backward(Cpu, const double*, const double*, double*, int64_t, int64_t, Write);
template void softmax_backward(Cpu, const BFloat16*, const BFloat16*, BFloat16*, int64_t, int64_t,
                               Write);
template void log_softmax(Cpu, const float*, float*, int64_t, int64_t);
template void log_softmax(Cpu, const double*, double*, int64_t, int64_t);
template void log_softmax(Cpu, const BFloat16*, BFloat16*, int64_t, int64_t);
template void log_softmax_backward(Cpu, const float*, const float*, float*, int64_t, int64_t,
                                   Write);
template void log_softmax_backward(Cpu, const double*, const double*, double*, int64_t, int64_t,
                                   Write);
template void log_softmax_backward(Cpu, const BFloat16*, const BFloat16*, BFloat16*, int64_t,
                                   int64_t, Write);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
