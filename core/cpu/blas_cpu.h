// The loaded BLAS: single-threaded OpenBLAS with the kernels that suit this processor. Only core's
// CPU kernels include this; all other code calls core/kernels/matmul/gemm.h.
#pragma once

namespace tapestry {

/// C (m, n) = alpha * op(A) (m, k) * op(B) (k, n) + beta * C, row-major.
template <class T>
struct BlasProduct {
  int m, n, k;
  const T* a;
  int lda;
  bool trans_a;
  const T* b;
  int ldb;
  bool trans_b;
  T* c;
  int ldc;
  double alpha, beta;
};

/// One product on the calling thread; any number of threads may call it at once. Loads the library
/// on the first call. Throws Error(kRuntime) when it cannot be loaded.
template <class T>
void blas_product(const BlasProduct<T>& product);

}  // namespace tapestry
