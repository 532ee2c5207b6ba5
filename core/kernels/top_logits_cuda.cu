#include "core/kernels/cuda/common.cuh"
#include "core/kernels/top_logits.h"

namespace tapestry {
namespace {

struct LessOf {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

// One block per row. It reads the row once for the maximum, once for the sum and once for each
// pair, which is the next largest logit. K is small, and the row stays in the cache.
template <class T>
__global__ void top_logits_kernel(TopLogitsShape shape, const T* logits, const int32_t* banned,
                                  double* top) {
  using W = Wider<T>;
  constexpr int32_t kNone = INT32_MAX;
  const W infinity = static_cast<W>(INFINITY);
  const T* const z = logits + static_cast<int64_t>(blockIdx.x) * shape.vocab;
  double* const result = top + blockIdx.x * (1 + 2 * shape.count);
  const auto vocab = static_cast<int32_t>(shape.vocab), step = static_cast<int32_t>(blockDim.x);
  const auto first = static_cast<int32_t>(threadIdx.x);

  W largest = -infinity;
  for (int32_t i = first; i < vocab; i += step) largest = MaxOf()(largest, widen(z[i]));
  largest = block_reduce(largest, MaxOf(), -infinity);
  const W shift = largest == -infinity ? W(0) : largest;
  double sum = 0;
  for (int32_t i = first; i < vocab; i += step) {
    sum += static_cast<double>(std::exp(widen(z[i]) - shift));
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) result[0] = static_cast<double>(largest) + std::log(sum);

  W last = infinity;
  int32_t last_token = -1;
  for (int64_t k = 0; k < shape.count; ++k) {
    W best = -infinity;
    int32_t token = kNone;
    for (int32_t i = first; i < vocab; i += step) {
      const W value = widen(z[i]);
      const bool left = value < last || (value == last && i > last_token);
      if (left && value > best && !has_token(banned, i)) best = value, token = i;
    }
    last = block_reduce(best, MaxOf(), -infinity);
    last_token = block_reduce(best == last ? token : kNone, LessOf(), kNone);
    if (threadIdx.x != 0) continue;
    result[1 + 2 * k] = last_token == kNone ? -1.0 : static_cast<double>(last_token);
    result[2 + 2 * k] = static_cast<double>(last);
  }
}

}  // namespace

namespace kernels {

template <class T>
void top_logits(Cuda, const TopLogitsShape& shape, const T* logits, const int32_t* banned,
                double* top) {
  launch({.kernel = "top_logits", .grid = static_cast<unsigned>(shape.rows)}, top_logits_kernel<T>,
         shape, logits, banned, top);
}

template void top_logits(Cuda, const TopLogitsShape&, const float*, const int32_t*, double*);
template void top_logits(Cuda, const TopLogitsShape&, const double*, const int32_t*, double*);
template void top_logits(Cuda, const TopLogitsShape&, const BFloat16*, const int32_t*, double*);

}  // namespace kernels
}  // namespace tapestry
