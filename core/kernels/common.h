// Shared by all kernels. Conventions: arrays are row-major and 64-byte aligned at the first
// element; N is rows, D columns; index products are int64; sums accumulate in T or wider, in an
// order that only the shape decides.
#pragma once

#include <cstdint>

#include "core/base/philox.h"
#include "core/dispatch.h"

namespace tapestry {

/// How a kernel writes a result, as (=|+=) in comments: kSet overwrites, kAdd adds.
enum class Write { kSet, kAdd };

/// Dropout with inverted scaling: keep with probability 1 - p, divide by 1 - p. No mask is stored:
/// element i is kept if draw i of the stream is at least p * 2^32, on every device, and backward
/// draws again. p == 0 switches dropout off.
struct Dropout {
  float p = 0;
  PhiloxKey key;
};

}  // namespace tapestry
