#include <fast_math.h>

#include <algorithm>
#include <limits>

#include "core/kernels/cuda/cross_entropy_rows.cuh"
#include "core/kernels/cuda/packs.cuh"

namespace tapestry {
namespace {

constexpr int kMaxThreads = 1024;

// e^x for x <= 0. The absolute error of the fast form is that of rounding, which is enough in a sum
// of such terms.
__device__ inline float power(float x) { return fast_exp2(x * 1.44269504f); }
__device__ inline double power(double x) { return std::exp(x); }

// What is subtracted from logits of which this is the largest: nothing if all are -inf, because the
// sum must be 0, not that of e^(inf - inf).
template <class W>
__device__ W shift_of(W largest) {
  return largest == -std::numeric_limits<W>::infinity() ? W(0) : largest;
}

__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return fmax(a, b); }

// A row of n elements: single ones up to the first 16-byte boundary, then packs, then single ones.
// Rows of, say, 50257 classes begin at any address. If logits and gradient do not share the
// boundary, `lead` is n.
template <class T>
struct RowPacks {
  __device__ RowPacks(const T* z, const T* dz, int64_t n) : n(n) {
    const auto beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(z) % 16);
    const auto dz_beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(dz) % 16);
    lead = (16 - beyond) % 16 / static_cast<int64_t>(sizeof(T));
    if (lead > n || (dz != nullptr && beyond != dz_beyond)) lead = n;
    packs = (n - lead) / kPack<T>;
  }
  // Calls f(first element, number of elements as a constant) for the thread's share.
  template <class F>
  __device__ void each(F f) const {
    constexpr std::integral_constant<int, 1> one;
    for (int64_t i = threadIdx.x; i < lead; i += blockDim.x) f(i, one);
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      f(lead + p * kPack<T>, std::integral_constant<int, kPack<T>>());
    }
    for (int64_t i = lead + packs * kPack<T> + threadIdx.x; i < n; i += blockDim.x) f(i, one);
  }
  int64_t n, lead, packs;
};

// What becomes of a logit: itself, or its softcap with the derivative.
template <class W, bool kCaps>
struct Logit {
  W softcap;

  __device__ W value(W z) const { return kCaps ? softcap * std::tanh(z / softcap) : z; }
  /// From the value.
  __device__ W slope(W v) const { return kCaps ? W(1) - v / softcap * (v / softcap) : W(1); }
};

// logits (rows, classes), `stride` apart: one block per row. The first pass takes the largest logit
// and the sums together (a thread rescales its sum when its maximum grows). The second pass, from
// the cache if the row fits, computes the gradient.
template <class T, bool kCaps>
__global__ void __launch_bounds__(kMaxThreads, sizeof(T) == 8 ? 1 : 2)
    rows_kernel(CrossEntropyShape shape, CrossEntropyRows<T> args) {
  using W = Wider<T>;
  const Logit<W, kCaps> logit{static_cast<W>(shape.softcap)};
  const W infinity = std::numeric_limits<W>::infinity();
  const int64_t r = blockIdx.x;
  const T* const z = args.logits + r * args.stride;
  T* const dz = args.dlogits != nullptr ? args.dlogits + r * args.stride : nullptr;
  const RowPacks<T> row(z, dz, shape.classes);
  const auto clear_rest = [&] {
    for (int64_t i = shape.classes + threadIdx.x; i < args.stride; i += blockDim.x) dz[i] = T(0);
  };
  const int32_t target = args.targets.targets[r];
  if (target == shape.ignore_index) {
    if (threadIdx.x == 0) args.losses[r] = {};
    if (dz == nullptr) return;
    row.each([&](int64_t i, auto size) {
      constexpr int N = decltype(size)::value;
      const W zeros[N] = {};
      deliver_pack(dz + i, zeros, Write::kSet);
    });
    clear_rest();
    return;
  }
  const W target_logit = logit.value(widen(z[target]));
  const bool smooths = shape.label_smoothing != 0;
  W max = -infinity, sum = 0, total = 0;
  row.each([&](int64_t i, auto size) {
    constexpr int N = decltype(size)::value;
    W v[N];
    load_pack(z + i, v);
    for (W& one : v) one = logit.value(one);
    W largest = v[0];  // of numbers: NaN is left to the sum
    for (int j = 1; j < N; ++j) largest = larger(largest, v[j]);
    largest = larger(largest, max);
    if (smooths) {
      for (int j = 0; j < N; ++j) total += v[j];
    }
    const W shift = shift_of(largest);
    if (largest > max) sum *= power(max - shift);
    max = largest;
    for (int j = 0; j < N; ++j) sum += power(v[j] - shift);
  });
  const W row_max = block_reduce(max, MaxOf(), -infinity);
  const W shift = shift_of(row_max);
  const double row_sum = block_sum(static_cast<double>(sum * power(max - shift)));
  const double row_total = smooths ? block_sum(static_cast<double>(total)) : 0;
  bool is_hit = !(row_max > target_logit);
  if (row_max == target_logit) {  // if it is the first of equals
    int before = 0;
    for (int64_t i = threadIdx.x; i < target; i += blockDim.x) {
      before |= logit.value(widen(z[i])) == row_max;
    }
    is_hit = block_reduce(before, MaxOf(), 0) == 0;
  }
  const double weight = args.targets.weight(r);
  if (threadIdx.x == 0) {
    args.losses[r] = row_loss(shape, static_cast<double>(target_logit),
                              static_cast<double>(row_max), row_sum, row_total, is_hit, weight);
  }
  if (dz == nullptr) return;
  const double scale = args.grad_scale * weight, smoothing = shape.label_smoothing;
  const W factor = static_cast<W>(scale / row_sum);
  const W spread = static_cast<W>(scale * smoothing / static_cast<double>(shape.classes));
  const W hit = static_cast<W>(scale * (1 - smoothing));
  row.each([&](int64_t i, auto size) {
    constexpr int N = decltype(size)::value;
    W v[N];
    load_pack(z + i, v);
    W slopes[N];
    for (int j = 0; j < N; ++j) {
      v[j] = logit.value(v[j]);
      slopes[j] = logit.slope(v[j]);
      v[j] = power(v[j] - shift) * factor - spread;
    }
    if (i <= target && target < i + N) {
      for (int j = 0; j < N; ++j) {
        if (i + j == target) v[j] -= hit;
      }
    }
    if (kCaps) {
      for (int j = 0; j < N; ++j) v[j] *= slopes[j];
    }
    deliver_pack(dz + i, v, Write::kSet);
  });
  clear_rest();
}

