// Attention forward in bfloat16 on the tensor cores of compute capability 9.0.
#include "core/kernels/attention/attention_hopper.cuh"

namespace tapestry {
namespace {

constexpr int kKeys = 128;  // that pass at a time
constexpr int kKeyPieces = kKeys / 8;

struct ForwardMaps {
  CUtensorMap q, k, v;
};

struct ForwardBarriers {
  TileRing keys, values;
  TransferBarrier queries;
};

/// A lane's state of the online softmax for its two rows.
struct SoftmaxRows {
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};

  /// Scores become weights relative to the largest score so far; shrink: what older sums and
  /// outputs are multiplied by.
  __device__ void weigh(float (&scores)[kKeyPieces][4], float scale, float (&shrink)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = max[half];
#pragma unroll
      for (int n = 0; n < kKeyPieces; ++n) {
        largest = MaxOf()(largest, scores[n][2 * half]);
        largest = MaxOf()(largest, scores[n][2 * half + 1]);
      }
      // A row lies in four neighbouring lanes.
      largest = MaxOf()(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = MaxOf()(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const float shift = largest == -INFINITY ? 0.0f : largest * scale;
      shrink[half] = fast_exp2(fmaf(max[half], scale, -shift));
      max[half] = largest;
      float added = 0;
#pragma unroll
      for (int n = 0; n < kKeyPieces; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[n][e] = fast_exp2(fmaf(scores[n][e], scale, -shift));
          added += scores[n][e];
        }
      }
      sum[half] = fmaf(sum[half], shrink[half], added);
    }
  }
};

// A block per (b, head, tile of 128 queries). Keys and values pass in tiles of 128, from the last
// one down, so that the masked tiles of a causal mask come first. Shared memory: queries, two pairs
// of keys and values, barriers.
//
// While a consumer computes the exponentials of a tile, the tensor cores add the last tile's values
// for it, or work for the other consumer: the two take turns at giving them work.
template <int kSize, bool kDropout>
__global__ void __launch_bounds__(kHopperThreads, 1)
    attention_hopper_forward(AttentionShape shape, AttentionForward<BFloat16> args,
                             DropoutFactors<BFloat16> dropout,
                             const __grid_constant__ ForwardMaps maps) {
  if constexpr (kHasWgmma) {
    using Tile = PanelTile<kKeys, kSize>;
    static_assert(kKeys == kOwnRows);
    unsigned char* const queries = tile_memory();
    const auto keys_at = [&](int turn) { return queries + (1 + 2 * (turn % 2)) * Tile::kBytes; };
    const auto values_at = [&](int turn) { return keys_at(turn) + Tile::kBytes; };
    auto* const barriers = reinterpret_cast<ForwardBarriers*>(queries + 5 * Tile::kBytes);

    const TileOfBlock block(shape.heads, (shape.queries + kOwnRows - 1) / kOwnRows, shape.causal);
    const int64_t b = block.b, head = block.head, first = block.tile * kOwnRows;
    const int64_t count = shape.queries - first < kOwnRows ? shape.queries - first : kOwnRows;
    const IndexRange keys = VisibleKeys(shape, b).of_queries(first, first + count);
    // Tiles begin at a multiple of their size, which dropout's aligned draws need.
    const int64_t start = keys.first / kKeys * kKeys;
    const int tiles = static_cast<int>((keys.last - start + kKeys - 1) / kKeys);
    const auto first_key = [&](int turn) { return start + int64_t{tiles - 1 - turn} * kKeys; };

    if (threadIdx.x == 0) {
      barriers->keys.init(1);
      barriers->values.init(1);
      init_barrier(&barriers->queries, 1);
      barriers_are_ready();
    }
    __syncthreads();

    const int group = consumer();
    if (group < 0) {
      give_registers_back<24>();
      if (threadIdx.x > 0 || tiles <= 0) return;
      const int64_t kv_head = group_of(shape, head);
      arrive_expecting(&barriers->queries, Tile::kBytes);
      Tile::copy_async(queries, maps.q, first, head, b, &barriers->queries);
      for (int turn = 0; turn < tiles; ++turn) {
        const auto fill = [&](TileRing& ring, unsigned char* place, const CUtensorMap& map) {
          ring.wait_until_empty(turn);
          TransferBarrier* const full = ring.full + turn % TileRing::kPlaces;
          arrive_expecting(full, Tile::kBytes);
          Tile::copy_async(place, map, first_key(turn), kv_head, b, full);
        };
        fill(barriers->keys, keys_at(turn), maps.k);
        fill(barriers->values, values_at(turn), maps.v);
      }
    } else {
      take_registers<240>();
      const int warp_row = first_row_of_warp();
      const float scale = static_cast<float>(shape.scale * kLog2E);
      float scores[kKeyPieces][4], out[kSize / 8][4] = {}, shrink[2];
      uint32_t weights[kKeyPieces / 2][4];
      SoftmaxRows rows;

      const auto multiply_keys = [&](int turn) {
        hold(scores);
        begin_products();
        multiply_rows<Tile, Tile, kSize>(scores, queries, group * kGroupRows, keys_at(turn));
        end_products();
      };
      const auto add_values = [&](int turn) {
        hold(weights);
        hold(out);
        begin_products();
        add_weighted_rows<Tile>(out, weights, values_at(turn));
        end_products();
      };
      const auto wait_for_values = [&](int turn) {
        barriers->values.wait_until_full(turn);
        if (turn > 0) return;
        const int64_t seen = keys.last - first_key(0);
        if (seen < kKeys && keys.last < shape.keys) {
          clear_unseen_rows<Tile>(values_at(0), static_cast<int>(seen));
        }
      };
      const auto weigh = [&](int turn) {
        const TileMask mask(shape, b, first + warp_row, 16, first_key(turn), kKeys);
        if (!mask.all) {
#pragma unroll
          for (int n = 0; n < kKeyPieces; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              if (!mask.sees(piece_row(e), 8 * n + piece_column(e))) scores[n][e] = -INFINITY;
            }
          }
        }
        rows.weigh(scores, scale, shrink);
        if constexpr (kDropout) {
          const int64_t draws =
              weight_row(shape, b, head, first + warp_row) * shape.keys + first_key(turn);
#pragma unroll
          for (int n = 0; n < kKeyPieces; ++n) {
            float factors[4];
            piece_factors<false>(dropout, draws + 8 * n, shape.keys, shape.keys % 4 == 0, factors);
#pragma unroll
            for (int e = 0; e < 4; ++e) scores[n][e] *= factors[e];
          }
        }
      };

      if (tiles > 0) {
        if (group == 1 && tiles > 1) arrive_at_group(turn_barrier(0), kConsumers * kWarpgroup);
        wait_for(&barriers->queries, 0);
        barriers->keys.wait_until_full(0);
        multiply_keys(0);
        wait_for_products<0>();
        hold(scores);
        barriers->keys.release(0);
        weigh(0);
        round_weights(scores, weights);
        for (int turn = 1; turn < tiles; ++turn) {
          barriers->keys.wait_until_full(turn);
          sync_group(turn_barrier(group), kConsumers * kWarpgroup);
          multiply_keys(turn);
          wait_for_values(turn - 1);
          add_values(turn - 1);
          if (group == 0 || turn + 1 < tiles) {
            arrive_at_group(turn_barrier(1 - group), kConsumers * kWarpgroup);
          }
          wait_for_products<1>();
          hold(scores);
          barriers->keys.release(turn);
          weigh(turn);
          wait_for_products<0>();
          hold(out);
          hold(weights);
          barriers->values.release(turn - 1);
#pragma unroll
          for (auto& piece : out) {
            piece[0] *= shrink[0], piece[1] *= shrink[0];
            piece[2] *= shrink[1], piece[3] *= shrink[1];
          }
          round_weights(scores, weights);
        }
        wait_for_values(tiles - 1);
        add_values(tiles - 1);
        wait_for_products<0>();
        hold(out);
      }

      float factor[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float total = rows.sum[half];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        factor[half] = total == 0 ? 0.0f : 1 / total;
        const int64_t row = warp_row + piece_row(2 * half);
        if (args.log_sum_exp != nullptr && lane_in_group() == 0 && row < count) {
          args.log_sum_exp[weight_row(shape, b, head, first + row)] =
              rows.max[half] * static_cast<float>(shape.scale) + std::log(total);
        }
      }
      MmaTile<kSize>::deliver_strip(out, factor, at(args.out, b, first + warp_row, head, kSize),
                                    args.out.row_stride, count - warp_row, Write::kSet);
    }
  }
}

