// A factor of a product on the CPU, where it lies in memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/bfloat16.h"

namespace tapestry::kernels {

/// Element (i, k): i counts rows of the left factor, columns of the right one. Of float or
/// BFloat16: one pointer is not null.
struct Factor {
  const float* wide = nullptr;
  const BFloat16* narrow = nullptr;
  int64_t stride = 0;    ///< between rows of the stored matrix
  bool along_k = false;  ///< k is the contiguous index: (i, k) is at i * stride + k

  Factor() = default;
  Factor(const float* data, int64_t row_stride, bool contiguous_k)
      : wide(data), stride(row_stride), along_k(contiguous_k) {}
  Factor(const BFloat16* data, int64_t row_stride, bool contiguous_k)
      : narrow(data), stride(row_stride), along_k(contiguous_k) {}

  template <class T>
  const T* data() const {
    if constexpr (std::is_same_v<T, float>) {
      return wide;
    } else {
      return narrow;
    }
  }
  int64_t index(int64_t i, int64_t k) const { return along_k ? i * stride + k : k * stride + i; }
  /// The factor whose element (0, 0) is (i, k) of this one.
  Factor from(int64_t i, int64_t k) const {
    Factor moved = *this;
    if (wide != nullptr) moved.wide += index(i, k);
    if (narrow != nullptr) moved.narrow += index(i, k);
    return moved;
  }
  /// Calls f(the pointer that is not null).
  template <class F>
  void visit(F&& f) const {
    if (wide != nullptr) {
      f(wide);
    } else {
      f(narrow);
    }
  }
};

}  // namespace tapestry::kernels
