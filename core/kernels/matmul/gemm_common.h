// Shared by gemm on every device.
#pragma once

#include <algorithm>
#include <limits>

#include "core/kernels/matmul/gemm.h"

namespace tapestry::kernels {

/// BLAS counts in int.
inline constexpr int64_t kBlasLimit = std::numeric_limits<int>::max();

/// Throws Error as gemm.h says.
template <class T>
void check_arguments(const Gemm<T>& g) {
  const int64_t sizes[] = {g.m, g.n, g.k, g.batch};
  check(*std::min_element(std::begin(sizes), std::end(sizes)) >= 0, "gemm",
        "expected sizes >= 0, got m ", g.m, ", n ", g.n, ", k ", g.k, ", batch ", g.batch, '.');
  const int64_t a_cols = g.trans_a ? g.m : g.k;
  const int64_t b_cols = g.trans_b ? g.k : g.n;
  check(g.lda >= a_cols && g.ldb >= b_cols && g.ldc >= g.n, "gemm",
        "expected leading dimensions of at least ", a_cols, ", ", b_cols, ", ", g.n, ", got ",
        g.lda, ", ", g.ldb, ", ", g.ldc, '.');
  const int64_t bounded[] = {g.m, g.n, g.k, g.lda, g.ldb, g.ldc};
  check(*std::max_element(std::begin(bounded), std::end(bounded)) <= kBlasLimit, "gemm",
        "sizes and leading dimensions must be below 2^31, got m ", g.m, ", n ", g.n, ", k ", g.k,
        ", leading dimensions ", g.lda, ", ", g.ldb, ", ", g.ldc, '.');
  check(g.batch <= 1 || g.stride_c != 0 || g.m * g.n == 0, "gemm",
        "expected stride_c other than 0 for a batch of ", g.batch, ", got 0.");
}

/// A batch that shares B and whose A and C have no gaps is one tall product.
template <class T>
Gemm<T> merged(const Gemm<T>& g) {
  const bool tall = g.batch > 1 && !g.trans_a && g.stride_b == 0 && g.stride_a == g.m * g.lda &&
                    g.stride_c == g.m * g.ldc && g.m * g.batch <= kBlasLimit;
  Gemm<T> result = g;
  if (tall) {
    result.m *= g.batch;
    result.batch = 1;
  }
  return result;
}

}  // namespace tapestry::kernels
