// What every kernel shares. Conventions: pointers are row-major and 64-byte aligned at the first
// element; N is rows, D columns; index products are int64; sums accumulate in T or wider, in an
// order fixed by the shape alone.
#pragma once

#include <cstdint>

#include "core/dispatch.h"
#include "core/philox.h"

namespace tapestry {

/// How a backward kernel delivers its result: BLAS's beta made explicit.
enum class Write { kSet, kAdd };

/// Dropout with inverted scaling: keep with probability 1 - p, divide by 1 - p. No mask is stored:
/// element i of the tensor is kept when draw i of the stream is not below p * 2^32, on every
/// device, and backward draws it again. p == 0 switches it off.
struct Dropout {
  float p = 0;
  PhiloxKey key;
};

}  // namespace tapestry
