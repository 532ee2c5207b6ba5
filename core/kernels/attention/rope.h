// Rotary position embedding (Su et al. 2021): pair i of a head at position p is rotated by the
// angle p * theta_i, theta_i = base^(-2i / K), so that q_m . k_n depends only on m - n.
#pragma once

#include "core/base/host_device.h"
#include "core/kernels/common.h"

namespace tapestry {

/// Which elements of a head are pair i; R of its K elements, the first ones, are rotated.
enum class RopeLayout {
  kHalf,         ///< i and i + R/2 (Llama's checkpoints)
  kInterleaved,  ///< 2i and 2i + 1 (the paper)
};

/// Rows of `width` columns. The first heads * head_size of them are heads to rotate, the rest is
/// copied. They are sequences of `length`.
struct RopeShape {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t head_size = 0;  ///< K
  int64_t rotated = 0;    ///< R <= K, even: the rest of a head is copied
  int64_t length = 1;
  int64_t position_offset = 0;
  /// (rows / length): the position of each sequence's first row; null: position_offset is.
  const int32_t* position_offsets = nullptr;
  const int32_t* positions = nullptr;  ///< (rows): of each row, in place of both; may be null
  RopeLayout layout = RopeLayout::kHalf;
  bool inverse = false;  ///< rotates back, as backward does

  TAPESTRY_HOST_DEVICE int64_t position(int64_t row) const {
    if (positions != nullptr) return positions[row];
    return row % length +
           (position_offsets == nullptr ? position_offset : position_offsets[row / length]);
  }
};

namespace kernels {

/// y (=|+=) the rotated x. `table` (positions, R): R/2 cosines, then R/2 sines of each position.
/// y may be x under kSet.
template <class T>
void rope(Cpu, const RopeShape& shape, const T* x, const Wider<T>* table, T* y, Write write);
template <class T>
void rope(Cuda, const RopeShape& shape, const T* x, const Wider<T>* table, T* y, Write write);

}  // namespace kernels
}  // namespace tapestry
