// A stable sort on the device without atomics, so that every run gives the same order.
// CUB has a radix sort too, but only a CUDA compiler compiles it, and the emulation of the tests
// must run this one on the CPU.
#pragma once

#include "core/kernels/cuda/common.cuh"

namespace tapestry {
namespace radix_sort {

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int kWarps = kBlock / kWarp;
constexpr int kRounds = 8;               // keys per lane
constexpr int kTile = kBlock * kRounds;  // keys per block
static_assert(kDigits == kBlock);        // thread d handles digit d
constexpr int kScanThreads = 1024;
static_assert(kScanThreads == kWarp * kWarp);  // lane w handles warp w

// The arrays of one pass over the keys.
struct Pass {
  const int32_t* keys;
  const int32_t* rows;  // null: row i is at index i
  int64_t count;
  int shift;  // of the digit
  int64_t tiles;
  int64_t* starts;  // (kDigits, tiles)
};

// Calls f(digit, index, rank) for the keys of the calling thread. `rank` is the number of earlier
// keys of its warp with this digit plus the initial mine[digit]. Adds the warp's keys to `mine`,
// which belongs to the warp.
template <class F>
__device__ void each_key(const Pass& pass, int* mine, F f) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned earlier_lanes = (1u << lane) - 1;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t place = static_cast<int64_t>(blockIdx.x) * kTile +
                          (static_cast<int64_t>(warp) * kRounds + round) * kWarp + lane;
    const bool there = place < pass.count;
    const int digit = there ? pass.keys[place] >> pass.shift & (kDigits - 1) : kDigits;
    const unsigned same = __match_any_sync(0xffffffffu, digit);
    const int earlier = __popc(same & earlier_lanes);
    if (there) f(digit, place, mine[digit] + earlier);
    __syncwarp();
    if (there && earlier == 0) mine[digit] += __popc(same);
    __syncwarp();
  }
}

// counts[w][d]: the number of warp w's keys with digit d.
__device__ inline void count_digits(const Pass& pass, int (&counts)[kWarps][kDigits]) {
  for (int w = 0; w < kWarps; ++w) counts[w][threadIdx.x] = 0;
  __syncthreads();
  each_key(pass, counts[threadIdx.x / kWarp], [](int, int64_t, int) {});
  __syncthreads();
}

// starts[d][tile] = the number of the tile's keys with digit d; one block per tile.
static __global__ void count_tile(Pass pass) {
  static __shared__ int counts[kWarps][kDigits];
  count_digits(pass, counts);
  int64_t total = 0;
  for (int w = 0; w < kWarps; ++w) total += counts[w][threadIdx.x];
  pass.starts[threadIdx.x * pass.tiles + blockIdx.x] = total;
}

// The sum of this lane's value and those of the lanes before it.
__device__ inline int64_t warp_scan(int64_t value) {
  const int lane = threadIdx.x % kWarp;
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    const int64_t other = __shfl_up_sync(0xffffffffu, value, static_cast<unsigned>(lanes));
    if (lane >= lanes) value += other;
  }
  return value;
}

// values[i] = the sum of all values before i. One block, which takes kScanThreads neighbours at a
// time.
static __global__ void __launch_bounds__(kScanThreads) exclusive_scan(int64_t* values, int64_t n) {
  static __shared__ int64_t warps[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int64_t before = 0;  // the sum of the values that the block has passed
  for (int64_t first = 0; first < n; first += kScanThreads) {
    const int64_t i = first + threadIdx.x, value = i < n ? values[i] : 0;
    const int64_t sum = warp_scan(value);
    __syncthreads();  // everyone has read the previous sums
    if (lane == kWarp - 1) warps[warp] = sum;
    __syncthreads();
    const int64_t of_warp = warps[lane], of_warps = warp_scan(of_warp);
    const int64_t earlier = __shfl_sync(0xffffffffu, of_warps - of_warp, warp);
    if (i < n) values[i] = before + earlier + sum - value;
    before += __shfl_sync(0xffffffffu, of_warps, kWarp - 1);
  }
}

// Moves the tile's keys to their places by this digit: behind smaller digits, then behind earlier
// tiles, warps and keys of the warp.
static __global__ void place_tile(Pass pass, int32_t* keys, int32_t* rows) {
  static __shared__ int counts[kWarps][kDigits];
  static __shared__ int64_t starts[kDigits];
  count_digits(pass, counts);
  starts[threadIdx.x] = pass.starts[threadIdx.x * pass.tiles + blockIdx.x];
  int before = 0;
  for (int w = 0; w < kWarps; ++w) {
    const int count = counts[w][threadIdx.x];
    counts[w][threadIdx.x] = before;
    before += count;
  }
  __syncthreads();
  each_key(pass, counts[threadIdx.x / kWarp], [&](int digit, int64_t place, int rank) {
    const int64_t to = starts[digit] + rank;
    keys[to] = pass.keys[place];
    rows[to] = pass.rows != nullptr ? pass.rows[place] : static_cast<int32_t>(place);
  });
}

}  // namespace radix_sort

/// Row numbers 0 to count - 1 in the order of their keys in [0, bound), equal keys in the order of
/// the rows. Least significant digit first; reads the keys twice for every 8 bits of the bound.
class SortedRows {
 public:
  SortedRows(const int32_t* keys, int64_t count, int64_t bound)
      : memory_(4 * count), tiles_((count + radix_sort::kTile - 1) / radix_sort::kTile) {
    using namespace radix_sort;
    DeviceScratch<int64_t> starts(kDigits * tiles_);
    int32_t* next = memory_.data();
    keys_ = keys;
    for (int shift = 0; shift == 0 || (bound - 1) >> shift > 0; shift += kDigitBits) {
      const Pass pass = {keys_, rows_, count, shift, tiles_, starts.data()};
      const dim3 grid(static_cast<unsigned>(tiles_));
      launch({.kernel = "sort count", .grid = grid}, count_tile, pass);
      launch({.kernel = "sort scan", .grid = 1, .block = kScanThreads}, exclusive_scan,
             starts.data(), kDigits * tiles_);
      launch({.kernel = "sort place", .grid = grid}, place_tile, pass, next, next + count);
      keys_ = next, rows_ = next + count;
      next = next == memory_.data() ? memory_.data() + 2 * count : memory_.data();
    }
  }
  const int32_t* keys() const { return keys_; }
  const int32_t* rows() const { return rows_; }

 private:
  DeviceScratch<int32_t> memory_;  // keys and rows, twice in turn
  int64_t tiles_;
  const int32_t* keys_ = nullptr;
  const int32_t* rows_ = nullptr;
};

}  // namespace tapestry
