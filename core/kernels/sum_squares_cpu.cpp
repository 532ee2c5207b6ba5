#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/sum_squares_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <numeric>
#include <vector>

#include "core/kernels/cpu/tensor_list.h"
#include "core/kernels/sum_squares.h"
#include "core/profile.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load_double(D d, const double* x) {
  return hn::LoadU(d, x);
}

template <class D>
HWY_INLINE hn::Vec<D> load_double(D d, const float* x) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), x));
}

// Four running sums hide the latency of the addition.
template <class T>
double sum_squares_piece(const T* x, int64_t n) {
  const hn::ScalableTag<double> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = hn::Lanes(d);
  V a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const V xa = load_double(d, x + i), xb = load_double(d, x + i + lanes);
    const V xc = load_double(d, x + i + 2 * lanes), xe = load_double(d, x + i + 3 * lanes);
    a = hn::MulAdd(xa, xa, a);
    b = hn::MulAdd(xb, xb, b);
    c = hn::MulAdd(xc, xc, c);
    e = hn::MulAdd(xe, xe, e);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

double sum_squares_float(const float* x, int64_t n) { return sum_squares_piece(x, n); }
double sum_squares_double(const double* x, int64_t n) { return sum_squares_piece(x, n); }

}  // namespace HWY_NAMESPACE
}  // namespace tapestry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry::kernels {
namespace {

HWY_EXPORT(sum_squares_float);
HWY_EXPORT(sum_squares_double);

double sum_squares_piece(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_squares_float)(x, n);
}
double sum_squares_piece(const double* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_squares_double)(x, n);
}

}  // namespace

template <class T>
void sum_squares(Cpu, std::span<const ElementSpan<T>> tensors, double* result) {
  const ProfileScope profile(Part::kOptimizer);
  const TensorList list(tensors);
  std::vector<double> partial(list.chunks(), 0.0);
  list.for_each_piece([&](int64_t chunk, size_t tensor, int64_t begin, int64_t end) {
    partial[chunk] += sum_squares_piece(tensors[tensor].x + begin, end - begin);
  });
  add_chunks(Cpu{}, partial.data(), list.chunks(), result);
}

template <class T>
void chunk_squares(Cpu, const T* x, int64_t n, double* sums) {
  static_assert(kSquaresChunk == TensorList::kChunk);
  const ProfileScope profile(Part::kOptimizer);
  parallel_ranges(n, kSquaresChunk, [&](int64_t begin, int64_t end) {
    sums[begin / kSquaresChunk] = sum_squares_piece(x + begin, end - begin);
  });
}

void add_chunks(Cpu, const double* sums, int64_t count, double* result) {
  *result = std::accumulate(sums, sums + count, 0.0);
}

template void sum_squares(Cpu, std::span<const ElementSpan<float>>, double*);
template void sum_squares(Cpu, std::span<const ElementSpan<double>>, double*);
template void chunk_squares(Cpu, const float*, int64_t, double*);
template void chunk_squares(Cpu, const double*, int64_t, double*);

}  // namespace tapestry::kernels
#endif
