// Tiles of bfloat16 in shared memory as tensor maps fill them and as the tensor cores of sm_90a
// read them. Only .cu files include this.
#pragma once

#include <bulk_copy.h>
#include <warpgroup_mma.h>

#include "core/kernels/cuda/common.cuh"

namespace tapestry {

/// The descriptor of an operand in shared memory (PTX ISA, "Matrix descriptor"): distances in
/// bytes. The address and both distances are multiples of 16. `width`: bytes of a row that the
/// swizzle permutes in chunks of 16: 128, 64 or 32.
__device__ inline uint64_t matrix_descriptor(uint32_t address, uint32_t leading, uint32_t stride,
                                             int width) {
  const uint64_t swizzle = width == 128 ? 1 : width == 64 ? 2 : 3;
  const auto field = [](uint32_t bytes) { return static_cast<uint64_t>((bytes & 0x3ffff) >> 4); };
  return field(address) | field(leading) << 16 | field(stride) << 32 | swizzle << 62;
}

/// kRows x kColumns elements as panels of kWidth / 2 columns, one panel after the other. A row of a
/// panel has kWidth bytes, and the swizzle of that width. A tile begins at a multiple of 1024 bytes
/// of shared memory and is kBytes long.
template <int kRows, int kColumns, int kWidth = 128>
struct PanelTile {
  static constexpr int kPanelColumns = kWidth / 2;
  static constexpr int kPanels = kColumns / kPanelColumns;
  static constexpr int kPanelBytes = kRows * kWidth;
  static constexpr int kBytes = kPanels * kPanelBytes;
  static_assert(kPanels * kPanelColumns == kColumns && kPanelBytes % 1024 == 0);

  /// By one thread: starts to fill the tile with rows [row, row + kRows) of (b, head). The map's
  /// box is (kPanelColumns, kRows, 1, 1). `barrier` counts kBytes.
  __device__ static void copy_async(unsigned char* tile, const CUtensorMap& map, int64_t row,
                                    int64_t head, int64_t b, TransferBarrier* barrier) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      copy_box_async(tile + panel * kPanelBytes, map, panel * kPanelColumns, static_cast<int>(row),
                     static_cast<int>(head), static_cast<int>(b), barrier);
    }
  }

  /// The place of an element within the tile, in bytes.
  __device__ static int offset(int row, int column) {
    const int in_panel = row * kWidth + 2 * (column % kPanelColumns);
    const int permutation = in_panel / 128 % (kWidth / 16);
    return column / kPanelColumns * kPanelBytes + (in_panel ^ permutation * 16);
  }

  /// An operand whose rows (or, on the right, columns) are those of the tile from `row` on, a
  /// multiple of 8; of each the elements [16 k, 16 k + 16).
  __device__ static uint64_t of_rows(const unsigned char* tile, int row, int k) {
    const int panel = 16 * k / kPanelColumns, column = 16 * k % kPanelColumns;
    const int offset = panel * kPanelBytes + row * kWidth + 2 * column;
    return matrix_descriptor(shared_address(tile) + static_cast<uint32_t>(offset), 16, 8 * kWidth,
                             kWidth);
  }

  /// A transposed operand: it sums over the tile's rows [16 k, 16 k + 16), and its rows (or, on the
  /// right, columns) are all columns of the tile.
  __device__ static uint64_t of_columns(const unsigned char* tile, int k) {
    return matrix_descriptor(shared_address(tile) + static_cast<uint32_t>(16 * k * kWidth),
                             kPanelBytes, 8 * kWidth, kWidth);
  }

  /// Zeros in rows [row, kRows), by kThreads threads, of which this is number `thread`.
  template <int kThreads>
  __device__ static void clear_rows(unsigned char* tile, int row, int thread) {
    using Chunk = Pack<uint32_t, 4>;
    for (int panel = 0; panel < kPanels; ++panel) {
      unsigned char* const end = tile + (panel + 1) * kPanelBytes;
      for (int i = row * kWidth + 16 * thread; i < kPanelBytes; i += 16 * kThreads) {
        *reinterpret_cast<Chunk*>(end - kPanelBytes + i) = {};
      }
    }
  }
};

}  // namespace tapestry
