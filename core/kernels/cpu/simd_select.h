// Run-time choice of a kernel's vectorised inner loops.
#pragma once

#include <type_traits>

#include "core/bfloat16.h"

namespace tapestry {

/// Functions<T>, a struct of function pointers, for each floating element type. A kernel file
/// compiles one such table per Highway target and picks the table for this processor.
template <template <class> class Functions>
struct PerType {
  Functions<float> float32;
  Functions<double> float64;
  Functions<BFloat16> bfloat16;

  template <class T>
  const Functions<T>& of() const {
    if constexpr (std::is_same_v<T, float>) {
      return float32;
    } else if constexpr (std::is_same_v<T, double>) {
      return float64;
    } else {
      return bfloat16;
    }
  }
};

}  // namespace tapestry
