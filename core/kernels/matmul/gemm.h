// Matrix products: on the CPU single-threaded OpenBLAS on tiles that only the shape decides
// (bfloat16: cpu/rounded_product.h), on a GPU cuBLASLt.
#pragma once

#include "core/kernels/common.h"
#include "core/precision.h"

namespace tapestry {

/// C (m, n) = alpha * op(A) (m, k) * op(B) (k, n) + beta * C, row-major with leading dimensions;
/// op transposes when the flag is set (A is then stored (k, m)). The operands of the `batch`
/// products lie the given element strides apart (0 repeats an operand).
template <class T>
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;
  int64_t lda = 0;
  bool trans_a = false;
  const T* b = nullptr;
  int64_t ldb = 0;
  bool trans_b = false;
  T* c = nullptr;
  int64_t ldc = 0;
  double alpha = 1;
  double beta = 0;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  Precision precision = Precision::kFull;

  bool operator==(const Gemm&) const = default;
};

namespace kernels {

/// Runs on all threads; bit-identical for any number of them. Throws Error if a size is negative or
/// too large or a leading dimension too small.
template <class T>
void gemm(Cpu, const Gemm<T>& args);
template <class T>
void gemm(Cuda, const Gemm<T>& args);

/// One product on the calling thread, for kernels that tile by themselves. batch must be 1.
template <class T>
void gemm_tile(Cpu, const Gemm<T>& args);

}  // namespace kernels

}  // namespace tapestry
