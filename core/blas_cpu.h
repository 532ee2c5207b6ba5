// The loaded BLAS: single-threaded OpenBLAS with the kernels that suit this processor. Only core's
// CPU kernels include this; all other code calls core/kernels/gemm.h.
#pragma once

#include <string>

#include "core/cpu_traits.h"

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

/// The value of OPENBLAS_CORETYPE for a processor; empty where OpenBLAS's own choice is right.
std::string openblas_core_for(const CpuTraits& cpu);

/// True for the OpenBLAS cores that do not use AVX.
bool is_sse_core(const std::string& core);

/// A warning if the kernels of `core` are much slower than `cpu` allows, else empty.
/// `forced_by_user`: the user chose `core` with OPENBLAS_CORETYPE, and the warning says so.
std::string openblas_core_warning(const std::string& core, const CpuTraits& cpu,
                                  bool forced_by_user);

}  // namespace tapestry
