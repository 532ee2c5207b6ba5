// How kernels cut their work into tiles. Only the shape decides.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/parallel.h"

namespace tapestry {

/// Elements that one tile of a memory-bound kernel handles.
inline constexpr int64_t kTileElements = 16384;

/// Covers a (rows, cols) array with tiles of about kTileElements: calls f(row, col_begin, col_end)
/// for each row, or piece of a long row.
template <class F>
void parallel_rows(int64_t rows, int64_t cols, F&& f) {
  if (rows == 0 || cols == 0) return;
  if (cols > kTileElements) {
    const int64_t pieces = (cols + kTileElements - 1) / kTileElements;
    parallel_for(rows * pieces, [&](int64_t tile) {
      const int64_t begin = tile % pieces * kTileElements;
      f(tile / pieces, begin, std::min(begin + kTileElements, cols));
    });
    return;
  }
  parallel_ranges(rows, kTileElements / cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row, int64_t{0}, cols);
  });
}

}  // namespace tapestry
