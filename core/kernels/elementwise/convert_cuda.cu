#include "core/kernels/cuda/common.cuh"
#include "core/kernels/elementwise/convert.h"

namespace tapestry {
namespace {

template <class T>
__global__ void fill_kernel(T value, T* y, int64_t n) {
  for (int64_t i = global_thread(); i < n; i += global_threads()) y[i] = value;
}

template <class From, class To>
__global__ void convert_kernel(const From* x, To* y, int64_t n) {
  for (int64_t i = global_thread(); i < n; i += global_threads()) y[i] = element_cast<To>(x[i]);
}

}  // namespace

namespace kernels {

template <class T>
void fill(Cuda, T value, T* y, int64_t n) {
  launch({.kernel = "fill", .grid = blocks_for(n)}, fill_kernel<T>, value, y, n);
}

template <class From, class To>
void convert(Cuda, const From* x, To* y, int64_t n) {
  launch({.kernel = "convert", .grid = blocks_for(n)}, convert_kernel<From, To>, x, y, n);
}

#define TAPESTRY_CONVERT_FROM(From)                            \
  template void fill(Cuda, From, From*, int64_t);              \
  template void convert(Cuda, const From*, float*, int64_t);   \
  template void convert(Cuda, const From*, double*, int64_t);  \
  template void convert(Cuda, const From*, int32_t*, int64_t); \
  template void convert(Cuda, const From*, BFloat16*, int64_t);
TAPESTRY_CONVERT_FROM(float)
TAPESTRY_CONVERT_FROM(double)
TAPESTRY_CONVERT_FROM(int32_t)
TAPESTRY_CONVERT_FROM(BFloat16)

}  // namespace kernels
}  // namespace tapestry
