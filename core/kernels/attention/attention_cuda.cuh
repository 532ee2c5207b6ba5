// Shared by the CUDA kernels of attention: the choice of a kernel, and the tiles of the general
// kernels.
//
// The general kernels (any element type, any head size up to 256) work on square tiles of weights:
// kRows queries against kRows keys. Their 256 threads form a square, `ty` down and `tx` across; the
// 16 threads of one ty are half a warp. Thread (ty, tx) owns rows ty * kEach + i of a tile: columns
// tx + 16 * j of the weights, and packs tx + 16 * c of rows of the head size.
#pragma once

#include <algorithm>

#include "core/cuda/hopper.h"
#include "core/kernels/attention/attention.h"
#include "core/kernels/attention/attention_common.h"
#include "core/kernels/cuda/common.cuh"

namespace tapestry {

/// Exponentials are powers of two: the scores are multiplied by scale * log2(e).
inline constexpr double kLog2E = 1.442695040888963407;
inline constexpr double kLn2 = 0.6931471805599453094;

/// Whether all rows of all heads can be read in 16-byte accesses.
template <class T>
bool can_pack_rows(const Rows<T>& rows, int64_t head_size) {
  using Element = std::remove_const_t<T>;
  return can_pack<Element>(rows.row_stride, rows.data) && rows.batch_stride % kPack<Element> == 0 &&
         head_size % kPack<Element> == 0;
}

/// Whether the tensor-core kernels have this head size and all operands are aligned for them. They
/// take the largest score before they scale it, so the scale must be positive. Of the masks they
/// know causal, lengths and window; no softcap, and no sequences end to end.
template <class T, class... Operands>
bool fits_mma(const AttentionShape& shape, const ScoreBias<T>& bias, const Operands&... operands) {
  const int64_t size = shape.head_size;
  return (size == 32 || size == 64 || size == 128) && shape.value_size == size && !bias.any() &&
         shape.prefix_lengths == nullptr && shape.starts == nullptr && shape.scale > 0 &&
         shape.softcap == 0 && (can_pack_rows(operands, size) && ...);
}

/// The tensor-core kernels, for shapes and operands that fits_mma() accepts. `deltas` (B, H, T):
/// rowsum(dO * O).
void attention_mma(const AttentionShape& shape, const AttentionForward<BFloat16>& args);
void attention_backward_mma(const AttentionShape& shape, const AttentionBackward<BFloat16>& args,
                            const float* deltas);

/// The same without deltas, for few queries and keys. Returns false and does nothing if there are
/// more.
bool attention_backward_short(const AttentionShape& shape, const AttentionBackward<BFloat16>& args);

/// Whether the kernels for compute capability 9.0 are to compute what fits_mma() accepts.
template <class... Operands>
bool wants_hopper(const AttentionShape& shape, const Operands&... operands) {
  const cuda::HopperAttention where = cuda::hopper_attention();
  if (where == cuda::HopperAttention::kNowhere) return false;
  // Their tiles have 128 rows: on an H200 those of attention_mma.cuh take 0.75 of the time at 64
  // queries and keys, 1.6 times it at 128.
  constexpr int64_t kShort = 64;
  const bool is_short = std::min(shape.queries, shape.keys) <= kShort;
  if (where == cuda::HopperAttention::kByShape && is_short) return false;
  const auto has_map = [&](const auto& rows) {
    return rows.row_stride > 0 && (rows.batch_stride > 0 || shape.batch == 1);
  };
  return (shape.head_size == 64 || shape.head_size == 128) && (has_map(operands) && ...);
}

/// The kernels for compute capability 9.0, where wants_hopper().
void attention_hopper(const AttentionShape& shape, const AttentionForward<BFloat16>& args);
void attention_backward_hopper(const AttentionShape& shape, const AttentionBackward<BFloat16>& args,
                               const float* deltas);

/// d_relative, by the general kernels' tiles.
template <class T>
void attention_backward_relative(const AttentionShape& shape, const AttentionBackward<T>& args,
                                 const Wider<T>* deltas);

/// The kernel for one query per sequence, the only one that knows key_rows. Returns false and does
/// nothing if there are more queries, dropout, or sequences end to end.
template <class T>
bool attend_one_query(const AttentionShape& shape, const AttentionForward<T>& args);

/// The key/value head that query head `head` reads.
TAPESTRY_HOST_DEVICE inline int64_t group_of(const AttentionShape& shape, int64_t head) {
  return head / (shape.heads / shape.kv_heads);
}

/// A capped score, from the product of a query and a key.
template <class W>
struct CappedScore {
  W tanh;
  /// In powers of two, as scores * log2(e).
  __device__ W power_of_two(const AttentionShape& shape) const {
    return static_cast<W>(shape.softcap * kLog2E) * tanh;
  }
  /// Of the capped score, by the score.
  __device__ W slope() const { return W(1) - tanh * tanh; }
};
template <class W>
__device__ CappedScore<W> capped_score(const AttentionShape& shape, W product) {
  return {std::tanh(product * static_cast<W>(shape.scale / shape.softcap))};
}

/// The term added to the scaled score of query t and key j, -inf for a hidden key.
template <class T>
__device__ Wider<T> bias_at(const AttentionShape& shape, const ScoreBias<T>& bias, int64_t b,
                            int64_t head, int64_t t, int64_t j) {
  using W = Wider<T>;
  const int64_t element = b * bias.batch_stride + head * bias.head_stride + t * bias.row_stride + j;
  if (bias.seen != nullptr && bias.seen[element] == 0) return -static_cast<W>(INFINITY);
  W sum = bias.added != nullptr ? widen(bias.added[element]) : W(0);
  if (bias.relative != nullptr) {
    const RelativeRow row(shape, bias.reach, t, j, 1);
    const int64_t column = row.first < 0 ? 0 : row.first < row.width ? row.first : row.width - 1;
    sum += widen(bias.relative[head * row.width + column]);
  }
  return sum;
}

/// The batch element, head and tile of a block in a one-dimensional grid. With `backwards` the last
/// tiles come first: under a causal mask those have the most work.
struct TileOfBlock {
  int64_t b, head, tile;

