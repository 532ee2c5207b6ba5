#include "tests/core/cuda/warpgroup_kernels.h"

#include "core/cuda/tensor_map.h"
#include "core/kernels/cuda/panel_tile.cuh"

namespace tapestry {
namespace {

constexpr int kSummed = 64, kGroup = 128;

template <int kColumns, int kWidth, bool kTransposedA, bool kTransposedB, bool kFromRegisters>
__global__ void __launch_bounds__(kGroup, 1)
    one_product(const __grid_constant__ CUtensorMap a_map,
                const __grid_constant__ CUtensorMap b_map, const BFloat16* a, float* c, bool add) {
  if constexpr (kHasWgmma) {
    using TileA = PanelTile<64, 64, kWidth>;
    using TileB =
        PanelTile<kTransposedB ? kSummed : kColumns, kTransposedB ? kColumns : kSummed, kWidth>;
    unsigned char* const tile_a = tile_memory();
    unsigned char* const tile_b = tile_a + TileA::kBytes;
    auto* const full = reinterpret_cast<TransferBarrier*>(tile_b + TileB::kBytes);
    if (threadIdx.x == 0) {
      init_barrier(full, 1);
      barriers_are_ready();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      arrive_expecting(full, TileA::kBytes + TileB::kBytes);
      TileA::copy_async(tile_a, a_map, 0, kTestHead, kTestBatch, full);
      TileB::copy_async(tile_b, b_map, 0, kTestHead, kTestBatch, full);
    }
    const int warp = static_cast<int>(threadIdx.x) / kWarp,
              lane = static_cast<int>(threadIdx.x) % kWarp;
    const int g = lane / 4, q = lane % 4;
    const auto place = [&](int piece, int e) {
      return (16 * warp + g + e / 2 * 8) * kColumns + 8 * piece + 2 * q + e % 2;
    };
    float sums[kColumns / 8][4];
    uint32_t left[kSummed / 16][4];
#pragma unroll
    for (int piece = 0; piece < kColumns / 8; ++piece) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[piece][e] = c[place(piece, e)];
    }
#pragma unroll
    for (int k = 0; k < kSummed / 16; ++k) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const BFloat16* const pair =
            a + (16 * warp + g + word % 2 * 8) * kSummed + 16 * k + word / 2 * 8 + 2 * q;
        left[k][word] = pack_bfloat16(static_cast<float>(pair[0]), static_cast<float>(pair[1]));
      }
    }
    wait_for(full, 0);
    hold(sums);
    hold(left);
    begin_products();
#pragma unroll
    for (int k = 0; k < kSummed / 16; ++k) {
      const uint64_t right =
          kTransposedB ? TileB::of_columns(tile_b, k) : TileB::of_rows(tile_b, 0, k);
      const bool adds = add || k > 0;
      if constexpr (kFromRegisters) {
        multiply<kTransposedB>(sums, left[k], right, adds);
      } else {
        multiply<kTransposedA, kTransposedB>(
            sums, kTransposedA ? TileA::of_columns(tile_a, k) : TileA::of_rows(tile_a, 0, k), right,
            adds);
      }
    }
    end_products();
    wait_for_products<0>();
    hold(sums);
#pragma unroll
    for (int piece = 0; piece < kColumns / 8; ++piece) {
#pragma unroll
      for (int e = 0; e < 4; ++e) c[place(piece, e)] = sums[piece][e];
    }
  }
}

CUtensorMap map_of(const BFloat16* x, int64_t rows, int64_t columns, int width, int box_rows) {
  const int64_t row_stride = kTestHeads * columns;
  return cuda::tensor_map({.data = x,
                           .sizes = {columns, rows, kTestHeads, 2},
                           .strides = {row_stride, columns, rows * row_stride},
                           .box_columns = width / 2,
                           .box_rows = box_rows});
}

template <int kColumns, int kWidth, bool kTransposedA, bool kTransposedB, bool kFromRegisters>
void launch_product(const WarpgroupProduct& what, const BFloat16* a, int64_t a_rows,
                    const BFloat16* b, int64_t b_rows, float* c) {
  const int64_t b_columns = kTransposedB ? kColumns : kSummed;
  const int box_rows = kTransposedB ? kSummed : kColumns;
  launch({.kernel = "product of a warpgroup",
          .grid = 1,
          .block = kGroup,
          .shared_bytes = 2 * 64 * 64 + 2 * kSummed * kColumns + 8},
         one_product<kColumns, kWidth, kTransposedA, kTransposedB, kFromRegisters>,
         map_of(a, a_rows, 64, kWidth, 64), map_of(b, b_rows, b_columns, kWidth, box_rows), a, c,
         what.add);
}

