// How an epoch is cut into windows; private to data/batches/.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tapestry {

/// A part of an epoch, in places of its order. Data that is shuffled is planned window by window.
struct EpochWindow {
  int64_t begin, end;
};

/// About equal windows.
inline EpochWindow epoch_window(int64_t rows, int64_t windows, int64_t number) {
  return {rows * number / windows, rows * (number + 1) / windows};
}

inline int64_t windows_of_rows(int64_t rows, int64_t window_rows) {
  return std::max<int64_t>(1, (rows + window_rows - 1) / window_rows);
}

}  // namespace tapestry
