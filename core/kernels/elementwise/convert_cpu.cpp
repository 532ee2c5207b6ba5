#include <algorithm>

#include "core/kernels/elementwise/convert.h"
#include "core/shapes_only.h"

namespace tapestry::kernels {

template <class T>
void fill(Cpu, T value, T* y, int64_t n) {
  if (!ShapesOnly::has_memory(n * static_cast<int64_t>(sizeof(T)))) return;
  std::fill_n(y, n, value);
}

template <class From, class To>
void convert(Cpu, const From* x, To* y, int64_t n) {
  if (!ShapesOnly::has_memory(n * static_cast<int64_t>(sizeof(To)))) return;
  for (int64_t i = 0; i < n; ++i) y[i] = element_cast<To>(x[i]);
}

#define TAPESTRY_CONVERT_FROM(From)                           \
  template void fill(Cpu, From, From*, int64_t);              \
  template void convert(Cpu, const From*, float*, int64_t);   \
  template void convert(Cpu, const From*, double*, int64_t);  \
  template void convert(Cpu, const From*, int32_t*, int64_t); \
  template void convert(Cpu, const From*, BFloat16*, int64_t);
TAPESTRY_CONVERT_FROM(float)
TAPESTRY_CONVERT_FROM(double)
TAPESTRY_CONVERT_FROM(int32_t)
TAPESTRY_CONVERT_FROM(BFloat16)

}  // namespace tapestry::kernels
