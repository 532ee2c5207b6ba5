// Attention backward in bfloat16 on tensor cores for at most 64 queries and keys, as sentences
// have. A block has all queries and keys of a key/value head, so that each product is computed
// once: five in place of the seven of attention_mma_backward_cuda.cu.
#include "core/kernels/attention/attention_mma.cuh"
#include "core/kernels/cuda/packs.cuh"

namespace tapestry {
namespace {

constexpr int kRows = 16 * kMmaWarps;  // of queries, and of keys
static_assert(kRows == kColumns);

// A tile of weights in shared memory, whose rows are queries.
using WeightTile = MmaTile<kColumns>;

// By a warp: its 16 rows of the weights, rounded, to rows [row, row + 16) of the tile.
__device__ void store_weights(BFloat16* tile, int row, const float (&weights)[kPieces][4]) {
#pragma unroll
  for (int n = 0; n < kPieces; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      BFloat16* const to = tile + WeightTile::offset(row + piece_row(2 * half), n);
      *reinterpret_cast<uint32_t*>(to + piece_column(0)) =
          pack_bfloat16(weights[n][2 * half], weights[n][2 * half + 1]);
    }
  }
}

// sums += the transposed weights' rows [key, key + 16) times the tile's rows, of which there are
// `count`.
template <int kSize>
__device__ void add_transposed(const BFloat16* weights, int key, const BFloat16* rows, int count,
                               float (&sums)[kSize / 8][4]) {
  using Tile = MmaTile<kSize>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, matrix = lane / 8;
  for (int row = 0; row < count; row += 16) {
    uint32_t left[4];
    warp_load_transposed(
        left, weights + WeightTile::offset(row + matrix / 2 * 8 + lane % 8, key / 8 + matrix % 2));
#pragma unroll
    for (int c = 0; c < Tile::kChunks; c += 2) {
      uint32_t right[4];
      warp_load_transposed(right, rows + Tile::offset(row + lane % 16, c + lane / 16));
      warp_mma(sums[c], left, right[0], right[1]);
      warp_mma(sums[c + 1], left, right[2], right[3]);
    }
  }
}

template <int kSize, bool kDropout>
__global__ void __launch_bounds__(kMmaThreads, 2)
    attention_short_gradients(AttentionShape shape, AttentionBackward<BFloat16> args,
                              DropoutFactors<BFloat16> dropout) {
  using Tile = MmaTile<kSize>;
  constexpr int kTile = kRows * kSize;
  auto* const keys = dynamic_shared<BFloat16>();
  BFloat16 *const values = keys + kTile, *const queries = values + kTile;
  BFloat16 *const d_out = queries + kTile, *const weights = d_out + kTile;
  BFloat16* const slopes = weights + kRows * kColumns;

  const int64_t b = blockIdx.x / shape.kv_heads, kv_head = blockIdx.x % shape.kv_heads;
  const int64_t heads = shape.heads / shape.kv_heads, length = VisibleKeys(shape, b).length();
  const int query_count = static_cast<int>(shape.queries);
  const int key_count = static_cast<int>(shape.keys);
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const float scale = static_cast<float>(shape.scale * kLog2E);

  Tile::template copy_async_rows<kRows>(keys, at(args.k, b, 0, kv_head, kSize), args.k.row_stride,
                                        length);
  Tile::template copy_async_rows<kRows>(values, at(args.v, b, 0, kv_head, kSize), args.v.row_stride,
                                        length);
  const auto give = [&](const Rows<BFloat16>& y, const float(&sums)[kSize / 8][4], float factor,
                        int64_t head, int count, Write write) {
    if (y.data == nullptr) return;
    const float factors[2] = {factor, factor};
    Tile::deliver_strip(sums, factors, at(y, b, warp_row, head, kSize), y.row_stride,
                        count - warp_row, write);
  };

  float dk[kSize / 8][4] = {}, dv[kSize / 8][4] = {};
  for (int64_t head = kv_head * heads; head < (kv_head + 1) * heads; ++head) {
    __syncthreads();  // the last head's tiles have been read
    Tile::template copy_async_rows<kRows>(queries, at(args.q, b, 0, head, kSize), args.q.row_stride,
                                          query_count);
    Tile::template copy_async_rows<kRows>(d_out, at(args.d_out, b, 0, head, kSize),
                                          args.d_out.row_stride, query_count);
    // Of the lane's two rows.
    float shift[2] = {}, delta[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + piece_row(2 * half);
      if (row < query_count) {
        shift[half] = shift_of(args.log_sum_exp[weight_row(shape, b, head, row)]);
        const BFloat16* const out = at(args.out, b, row, head, kSize);
        const BFloat16* const slope = at(args.d_out, b, row, head, kSize);
#pragma unroll
        for (int c = lane_in_group(); c < Tile::kChunks; c += 4) {
          float x[8], dx[8];
          load_pack(out + 8 * c, x);
          load_pack(slope + 8 * c, dx);
#pragma unroll
          for (int i = 0; i < 8; ++i) delta[half] += x[i] * dx[i];
        }
      }
      delta[half] += __shfl_xor_sync(0xffffffffu, delta[half], 1);
      delta[half] += __shfl_xor_sync(0xffffffffu, delta[half], 2);
    }
    wait_for_copies();
    __syncthreads();

    if (warp_row < query_count) {
      MmaWeights<1> p, ds;
      Tile::template multiply_rows<1>(queries, warp_row, keys, p);
      Tile::template multiply_rows<1>(d_out, warp_row, values, ds);
      const TileMask mask(shape, b, warp_row, 16, 0, kColumns);
      const int64_t draws = weight_row(shape, b, head, warp_row) * shape.keys;
      GradientWeights<false>::weigh(p[0], mask, scale, shift);
      GradientWeights<false>::differentiate<kDropout>(p[0], ds[0], mask, &dropout, draws,
                                                      shape.keys, delta);
      store_weights(weights, warp_row, p[0]);
      store_weights(slopes, warp_row, ds[0]);
      MmaSums<1, kSize> dq = {};
      Tile::template add_weighted_rows<1>(ds, keys, dq);
      give(args.dq, dq[0], static_cast<float>(shape.scale), head, query_count, args.dq_write);
    }
    __syncthreads();  // all weights are there
    if (warp_row < key_count) {
      add_transposed<kSize>(weights, warp_row, d_out, query_count, dv);
      add_transposed<kSize>(slopes, warp_row, queries, query_count, dk);
    }
  }
  give(args.dk, dk, static_cast<float>(shape.scale), kv_head, key_count, args.dk_write);
  give(args.dv, dv, 1, kv_head, key_count, args.dv_write);
}

template <int kSize, bool kDropout>
void launch_gradients(const AttentionShape& shape, const AttentionBackward<BFloat16>& args) {
  launch({.kernel = "attention_backward (short)",
          .grid = static_cast<unsigned>(shape.batch * shape.kv_heads),
          .block = kMmaThreads,
          .shared_bytes = MmaTile<kSize>::bytes(4 * kRows) + WeightTile::bytes(2 * kRows)},
         attention_short_gradients<kSize, kDropout>, shape, args,
         DropoutFactors<BFloat16>(shape.dropout));
}

}  // namespace

bool attention_backward_short(const AttentionShape& shape,
                              const AttentionBackward<BFloat16>& args) {
  // The sums of larger heads do not fit into the registers.
  const bool fits = shape.queries <= kRows && shape.keys <= kRows && shape.keys > 0 &&
                    shape.head_size <= 64 && can_pack_rows(args.out, shape.head_size);
  if (!fits) return false;
  const bool drops = shape.dropout.p > 0;
  if (shape.head_size == 32) {
    drops ? launch_gradients<32, true>(shape, args) : launch_gradients<32, false>(shape, args);
  } else {
    drops ? launch_gradients<64, true>(shape, args) : launch_gradients<64, false>(shape, args);
  }
  return true;
}

}  // namespace tapestry