  __device__ TileOfBlock(int64_t heads, int64_t tiles, bool backwards) {
    tile = blockIdx.x % tiles;
    if (backwards) tile = tiles - 1 - tile;
    head = blockIdx.x / tiles % heads;
    b = blockIdx.x / tiles / heads;
  }
};

/// The same result in the 16 lanes of half a warp.
template <class W, class Op>
__device__ W half_warp_reduce(W value, Op op) {
  for (int lanes = kWarp / 4; lanes > 0; lanes /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  }
  return value;
}

/// W: the type of arithmetic. kSize: the largest head size that fits.
template <class W, int kSize>
struct AttentionTile {
  static constexpr int kSide = 16;
  static constexpr int kThreads = kSide * kSide;
  /// As many as fit into shared memory with the five tiles of the backward pass.
  static constexpr int kRows = (sizeof(W) == 8 ? 32 : 64) / (kSize > 128 ? 2 : 1);
  static constexpr int kEach = kRows / kSide;
  static constexpr int kN = kPack<W>;
  static constexpr int kPacks = kSize / kN / kSide;  ///< of a row of the head size, per thread
  /// Rows are 16 bytes longer than a multiple of 128, so that eight rows lie in different banks.
  static constexpr int kStride = kSize + kN;
  static constexpr int kWeightStride = kRows + kN;
  static constexpr int64_t kBytes = int64_t{kRows} * kStride * sizeof(W);
  static constexpr int64_t kWeightBytes = int64_t{kRows} * kWeightStride * sizeof(W);

  using Packed = Pack<W, kN>;
  using Weights = W[kEach][kEach];     ///< a thread's share of a tile of weights
  using Sums = Packed[kEach][kPacks];  ///< a thread's share of kRows rows of the head size

  __device__ static int tx() { return static_cast<int>(threadIdx.x) % kSide; }
  __device__ static int ty() { return static_cast<int>(threadIdx.x) / kSide; }
  __device__ static int row(int i) { return ty() * kEach + i; }
  __device__ static int column(int j) { return tx() + kSide * j; }
  /// The first of the kN columns of a thread's pack c.
  __device__ static int first_of_pack(int c) { return (tx() + kSide * c) * kN; }

