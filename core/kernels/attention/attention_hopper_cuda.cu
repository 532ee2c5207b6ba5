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
  TileRing<2> keys, values;
  TileRing<1> queries;
};

/// Which works a block has: every gridDim.x-th, or, with a causal mask, pairs of them, a tile of
/// many keys and one of few, which all have as much work. Neighbours share keys and values in the
/// cache.
struct WorksOfBlock {
  int64_t together, all;

  TAPESTRY_HOST_DEVICE explicit WorksOfBlock(const AttentionShape& shape)
      : together(shape.causal ? 2 : 1),
        all(shape.batch * shape.heads * together * units_of_head(shape)) {}
  TAPESTRY_HOST_DEVICE static int64_t tiles_of_head(const AttentionShape& shape) {
    return (shape.queries + kOwnRows - 1) / kOwnRows;
  }
  TAPESTRY_HOST_DEVICE static int64_t units_of_head(const AttentionShape& shape) {
    return shape.causal ? (tiles_of_head(shape) + 1) / 2 : tiles_of_head(shape);
  }
  __device__ int64_t first() const { return blockIdx.x * together; }
  __device__ int64_t after(int64_t number) const {
    return (number + 1) % together != 0 ? number + 1 : number + 1 - together + gridDim.x * together;
  }
};

/// 128 queries of a head, and the tiles of keys that pass.
struct ForwardWork {
  int64_t b, head, first;
  int64_t count;     ///< of queries; 0 in place of the tile that the middle one of a head lacks
  int64_t last_key;  ///< behind the keys that any of them sees
  int64_t start;     ///< a multiple of kKeys, which dropout's aligned draws need
  int tiles;

  __device__ ForwardWork(const AttentionShape& shape, const WorksOfBlock& works, int64_t number) {
    const int64_t unit = number / works.together, units = works.units_of_head(shape);
    const int64_t last_tile = works.tiles_of_head(shape) - 1;
    int64_t tile = unit % units;
    head = unit / units % shape.heads;
    b = unit / units / shape.heads;
    const bool is_missing = number % works.together == 1 && 2 * tile == last_tile;
    if (shape.causal && number % 2 == 0) tile = last_tile - tile;
    first = tile * kOwnRows;
    count = is_missing ? 0 : shape.queries - first < kOwnRows ? shape.queries - first : kOwnRows;
    const IndexRange keys = VisibleKeys(shape, b).of_queries(first, first + count);
    last_key = keys.last;
    start = keys.first / kKeys * kKeys;
    tiles = count > 0 && keys.last > start
                ? static_cast<int>((keys.last - start + kKeys - 1) / kKeys)
                : 0;
  }
  /// From the last tile down, so that the masked ones of a causal mask come first.
  __device__ int64_t first_key(int tile) const { return start + int64_t{tiles - 1 - tile} * kKeys; }
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

// As many blocks as run at the same time, each with many works: the copies for a work begin while
// the last one is computed. Keys and values pass in tiles of 128. Shared memory:
// queries, two pairs of keys and values, barriers.
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

    if (threadIdx.x == 0) {
      barriers->keys.init(1);
      barriers->values.init(1);
      barriers->queries.init(1);
      barriers_are_ready();
    }
    __syncthreads();