template <int kColumns, int kWidth>
void launch_size(const WarpgroupProduct& what, const BFloat16* a, int64_t a_rows, const BFloat16* b,
                 int64_t b_rows, float* c) {
  const auto go = [&](auto ta, auto tb, auto registers) {
    launch_product<kColumns, kWidth, ta.value, tb.value, registers.value>(what, a, a_rows, b,
                                                                          b_rows, c);
  };
  constexpr std::false_type kNo;
  constexpr std::true_type kYes;
  if (what.from_registers) return what.transposed_b ? go(kNo, kYes, kYes) : go(kNo, kNo, kYes);
  if (what.transposed_a) return what.transposed_b ? go(kYes, kYes, kNo) : go(kYes, kNo, kNo);
  what.transposed_b ? go(kNo, kYes, kNo) : go(kNo, kNo, kNo);
}

constexpr int kConsumers = 2;

// Warp 0 copies; warpgroups 1 and 2 take turns: each adds a tile to the sums behind the other.
__global__ void __launch_bounds__((1 + kConsumers) * kGroup, 1)
    sum_in_turns(const __grid_constant__ CUtensorMap map, int tiles, float* sums) {
  if constexpr (kHasWgmma) {
    using Tile = PanelTile<64, 64>;
    unsigned char* const stages = tile_memory();
    auto* const totals = reinterpret_cast<float*>(stages + 2 * Tile::kBytes);
    auto* const full = reinterpret_cast<TransferBarrier*>(totals + 64);
    TransferBarrier* const empty = full + 2;
    if (threadIdx.x == 0) {
      for (int i = 0; i < 2; ++i) {
        init_barrier(full + i, 1);
        init_barrier(empty + i, kConsumers * kGroup);
      }
      barriers_are_ready();
    }
    if (threadIdx.x < 64) totals[threadIdx.x] = 0;
    __syncthreads();
    const int group = static_cast<int>(threadIdx.x) / kGroup;
    if (group == 0) {
      give_registers_back<24>();
      if (threadIdx.x > 0) return;
      for (int i = 0; i < tiles; ++i) {
        wait_for(empty + i % 2, static_cast<unsigned>(i / 2 + 1) % 2);
        arrive_expecting(full + i % 2, Tile::kBytes);
        Tile::copy_async(stages + i % 2 * Tile::kBytes, map, 64 * i, 0, 0, full + i % 2);
      }
    } else {
      take_registers<240>();
      // Number of the barrier on which group 1 or 2 waits for its turn.
      const int mine = group, other = 3 - group;
      if (group == 2) arrive_at_group(1, kConsumers * kGroup);
      for (int i = 0; i < tiles; ++i) {
        wait_for(full + i % 2, static_cast<unsigned>(i / 2) % 2);
        sync_group(mine, kConsumers * kGroup);
        const int column = static_cast<int>(threadIdx.x) % 64;
        // Group 1 has the even rows of a tile, group 2 the odd ones.
        if (static_cast<int>(threadIdx.x) % kGroup < 64) {
          float sum = 0;
          for (int row = group - 1; row < 64; row += 2) {
            const int chunk = column / 8 ^ row % 8;
            sum += static_cast<float>(reinterpret_cast<const BFloat16*>(
                stages + i % 2 * Tile::kBytes)[row * 64 + chunk * 8 + column % 8]);
          }
          totals[column] += sum;
        }
        if (group == 1 || i + 1 < tiles) arrive_at_group(other, kConsumers * kGroup);
        arrive(empty + i % 2);
      }
      sync_group(3, kConsumers * kGroup);
      if (group == 1 && threadIdx.x % kGroup < 64) {
        sums[threadIdx.x % kGroup] = totals[threadIdx.x % kGroup];
      }
    }
  }
}

}  // namespace

void multiply_by_warpgroup(const WarpgroupProduct& what, const BFloat16* a, int64_t a_rows,
                           const BFloat16* b, int64_t b_rows, float* c) {
  const auto with_width = [&](auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    if (what.width == 128) return launch_size<kColumns, 128>(what, a, a_rows, b, b_rows, c);
    if (what.width == 64) return launch_size<kColumns, 64>(what, a, a_rows, b, b_rows, c);
    launch_size<kColumns, 32>(what, a, a_rows, b, b_rows, c);
  };
  what.columns == 64 ? with_width(std::integral_constant<int, 64>())
                     : with_width(std::integral_constant<int, 128>());
}

void sum_columns_in_turns(const BFloat16* x, int64_t rows, float* sums) {
  const CUtensorMap map = cuda::tensor_map({.data = x,
                                            .sizes = {64, rows, 1, 1},
                                            .strides = {64, 64, rows * 64},
                                            .box_columns = 64,
                                            .box_rows = 64});
  launch({.kernel = "sum in turns",
          .grid = 1,
          .block = (1 + kConsumers) * kGroup,
          .shared_bytes = 2 * 64 * 128 + 64 * 4 + 4 * 8},
         sum_in_turns, map, static_cast<int>((rows + 63) / 64), sums);
}

}  // namespace tapestry
