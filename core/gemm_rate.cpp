#include "core/gemm_rate.h"

#include <algorithm>
#include <limits>

#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/device_runtime.h"
#include "core/dispatch_device.h"
#include "core/kernels/matmul/gemm.h"

namespace tapestry {

double gemm_rate(Device device, DType dtype, Precision precision) {
  const int64_t n = device.is_cpu() ? 1024 : 8192;
  // Random values: a GPU multiplies numbers with few significant bits faster than a model's.
  const Tensor values = Tensor::empty({n, n}, DType::kFloat32);
  for (int64_t i = 0; i < n * n; ++i) {
    values.data<float>()[i] = to_uniform(philox_bits({7, 0, 0}, static_cast<uint64_t>(i))) - 0.5f;
  }
  const Tensor a = values.to(dtype).to(device), b = a.clone(),
               c = Tensor::zeros({n, n}, dtype, device);
  double best = std::numeric_limits<double>::infinity();
  dispatch(a, [&](auto where, auto type) {
    using T = decltype(type);
    Gemm<T> g;
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = n;
    g.precision = precision;
    g.a = a.data<T>(), g.b = b.data<T>(), g.c = c.data<T>();
    // An idle GPU needs time to reach its full clock rate, and others may disturb a CPU.
    const double least = steady_seconds() + 0.3;
    for (int i = 0; i < 6 || steady_seconds() < least; ++i) {
      synchronize(device);
      const double start = steady_seconds();
      kernels::gemm(where, g);
      synchronize(device);
      if (i > 0) best = std::min(best, steady_seconds() - start);
    }
  });
  return 2e-9 * double(n) * double(n) * double(n) / best;
}

}  // namespace tapestry