    const WorksOfBlock works(shape);
    const int group = consumer();
    if (group < 0) {
      give_registers_back<24>();
      if (threadIdx.x > 0) return;
      const auto fill = [&](auto& ring, int turn, unsigned char* place, const CUtensorMap& map,
                            int64_t row, int64_t head, int64_t b) {
        ring.wait_until_empty(turn);
        TransferBarrier* const full = ring.full_at(turn);
        arrive_expecting(full, Tile::kBytes);
        Tile::copy_async(place, map, row, head, b, full);
      };
      int turn = 0, turn_of_queries = 0;
      for (int64_t number = works.first(); number < works.all; number = works.after(number)) {
        const ForwardWork work(shape, works, number);
        if (work.tiles == 0) continue;
        const int64_t kv_head = group_of(shape, work.head);
        fill(barriers->queries, turn_of_queries++, queries, maps.q, work.first, work.head, work.b);
        for (int tile = 0; tile < work.tiles; ++tile, ++turn) {
          const int64_t key = work.first_key(tile);
          fill(barriers->keys, turn, keys_at(turn), maps.k, key, kv_head, work.b);
          fill(barriers->values, turn, values_at(turn), maps.v, key, kv_head, work.b);
        }
      }
    } else {
      take_registers<240>();
      const int warp_row = first_row_of_warp();
      const float scale = static_cast<float>(shape.scale * kLog2E);
      float scores[kKeyPieces][4], shrink[2];
      uint32_t weights[kKeyPieces / 2][4];

      const auto multiply_keys = [&](int turn) {
        hold(scores);
        begin_products();
        multiply_rows<Tile, Tile, kSize>(scores, queries, group * kGroupRows, keys_at(turn));
        end_products();
      };

      int begin = 0, turn_of_queries = 0;  // turns of the works before
      for (int64_t number = works.first(); number < works.all; number = works.after(number)) {
        const ForwardWork work(shape, works, number);
        float out[kSize / 8][4] = {};
        SoftmaxRows rows;

        const auto add_values = [&](int tile) {
          barriers->values.wait_until_full(begin + tile);
          const int64_t seen = work.last_key - work.first_key(0);
          if (tile == 0 && seen < kKeys && work.last_key < shape.keys) {
            clear_unseen_rows<Tile>(values_at(begin), static_cast<int>(seen));
          }
          hold(weights);
          hold(out);
          begin_products();
          add_weighted_rows<Tile>(out, weights, values_at(begin + tile));
          end_products();
        };
        const auto weigh = [&](int tile) {
          const int64_t first = work.first + warp_row, first_key = work.first_key(tile);
          const TileMask mask(shape, work.b, first, 16, first_key, kKeys);
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
                weight_row(shape, work.b, work.head, first) * shape.keys + first_key;
#pragma unroll
            for (int n = 0; n < kKeyPieces; ++n) {
              float factors[4];
              piece_factors<false>(dropout, draws + 8 * n, shape.keys, shape.keys % 4 == 0,
                                   factors);
#pragma unroll
              for (int e = 0; e < 4; ++e) scores[n][e] *= factors[e];
            }
          }
        };

        const int tiles = work.tiles;
        if (tiles > 0) {
          if (group == 1 && tiles > 1) arrive_at_group(turn_barrier(0), kConsumers * kWarpgroup);
          barriers->queries.wait_until_full(turn_of_queries);
          barriers->keys.wait_until_full(begin);
          multiply_keys(begin);
          wait_for_products<0>();
          hold(scores);
          barriers->keys.release(begin);
          if (tiles == 1) barriers->queries.release(turn_of_queries);
          weigh(0);
          round_weights(scores, weights);
          for (int tile = 1; tile < tiles; ++tile) {
            const int turn = begin + tile;
            barriers->keys.wait_until_full(turn);
            sync_group(turn_barrier(group), kConsumers * kWarpgroup);
            multiply_keys(turn);
            add_values(tile - 1);
            if (group == 0 || tile + 1 < tiles) {
              arrive_at_group(turn_barrier(1 - group), kConsumers * kWarpgroup);
            }
            wait_for_products<1>();
            hold(scores);
            barriers->keys.release(turn);
            if (tile + 1 == tiles) barriers->queries.release(turn_of_queries);
            weigh(tile);
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
          add_values(tiles - 1);
          wait_for_products<0>();
          hold(out);
          barriers->values.release(begin + tiles - 1);
          begin += tiles;
          ++turn_of_queries;
        }

        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float total = rows.sum[half];
          total += __shfl_xor_sync(0xffffffffu, total, 1);
          total += __shfl_xor_sync(0xffffffffu, total, 2);
          factor[half] = total == 0 ? 0.0f : 1 / total;
          const int64_t row = warp_row + piece_row(2 * half);
          if (args.log_sum_exp != nullptr && lane_in_group() == 0 && row < work.count) {
            args.log_sum_exp[weight_row(shape, work.b, work.head, work.first + row)] =
                rows.max[half] * static_cast<float>(shape.scale) + std::log(total);
          }
        }
        MmaTile<kSize>::deliver_strip(out, factor,
                                      at(args.out, work.b, work.first + warp_row, work.head, kSize),
                                      args.out.row_stride, work.count - warp_row, Write::kSet);
      }
    }
  }
}

template <int kSize, bool kDropout>
void launch_forward(const AttentionShape& shape, const AttentionForward<BFloat16>& args) {
  const auto kernel = attention_hopper_forward<kSize, kDropout>;
  const WorksOfBlock works(shape);
  const int64_t at_once =
      cuda::internal::blocks_at_once(reinterpret_cast<const void*>(kernel), kHopperThreads);
  const ForwardMaps maps = {map_of(shape, args.q, shape.queries, shape.heads, kOwnRows),
                            map_of(shape, args.k, shape.keys, shape.kv_heads, kKeys),
                            map_of(shape, args.v, shape.keys, shape.kv_heads, kKeys)};
  launch({.kernel = "attention (Hopper)",
          .grid = static_cast<unsigned>(std::min(works.all / works.together, at_once)),
          .block = kHopperThreads,
          .shared_bytes = 5 * PanelTile<kKeys, kSize>::kBytes + int64_t{sizeof(ForwardBarriers)}},
         kernel, shape, args, DropoutFactors<BFloat16>(shape.dropout), maps);
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