template <int kSize, bool kDropout>
void launch_forward(const AttentionShape& shape, const AttentionForward<BFloat16>& args) {
  const int64_t tiles = (shape.queries + kOwnRows - 1) / kOwnRows;
  const ForwardMaps maps = {map_of(shape, args.q, shape.queries, shape.heads, kOwnRows),
                            map_of(shape, args.k, shape.keys, shape.kv_heads, kKeys),
                            map_of(shape, args.v, shape.keys, shape.kv_heads, kKeys)};
  launch({.kernel = "attention (Hopper)",
          .grid = static_cast<unsigned>(shape.batch * shape.heads * tiles),
          .block = kHopperThreads,
          .shared_bytes = 5 * PanelTile<kKeys, kSize>::kBytes + int64_t{sizeof(ForwardBarriers)}},
         attention_hopper_forward<kSize, kDropout>, shape, args,
         DropoutFactors<BFloat16>(shape.dropout), maps);
}

}  // namespace

void attention_hopper(const AttentionShape& shape, const AttentionForward<BFloat16>& args) {
  const bool drops = shape.dropout.p > 0;
  if (shape.head_size == 64) {
    drops ? launch_forward<64, true>(shape, args) : launch_forward<64, false>(shape, args);
  } else {
    drops ? launch_forward<128, true>(shape, args) : launch_forward<128, false>(shape, args);
  }
}

}  // namespace tapestry
