// Attention forward in bfloat16 on tensor cores (FlashAttention-2, Dao 2023).
#include "core/kernels/attention/attention_mma.cuh"

namespace tapestry {
namespace {

// A block per (b, head, tile of 64 * kStrips queries); 4 warps of 16 * kStrips queries. Keys and
// values pass in tiles of 64; the next pair is loaded while one is in use. Shared memory: queries,
// then two pairs.
//
// On an H100: with two strips each word of a key or value that ldmatrix loads serves two mma, so
// that shared memory (128 bytes per clock) is not the limit. An SM has room for two blocks: at head
// size 64 with 48 KiB and at most 255 registers each, at 128 with 96 KiB.
// One strip is for few queries, whose blocks are short: there should be many at a time.
template <int kSize, int kStrips, bool kDropout>
__global__ void __launch_bounds__(kMmaThreads, kStrips > 1 || kSize > 64 ? 2
                                               : kSize == 64             ? 3
                                                                         : 4)
    attention_mma_forward(AttentionShape shape, AttentionForward<BFloat16> args,
                          DropoutFactors<BFloat16> dropout) {
  using Tile = MmaTile<kSize>;
  constexpr int kRows = 16 * kMmaWarps * kStrips;
  auto* const queries = dynamic_shared<BFloat16>();
  const auto pair = [&](int64_t i) {
    return queries + kRows * kSize + (i % 2) * (2 * kColumns * kSize);
  };

  const TileOfBlock block(shape.heads, (shape.queries + kRows - 1) / kRows, shape.causal);
  const int64_t b = block.b, head = block.head, group = group_of(shape, head);
  const int64_t first = block.tile * kRows;
  const int64_t count = shape.queries - first < kRows ? shape.queries - first : kRows;
  const IndexRange keys = VisibleKeys(shape, b).of_queries(first, first + count);
  // Tiles begin at a multiple of their size, which dropout's aligned draws need.
  const int64_t start = keys.first / kColumns * kColumns;
  const int64_t tiles = (keys.last - start + kColumns - 1) / kColumns;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16 * kStrips;
  const float scale = static_cast<float>(shape.scale * kLog2E);

  const auto copy_pair = [&](int64_t tile) {
    const int64_t from = start + tile * kColumns;
    Tile::template copy_async_rows<kColumns>(pair(tile), at(args.k, b, from, group, kSize),
                                             args.k.row_stride, keys.last - from);
    Tile::template copy_async_rows<kColumns>(pair(tile) + kColumns * kSize,
                                             at(args.v, b, from, group, kSize), args.v.row_stride,
                                             keys.last - from);
  };
  Tile::template copy_async_rows<kRows>(queries, at(args.q, b, first, head, kSize),
                                        args.q.row_stride, count);
  if (tiles > 0) copy_pair(0);

  MmaSums<kStrips, kSize> out = {};
  float max[kStrips][2], sum[kStrips][2];
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    max[s][0] = max[s][1] = -INFINITY;
    sum[s][0] = sum[s][1] = 0;
  }
  wait_for_copies();

  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first_key = start + tile * kColumns;
    wait_for_copies();
    __syncthreads();  // this pair is complete, and the other one has been read
    if (tile + 1 < tiles) copy_pair(tile + 1);
    if (warp_row >= count) continue;  // the warp has no queries
    MmaWeights<kStrips> p;
    Tile::template multiply_rows<kStrips>(queries, warp_row, pair(tile), p);
    const TileMask mask(shape, b, first + warp_row, 16 * kStrips, first_key, kColumns);
#pragma unroll
    for (int s = 0; s < kStrips; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = max[s][half];
#pragma unroll
        for (int n = 0; n < kPieces; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            if (!mask.all && !mask.sees(16 * s + piece_row(e), 8 * n + piece_column(e))) {
              p[s][n][e] = -INFINITY;
            }
            largest = MaxOf()(largest, p[s][n][e]);
          }
        }
        // A row lies in four neighbouring lanes.
        largest = MaxOf()(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
        largest = MaxOf()(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
        const float shift = largest == -INFINITY ? 0.0f : largest * scale;
        const float shrink = fast_exp2(fmaf(max[s][half], scale, -shift));
        max[s][half] = largest;
        float added = 0;
#pragma unroll
        for (int n = 0; n < kPieces; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            p[s][n][e] = fast_exp2(fmaf(p[s][n][e], scale, -shift));
            added += p[s][n][e];
          }
        }
        sum[s][half] = fmaf(sum[s][half], shrink, added);
#pragma unroll
        for (auto& piece : out[s]) {
          piece[2 * half] *= shrink;
          piece[2 * half + 1] *= shrink;
        }
      }
      if constexpr (kDropout) {
        const int64_t draws =
            weight_row(shape, b, head, first + warp_row + 16 * s) * shape.keys + first_key;
#pragma unroll
        for (int n = 0; n < kPieces; ++n) {
          float factors[4];
          piece_factors<false>(dropout, draws + 8 * n, shape.keys, shape.keys % 4 == 0, factors);
#pragma unroll
          for (int e = 0; e < 4; ++e) p[s][n][e] *= factors[e];
        }
      }
    }
    Tile::template add_weighted_rows<kStrips>(p, pair(tile) + kColumns * kSize, out);
  }

#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    const int64_t strip = warp_row + 16 * s;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum[s][half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      factor[half] = total == 0 ? 0.0f : 1 / total;
      const int64_t row = strip + piece_row(2 * half);
      if (args.log_sum_exp != nullptr && lane_in_group() == 0 && row < count) {
        args.log_sum_exp[weight_row(shape, b, head, first + row)] =
            max[s][half] * static_cast<float>(shape.scale) + std::log(total);
      }
    }
    Tile::deliver_strip(out[s], factor, at(args.out, b, first + strip, head, kSize),
                        args.out.row_stride, count - strip, Write::kSet);
  }
}

template <int kSize, int kStrips, bool kDropout>
void launch_forward(const AttentionShape& shape, const AttentionForward<BFloat16>& args) {
  constexpr int kRows = 16 * kMmaWarps * kStrips;
  const int64_t tiles = (shape.queries + kRows - 1) / kRows;
  launch({.kernel = "attention (tensor cores)",
          .grid = static_cast<unsigned>(shape.batch * shape.heads * tiles),
          .block = kMmaThreads,
          .shared_bytes = MmaTile<kSize>::bytes(kRows + 4 * kColumns)},
         attention_mma_forward<kSize, kStrips, kDropout>, shape, args,
         DropoutFactors<BFloat16>(shape.dropout));
}

}  // namespace

void attention_mma(const AttentionShape& shape, const AttentionForward<BFloat16>& args) {
  with_mma_size(shape.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    const bool few = shape.queries <= 64;  // half of a tile of 128 would be idle
    if (shape.dropout.p > 0) {
      few ? launch_forward<kSize, 1, true>(shape, args)
          : launch_forward<kSize, 2, true>(shape, args);
    } else {
      few ? launch_forward<kSize, 1, false>(shape, args)
          : launch_forward<kSize, 2, false>(shape, args);
    }
  });
}

}  // namespace tapestry
