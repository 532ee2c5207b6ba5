// The division of rows among warps or blocks that hold them in registers, a row in packs. Only .cu
// files include this.
#pragma once

#include <type_traits>

#include "core/kernels/cuda/packs.cuh"

namespace tapestry {

inline constexpr int kRowWarps = 4;         // rows of a block if each has a warp
inline constexpr int kMaxRowThreads = 512;  // of a block with one row

/// The number of packs of a thread that fill 32 registers.
template <class T>
inline constexpr int kMostPacks = 128 / (kPack<T> * static_cast<int>(sizeof(Wider<T>)));

template <bool kWarpRow>
inline constexpr int kMaxThreads = kWarpRow ? kRowWarps* kWarp : kMaxRowThreads;

/// The threads that share a row: a warp, or the block.
template <bool kWarpRow>
struct RowThreads {
  static __device__ int64_t first_row() {
    if constexpr (!kWarpRow) return blockIdx.x;
    return static_cast<int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / kWarp;
  }
  static __device__ int64_t rows_of_grid() {
    return static_cast<int64_t>(gridDim.x) * (kWarpRow ? kRowWarps : 1);
  }
  static __device__ int64_t thread() { return kWarpRow ? threadIdx.x % kWarp : threadIdx.x; }
  static __device__ int64_t threads() { return kWarpRow ? kWarp : blockDim.x; }
  template <class W>
  static __device__ W sum(W value) {
    if constexpr (kWarpRow) return warp_sum(value);
    return block_sum(value);
  }
};

/// 1, 2, 3, 4, 6, 8: three quarters of a power of two, because 768 columns leave a quarter of the
/// lanes without work otherwise.
constexpr int next_packs(int packs) {
  const bool is_power = (packs & (packs - 1)) == 0;
  return packs == 1 ? 2 : is_power ? packs / 2 * 3 : packs / 3 * 4;
}

/// Calls f(kPacks, kWarpRow, threads of a block), the first two as constants, with the fewest packs
/// per thread that hold a row of `packs`: at most kMost if a warp has a row, kMostOfBlock if a
/// block has. Returns false if none do.
template <int kMost, int kMostOfBlock, int kPacks = 1, class F>
bool with_registers(int64_t packs, F f) {
  if (packs <= kWarp * kPacks) {
    f(std::integral_constant<int, kPacks>(), std::true_type(), kRowWarps * kWarp);
    return true;
  }
  if constexpr (kPacks < kMost) {
    return with_registers<kMost, kMostOfBlock, next_packs(kPacks)>(packs, f);
  } else {
    if (packs > kMaxRowThreads * kMostOfBlock) return false;
    const int64_t warps = (packs + kMostOfBlock * kWarp - 1) / (kMostOfBlock * kWarp);
    f(std::integral_constant<int, kMostOfBlock>(), std::false_type(), warps * kWarp);
    return true;
  }
}

}  // namespace tapestry
