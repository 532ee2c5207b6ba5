#include "core/kernels/cuda/common.cuh"
#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/elementwise.h"

namespace tapestry {
namespace {

// A thread takes four elements, which is one block of draws, per turn, in accesses of N elements; y
// may be x. The last elements are taken singly if n is no multiple of four.
template <class T, int N>
__global__ void dropout_kernel(const DropoutFactors<T> factors, const T* x, T* y, int64_t n,
                               Write write) {
  const int64_t blocks = (n + 3) / 4;
  for (int64_t block = global_thread(); block < blocks; block += global_threads()) {
    Wider<T> factor[4];
    factors.four(static_cast<uint64_t>(block), factor);
    for (int k = 0; k < 4 && 4 * block + k < n; k += N) {
      const auto values = *reinterpret_cast<const Pack<T, N>*>(x + 4 * block + k);
      auto& out = *reinterpret_cast<Pack<T, N>*>(y + 4 * block + k);
      Pack<T, N> result = write == Write::kAdd ? out : Pack<T, N>{};
      for (int j = 0; j < N; ++j) {
        deliver(&result.v[j], factor[k + j] * widen(values.v[j]), write);
      }
      out = result;
    }
  }
}

}  // namespace

namespace kernels {

template <class T>
void dropout(Cuda, const Dropout& dropout, const T* x, T* y, int64_t n, Write write) {
  if (dropout.p <= 0) return affine(Cuda{}, 1, x, 0, y, n, write);
  constexpr int kWidth = kPack<T> < 4 ? kPack<T> : 4;
  const bool packed = n % 4 == 0 && can_pack<T>(0, x, y);
  launch({.kernel = "dropout", .grid = blocks_for((n + 3) / 4)},
         packed ? dropout_kernel<T, kWidth> : dropout_kernel<T, 1>, DropoutFactors<T>(dropout), x,
         y, n, write);
}

template void dropout(Cuda, const Dropout&, const float*, float*, int64_t, Write);
template void dropout(Cuda, const Dropout&, const double*, double*, int64_t, Write);
template void dropout(Cuda, const Dropout&, const BFloat16*, BFloat16*, int64_t, Write);

}  // namespace kernels
}  // namespace tapestry