// One block. A thread sums every kMaxThreads-th row, then the block sums its threads.
__global__ void __launch_bounds__(kMaxThreads)
    sum_rows_kernel(const RowLoss* losses, int64_t rows, CrossEntropySums* sums) {
  CrossEntropySums own;
  for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
    own.loss += losses[i].loss;
    own.nll += losses[i].nll;
    own.correct += losses[i].correct;
  }
  own.loss = block_sum(own.loss);
  own.nll = block_sum(own.nll);
  own.correct = block_sum(own.correct);
  if (threadIdx.x == 0) *sums = own;
}

}  // namespace

template <class T>
void cross_entropy_rows(const CrossEntropyShape& shape, const CrossEntropyRows<T>& args) {
  // About four packs per thread, so that short rows leave room for other blocks.
  const int64_t warps = (shape.classes / kPack<T> / 4 + kWarp - 1) / kWarp;
  const auto threads =
      static_cast<unsigned>(std::clamp<int64_t>(warps * kWarp, 2 * kWarp, kMaxThreads));
  launch(
      {.kernel = "cross_entropy", .grid = blocks_for(shape.rows, 1, INT32_MAX), .block = threads},
      shape.softcap > 0 ? rows_kernel<T, true> : rows_kernel<T, false>, shape, args);
}

void sum_rows(const RowLoss* losses, int64_t rows, CrossEntropySums* sums) {
  launch({.kernel = "sum_rows", .grid = 1, .block = kMaxThreads}, sum_rows_kernel, losses, rows,
         sums);
}

namespace kernels {

template <class T>
void cross_entropy(Cuda, const CrossEntropyShape& shape, const T* logits, const RowTargets& targets,
                   double grad_scale, T* dlogits, CrossEntropySums* sums) {
  DeviceScratch<RowLoss> losses(shape.rows);
  cross_entropy_rows(shape, CrossEntropyRows<T>{.logits = logits,
                                                .stride = shape.classes,
                                                .targets = targets,
                                                .grad_scale = grad_scale,
                                                .losses = losses.data(),
                                                .dlogits = dlogits});
  sum_rows(losses.data(), shape.rows, sums);
}

}  // namespace kernels

#define TAPESTRY_CROSS_ENTROPY(T)                                                         \
  template void cross_entropy_rows(const CrossEntropyShape&, const CrossEntropyRows<T>&); \
  template void kernels::cross_entropy(Cuda, const CrossEntropyShape&, const T*,          \
                                       const RowTargets&, double, T*, CrossEntropySums*);
TAPESTRY_CROSS_ENTROPY(float)
TAPESTRY_CROSS_ENTROPY(double)
TAPESTRY_CROSS_ENTROPY(BFloat16)

}  // namespace tapestry
