#include "core/kernels/matmul/gemm.h"
#include "core/kernels/matmul/gram.h"

namespace tapestry::kernels {

// All of it: cuBLASLt has no symmetric products.
template <class T>
void gram(Cuda, const Gram<T>& g) {
  const int64_t lda = g.trans ? g.m : g.k;
  gemm(Cuda{}, Gemm<T>{.m = g.m,
                       .n = g.m,
                       .k = g.k,
                       .a = g.a,
                       .lda = lda,
                       .trans_a = g.trans,
                       .b = g.a,
                       .ldb = lda,
                       .trans_b = !g.trans,
                       .c = g.c,
                       .ldc = g.m,
                       .alpha = g.alpha,
                       .beta = g.beta});
}

template void gram(Cuda, const Gram<float>&);
template void gram(Cuda, const Gram<double>&);
template void gram(Cuda, const Gram<BFloat16>&);

}  // namespace tapestry::kernels
