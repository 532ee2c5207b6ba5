// A range of rows or columns of a matrix.
#pragma once

#include <cstdint>

namespace tapestry::kernels {

/// [begin, end)
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

}  // namespace tapestry::kernels
