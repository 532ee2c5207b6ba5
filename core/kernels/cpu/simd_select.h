// Run-time choice of a kernel's vectorised inner loops.
#pragma once

#include <type_traits>

namespace tapestry {

/// Functions<T>, a struct of function pointers, for both element types. A kernel file compiles one
/// such table per Highway target and picks the table for this processor.
template <template <class> class Functions>
struct PerType {
  Functions<float> float32;
  Functions<double> float64;

  template <class T>
  const Functions<T>& of() const {
    if constexpr (std::is_same_v<T, float>) {
      return float32;
    } else {
      return float64;
    }
  }
};

}  // namespace tapestry
