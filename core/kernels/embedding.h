// Token embedding, fused with scale, positions and dropout.
#pragma once

#include "core/base/host_device.h"
#include "core/kernels/common.h"

namespace tapestry {

/// ids (rows) int32 in [0, vocab), sequences of `length`.
struct EmbeddingShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t vocab = 0;
  int64_t length = 1;
  int64_t position_offset = 0;
  double scale = 1;
  /// (rows / length): the position of each sequence's first row; null: position_offset is.
  const int32_t* position_offsets = nullptr;
  const int32_t* positions = nullptr;  ///< (rows): of each row, in place of both; may be null

  TAPESTRY_HOST_DEVICE int64_t position(int64_t row) const {
    if (positions != nullptr) return positions[row];
    return row % length +
           (position_offsets == nullptr ? position_offset : position_offsets[row / length]);
  }
};

namespace kernels {

/// y[r] = dropout(scale * table[ids[r]] + positions[position(r)]); `positions` may be null. The
/// caller has checked that ids are in range.
template <class T>
void embedding(Cpu, const EmbeddingShape& shape, const int32_t* ids, const T* table,
               const T* positions, const Dropout& dropout, T* y);

/// d_table[i] (=|+=) the sum of scale * dropout(dy[r]) over the rows r with ids[r] = i, in the
/// order of r; d_positions[p] (=|+=) the sum of dropout(dy[r]) over the rows at position p, in the
/// same order. Rows of a table that do not occur are untouched under kAdd and zero under kSet.
/// d_positions has `position_rows` rows. Either may be null.
template <class T>
void embedding_backward(Cpu, const EmbeddingShape& shape, const int32_t* ids, const T* dy,
                        const Dropout& dropout, T* d_table, Write d_table_write, T* d_positions,
                        int64_t position_rows, Write d_positions_write);

template <class T>
void embedding(Cuda, const EmbeddingShape& shape, const int32_t* ids, const T* table,
               const T* positions, const Dropout& dropout, T* y);
template <class T>
void embedding_backward(Cuda, const EmbeddingShape& shape, const int32_t* ids, const T* dy,
                        const Dropout& dropout, T* d_table, Write d_table_write, T* d_positions,
                        int64_t position_rows, Write d_positions_write);

}  // namespace kernels
}  // namespace tapestry
