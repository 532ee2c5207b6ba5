// Matrix products of the CUDA backend through cuBLASLt: no CUDA header, no CUDA type. Only core's
// CUDA kernels include this; everybody else goes through core/kernels/gemm.h and linear.h. Defined
// in cuda_blas.cpp.
#pragma once

#include "core/kernels/gemm.h"

namespace tapestry::cuda {

/// What a product does with its result before it is stored. Either row_sums or the others.
template <class T>
struct Epilogue {
  const T* bias = nullptr;  ///< (n), added to every row
  bool gelu_tanh = false;   ///< C = gelu_tanh(alpha op(A) op(B) + bias), to the digits of BFloat16
  T* z = nullptr;           ///< receives what gelu_tanh is applied to, (m, ldc)
  T* row_sums = nullptr;    ///< (m): receives the sums of op(A)'s rows
};

/// The product of `args` (m, n, k, batch >= 1; an epilogue wants batch 1 and beta 0, row_sums alone
/// any beta) on the process's stream; the same bits in every run on the same kind of GPU with the
/// same library. False, and nothing is done, where the library has no algorithm: for some epilogues
/// on some sizes and addresses. Throws Error(kRuntime) with the library's words.
template <class T>
bool matmul(const Gemm<T>& args, const Epilogue<T>& epilogue = {});

}  // namespace tapestry::cuda
