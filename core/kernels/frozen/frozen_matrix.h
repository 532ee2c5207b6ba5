// A matrix of weights that does not learn, in a format that takes less memory than its numbers.
// Products widen a few rows or columns at a time; it has no gradient.
#pragma once

#include <cstdint>

#include "core/kernels/packed/packed_matrix.h"
#include "core/kernels/range.h"
#include "core/tensor.h"

namespace tapestry {

/// W (N, K) in bfloat16, int8 or int4, row by row in host memory, rounded as by PackedMatrix. A row
/// takes whole words of 32 bits, little endian:
///   bfloat16  K numbers
///   int8      its scale in float32, then K integers in [-127, 127]
///   int4      for each group of 32 columns 16 bytes, byte i with column i + 8 in its low half and
///             column 16 + i + 8 in its high half; then the scales of the groups in bfloat16
/// Bytes that hold no column are those of zeros. Copies are the same matrix.
class FrozenMatrix {
 public:
  static constexpr int64_t kGroup = 32;  ///< columns

  /// All zeros. Throws Error(kConfig) for float32.
  FrozenMatrix(WeightFormat format, int64_t rows, int64_t cols);

  WeightFormat format() const { return format_; }
  int64_t rows() const { return words_.shape()[0]; }
  int64_t cols() const { return cols_; }
  /// (N, words of a row) int32: all of its memory, for files and for messages between ranks.
  const Tensor& words() const { return words_; }
  static int64_t words_in_row(WeightFormat format, int64_t cols);

  /// Rounds `count` rows of K numbers and keeps them as rows first, first + 1, ...
  void store(int64_t first, int64_t count, const float* w) const;
  /// The numbers of some rows and columns, `stride` between the rows of `out`. T is float, double
  /// or BFloat16, to which numbers are rounded; cols.begin is a multiple of kGroup. On the calling
  /// thread.
  template <class T>
  void read(kernels::Range rows, kernels::Range cols, T* out, int64_t stride) const;

 private:
  WeightFormat format_;
  int64_t cols_, row_bytes_;
  Tensor words_;
};

}  // namespace tapestry
