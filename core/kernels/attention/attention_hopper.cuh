// Attention in bfloat16 on the tensor cores of compute capability 9.0 (FlashAttention-3, Shah et
// al. 2024), for head sizes 64 and 128.
//
// A block has three warpgroups. Group 0, the producer, copies tiles to shared memory; the other
// two, the consumers, own 64 rows each and multiply. A tile of weights stays in registers as in
// attention_mma.cuh: a piece there and a piece here have the same layout.
#pragma once

#include <algorithm>

#include "core/cuda/tensor_map.h"
#include "core/kernels/attention/attention_mma.cuh"
#include "core/kernels/cuda/panel_tile.cuh"

namespace tapestry {

inline constexpr int kWarpgroup = 128;  ///< threads
inline constexpr int kConsumers = 2;
inline constexpr int kHopperThreads = (1 + kConsumers) * kWarpgroup;
inline constexpr int kGroupRows = 64;
inline constexpr int kOwnRows = kConsumers * kGroupRows;  ///< of a block

/// Places that are filled and read in turn; turn i is at place i % kPlaces. Arrivals: of the
/// producer when it has started to fill a place, and of each warp of the consumers that has read
/// it.
template <int kPlaces>
struct TileRing {
  TransferBarrier full[kPlaces], empty[kPlaces];

  __device__ void init(unsigned producers) {
    for (int i = 0; i < kPlaces; ++i) {
      init_barrier(full + i, producers);
      init_barrier(empty + i, kConsumers * kWarpgroup / kWarp);
    }
  }
  __device__ TransferBarrier* full_at(int turn) { return full + turn % kPlaces; }
  __device__ void wait_until_full(int turn) {
    wait_for(full_at(turn), static_cast<unsigned>(turn / kPlaces) % 2);
  }
  __device__ void wait_until_empty(int turn) {
    wait_for(empty + turn % kPlaces, static_cast<unsigned>(turn / kPlaces + 1) % 2);
  }
  /// All lanes of a warp call it.
  __device__ void release(int turn) {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) arrive(empty + turn % kPlaces);
  }
};

/// The consumer that the thread belongs to, the same in all lanes for the compiler, too; -1 in the
/// producer.
__device__ inline int consumer() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0) - 1;
}
/// The first of the thread's warp's 16 rows among the block's own.
__device__ inline int first_row_of_warp() {
  return (static_cast<int>(threadIdx.x) - kWarpgroup) / kWarp * 16;
}

/// Named barriers of a block: a consumer's turn at the tensor cores, and its own threads.
__device__ inline int turn_barrier(int consumer) { return 1 + consumer; }
__device__ inline int own_barrier(int consumer) { return 1 + kConsumers + consumer; }

/// A place whose rows from `row` on nobody may see, for a product that multiplies them by 0: a 0
/// times what may be NaN there. Both consumers do it, each for itself, with the same zeros.
template <class Tile>
__device__ void clear_unseen_rows(unsigned char* tile, int row) {
  const int group = consumer();
  Tile::template clear_rows<kWarpgroup>(tile, row, static_cast<int>(threadIdx.x) % kWarpgroup);
  publish_to_async();
  sync_group(own_barrier(group), kWarpgroup);
}

/// Weights as left operands of the next product: 16 columns at a time.
template <int kPieces>
__device__ void round_weights(const float (&weights)[kPieces][4],
                              uint32_t (&left)[kPieces / 2][4]) {
#pragma unroll
  for (int k = 0; k < kPieces / 2; ++k) {
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const float* const pair = &weights[2 * k + word / 2][word % 2 * 2];
      left[k][word] = pack_bfloat16(pair[0], pair[1]);
    }
  }
}

/// c (=|+=) rows [row, row + 64) of `left` times all rows of `right`, over the head size.
template <class Left, class Right, int kSize, int kPieces>
__device__ void multiply_rows(float (&c)[kPieces][4], const unsigned char* left, int row,
                              const unsigned char* right) {
#pragma unroll
  for (int k = 0; k < kSize / 16; ++k) {
    multiply<false, false>(c, Left::of_rows(left, row, k), Right::of_rows(right, 0, k), k > 0);
  }
}

/// c += weights times the rows of `right`.
template <class Right, int kPieces, int kSteps>
__device__ void add_weighted_rows(float (&c)[kPieces][4], const uint32_t (&weights)[kSteps][4],
                                  const unsigned char* right) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    multiply<true>(c, weights[k], Right::of_columns(right, k), true);
  }
}

/// The map of an operand of `heads` heads, whose tiles have `box_rows` rows.
template <class T>
CUtensorMap map_of(const AttentionShape& shape, const Rows<T>& x, int64_t rows, int64_t heads,
                   int box_rows) {
  cuda::TensorBoxes boxes;
  boxes.data = x.data;
  const int64_t sizes[] = {shape.head_size, rows, heads, shape.batch};
  const int64_t strides[] = {x.row_stride, shape.head_size,
                             x.batch_stride > 0 ? x.batch_stride : 8};
  std::copy_n(sizes, 4, boxes.sizes);
  std::copy_n(strides, 3, boxes.strides);
  boxes.box_columns = 64;
  boxes.box_rows = box_rows;
  return cuda::tensor_map(boxes);
}

}  // namespace tapestry
