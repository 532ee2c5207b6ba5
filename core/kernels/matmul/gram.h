// Products of a matrix with itself: symmetric, so that the CPU computes about half of them.
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

/// C (m, m) = alpha * op(A) op(A)^T + beta * C, op(A) (m, k); row-major without gaps. With `trans`
/// op transposes: A is then stored (k, m). C must be symmetric unless beta is 0, and is symmetric
/// bit for bit on a CPU.
template <class T>
struct Gram {
  int64_t m = 0, k = 0;
  const T* a = nullptr;
  bool trans = false;
  T* c = nullptr;
  double alpha = 1;
  double beta = 0;
};

namespace kernels {

/// Runs on all threads, like gemm(), with its exceptions.
template <class T>
void gram(Cpu, const Gram<T>& args);
template <class T>
void gram(Cuda, const Gram<T>& args);

}  // namespace kernels
}  // namespace tapestry
