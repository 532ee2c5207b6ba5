#include "core/cuda/blas.h"
#include "core/kernels/cuda/common.cuh"
#include "core/kernels/matmul/gemm_common.h"

namespace tapestry {
namespace {

// Kernels count the products of a batch in the grid's z, which has this limit.
constexpr int64_t kMostProducts = 65535;

// c = beta * c for (batch, m, n): a thread per element.
template <class T>
__global__ void scale(T* c, int64_t m, int64_t n, int64_t ldc, int64_t batch, int64_t stride,
                      Wider<T> beta) {
  for (int64_t i = global_thread(); i < batch * m * n; i += global_threads()) {
    T& value = c[i / (m * n) * stride + i / n % m * ldc + i % n];
    value = narrow<T>(beta == 0 ? Wider<T>(0) : beta * widen(value));  // 0 * NaN is not 0
  }
}

}  // namespace

namespace kernels {

template <class T>
void gemm(Cuda, const Gemm<T>& args) {
  check_arguments(args);
  if (args.m == 0 || args.n == 0 || args.batch == 0) return;
  if (args.k == 0) {
    launch({.kernel = "gemm", .grid = blocks_for(args.batch * args.m * args.n)}, scale<T>, args.c,
           args.m, args.n, args.ldc, args.batch, args.stride_c, args.beta);
    return;
  }
  const Gemm<T> all = merged(args);
  // cuBLASLt does not promise to accept negative strides (a backward GRU has them): then one
  // product at a time.
  const bool forward = all.stride_a >= 0 && all.stride_b >= 0 && all.stride_c >= 0;
  const int64_t most = forward ? kMostProducts : 1;
  for (int64_t first = 0; first < all.batch; first += most) {
    Gemm<T> g = all;
    g.a += first * g.stride_a, g.b += first * g.stride_b, g.c += first * g.stride_c;
    g.batch = all.batch - first < most ? all.batch - first : most;
    check(cuda::matmul(g), "gemm", "cuBLASLt has no algorithm for m ", g.m, ", n ", g.n, ", k ",
          g.k, ", batch ", g.batch, '.');
  }
}

template void gemm(Cuda, const Gemm<float>&);
template void gemm(Cuda, const Gemm<double>&);
template void gemm(Cuda, const Gemm<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