  __device__ static Packed& pack_at(W* p) { return *reinterpret_cast<Packed*>(p); }

  /// tile = `count` rows of `size` elements; zeros up to kRows rows and a whole number of packs.
  template <class T>
  __device__ static void load(W* tile, const T* rows, int64_t stride, int64_t count, int size,
                              bool packed) {
    if (packed) {
      load_by<T, kPack<T>>(tile, rows, stride, count, size);
    } else {
      load_by<T, 1>(tile, rows, stride, count, size);
    }
  }

  /// products[i][j] = the dot product of row(i) of a and row column(j) of b.
  __device__ static void multiply_rows(W* a, W* b, int size, Weights& products) {
    for (auto& row : products) {
      for (W& product : row) product = 0;
    }
    for (int k = 0; k < size; k += kN) {
      Packed left[kEach], right[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        left[i] = pack_at(a + row(i) * kStride + k);
        right[i] = pack_at(b + column(i) * kStride + k);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
#pragma unroll
          for (int n = 0; n < kN; ++n) products[i][j] += left[i].v[n] * right[j].v[n];
        }
      }
    }
  }

  /// Stores a thread's weights to shared memory; only its own half of the warp reads them.
  __device__ static void store_weights(W* tile, const Weights& weights) {
    __syncwarp();  // the last ones have been read
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) tile[row(i) * kWeightStride + column(j)] = weights[i][j];
    }
    __syncwarp();
  }

  /// sums += weights times the first `count` of kRows rows. The packs beyond `size` are not
  /// touched.
  __device__ static void add_weighted_rows(W* weights, W* rows, int64_t count, int size,
                                           Sums& sums) {
    for (int j = 0; j < count; j += kN) {
      Packed left[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) left[i] = pack_at(weights + row(i) * kWeightStride + j);
#pragma unroll
      for (int c = 0; c < kPacks; ++c) {
        if (first_of_pack(c) >= size) break;
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const Packed right = pack_at(rows + (j + n) * kStride + first_of_pack(c));
#pragma unroll
          for (int i = 0; i < kEach; ++i) {
#pragma unroll
            for (int m = 0; m < kN; ++m) sums[i][c].v[m] += left[i].v[n] * right.v[m];
          }
        }
      }
    }
  }

  /// y (=|+=) scale * sums for the first `count` of kRows rows.
  template <class T>
  __device__ static void deliver_rows(const Sums& sums, W scale, T* y, int64_t stride,
                                      int64_t count, int size, Write write) {
    for (int i = 0; i < kEach && row(i) < count; ++i) {
      for (int c = 0; c < kPacks; ++c) {
        for (int n = 0; n < kN && first_of_pack(c) + n < size; ++n) {
          deliver(y + row(i) * stride + first_of_pack(c) + n, scale * sums[i][c].v[n], write);
        }
      }
    }
  }

 private:
  template <class T, int kLoad>
  __device__ static void load_by(W* tile, const T* rows, int64_t stride, int64_t count, int size) {
    const int loads = (size + kN - 1) / kN * kN / kLoad;  // of a row
    for (int i = static_cast<int>(threadIdx.x); i < kRows * loads; i += kThreads) {
      const int row = i / loads, column = i % loads * kLoad;
      Pack<T, kLoad> values = {};
      if (row < count && column < size) {
        values = *reinterpret_cast<const Pack<T, kLoad>*>(rows + row * stride + column);
      }
#pragma unroll
      for (int n = 0; n < kLoad; ++n) tile[row * kStride + column + n] = widen(values.v[n]);
    }
  }
};

/// Calls f(integral constant: the smallest kSize of a general kernel that holds the head size).
template <class F>
void with_head_size(int64_t head_size, F f) {
  check(head_size <= 256, "attention", "the CUDA kernels go up to head size 256, got ", head_size,
        '.');
  if (head_size <= 64) return f(std::integral_constant<int, 64>());
  if (head_size <= 128) return f(std::integral_constant<int, 128>());
  f(std::integral_constant<int, 256>());
}

}  // namespace tapestry
