// Attention backward in bfloat16 on the tensor cores of compute capability 9.0, for shapes with
// enough heads to give each a block of its own: five products in place of seven.
#include "core/kernels/attention/attention_hopper_backward.cuh"

namespace tapestry {
namespace {

constexpr int kSize = 64, kTile = 128, kPieces = kTile / 8;
static_assert(kTile == kOwnRows);
constexpr int kConsumerThreads = kConsumers * kWarpgroup;

struct HeadMaps {
  CUtensorMap q, k, v, d_out;
};

// A block per (b, key/value head). Tiles of 128 keys come one after the other, each with the tiles
// of 128 queries that see it, of all query heads of the group. A consumer owns 64 keys:
//   scores = K Q^T, d_weights = V dO^T, dV += P' dO, dK += dS Q,
// and 64 of the passing queries, whose dQ += dS^T K takes what both consumers know of dS. Between
// two tiles of keys, dQ is in `partial`, which no other block reads. So the order of all sums is
// fixed.
struct HeadLayout {
  using Tile = PanelTile<kTile, kSize>;
  using Scores = PanelTile<kTile, kTile>;  // dS: rows are keys
  struct Barriers {
    TileRing<2> own, pairs;
  };
  static constexpr int64_t kBytes =
      8 * Tile::kBytes + 2 * Scores::kBytes + 2 * sizeof(QueryStatistics<kTile>) + sizeof(Barriers);

  unsigned char* const memory = tile_memory();
  __device__ unsigned char* keys_at(int turn) const { return memory + turn % 2 * 2 * Tile::kBytes; }
  __device__ unsigned char* values_at(int turn) const { return keys_at(turn) + Tile::kBytes; }
  __device__ unsigned char* queries_at(int turn) const { return keys_at(turn) + 4 * Tile::kBytes; }
  __device__ unsigned char* d_out_at(int turn) const { return queries_at(turn) + Tile::kBytes; }
  __device__ unsigned char* scores_at(int turn) const {
    return memory + 8 * Tile::kBytes + turn % 2 * Scores::kBytes;
  }
  __device__ QueryStatistics<kTile>& statistics_at(int turn) const {
    return reinterpret_cast<QueryStatistics<kTile>*>(scores_at(0) + 2 * Scores::kBytes)[turn % 2];
  }
  __device__ Barriers& barriers() const {
    return *reinterpret_cast<Barriers*>(&statistics_at(0) + 2);
  }
};

/// [first, last), in registers of 32 bits: those of 64 would be too many.
struct TileRange {
  int first, last;
  __device__ bool empty() const { return last <= first; }
};

/// The tiles of queries that see any key of a tile; none if there is no such tile.
__device__ TileRange query_tiles_of(const AttentionShape& shape, int b, int key_tile) {
  const int64_t first = int64_t{key_tile} * kTile;
  if (first >= shape.keys) return {0, 0};
  const IndexRange queries = VisibleKeys(shape, b).queries_of(
      first, first + kTile < shape.keys ? first + kTile : shape.keys);
  if (queries.last <= queries.first) return {0, 0};
  return {static_cast<int>(queries.first / kTile),
          static_cast<int>((queries.last + kTile - 1) / kTile)};
}

/// A warp's 16 rows of dS to a tile, from row `warp_row` (a key) on: two numbers at a time.
__device__ void store_scores(unsigned char* tile, const uint32_t (&words)[kPieces / 2][4],
                             int warp_row) {
  // A piece's eight rows, and the swizzle in them, are the lane's; only the chunk is not.
  unsigned char* const row = tile + (warp_row + lane_group()) * 128 + lane_in_group() * 4;
  const int permutation = lane_group() * 16;
#pragma unroll
  for (int chunk = 0; chunk < 8; ++chunk) {
    unsigned char* const to = row + (permutation ^ chunk * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int panel = i / 2, below = i % 2;
      const uint32_t word = words[4 * panel + chunk / 2][chunk % 2 * 2 + below];
      *reinterpret_cast<uint32_t*>(to + panel * HeadLayout::Scores::kPanelBytes + below * 1024) =
          word;
    }
  }
}

/// A consumer's sums of one tile of queries: where they are kept between two tiles of keys.
struct PartialSums {
  using Piece = Pack<float, 4>;
  Piece* tile;

  __device__ Piece& at(int piece) const {
    return tile[piece * kConsumerThreads + static_cast<int>(threadIdx.x) - kWarpgroup];
  }
  __device__ void add_to(float (&sums)[kSize / 8][4]) const {
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
      const Piece piece = at(n);
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[n][e] += piece.v[e];
    }
  }
  __device__ void store(const float (&sums)[kSize / 8][4]) const {
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
      at(n) = Piece{{sums[n][0], sums[n][1], sums[n][2], sums[n][3]}};
    }
  }
};

__global__ void __launch_bounds__(kHopperThreads, 1)
    attention_hopper_heads(AttentionShape shape, AttentionBackward<BFloat16> args,
                           const float* deltas, float* partial,
                           const __grid_constant__ HeadMaps maps) {
  if constexpr (kHasWgmma) {
    using Tile = HeadLayout::Tile;
    using Scores = HeadLayout::Scores;
    const HeadLayout shared;
    auto& barriers = shared.barriers();
    const int kv_heads = static_cast<int>(shape.kv_heads);
    const int b = static_cast<int>(blockIdx.x) / kv_heads;
    const int kv_head = static_cast<int>(blockIdx.x) % kv_heads;
    const int heads = static_cast<int>(shape.heads) / kv_heads;
    const int query_tiles = static_cast<int>((shape.queries + kTile - 1) / kTile);
    const int key_tiles = static_cast<int>((shape.keys + kTile - 1) / kTile);

    if (threadIdx.x == 0) {
      barriers.own.init(1);
      barriers.pairs.init(kWarp + 1);
      barriers_are_ready();
    }
    __syncthreads();

    const int group = consumer();
    if (group < 0) {
      give_registers_back<40>();
      if (threadIdx.x >= kWarp) return;
      const bool copies = threadIdx.x == 0;
      int own_turn = 0, turn = 0;
      for (int key_tile = 0; key_tile < key_tiles; ++key_tile) {
        const TileRange tiles = query_tiles_of(shape, b, key_tile);
        if (tiles.empty()) continue;
        if (copies) {
          barriers.own.wait_until_empty(own_turn);
          TransferBarrier* const full = barriers.own.full_at(own_turn);
          arrive_expecting(full, 2 * Tile::kBytes);
          Tile::copy_async(shared.keys_at(own_turn), maps.k, key_tile * kTile, kv_head, b, full);
          Tile::copy_async(shared.values_at(own_turn), maps.v, key_tile * kTile, kv_head, b, full);
        }
        ++own_turn;
        for (int head = kv_head * heads; head < (kv_head + 1) * heads; ++head) {
          for (int tile = tiles.first; tile < tiles.last; ++tile, ++turn) {
            barriers.pairs.wait_until_empty(turn);
            TransferBarrier* const full = barriers.pairs.full_at(turn);
            if (copies) {
              arrive_expecting(full, 2 * Tile::kBytes);
              Tile::copy_async(shared.queries_at(turn), maps.q, tile * kTile, head, b, full);
              Tile::copy_async(shared.d_out_at(turn), maps.d_out, tile * kTile, head, b, full);
            }
            shared.statistics_at(turn).fill(shape, args.log_sum_exp, deltas, b, head, tile * kTile,
                                            shape.queries);
            arrive(full);
          }
        }
      }
    } else {
      take_registers<232>();
      const float scale = static_cast<float>(shape.scale * kLog2E);
      const auto give = [&](const Rows<BFloat16>& y, const float(&sums)[kSize / 8][4], float factor,
                            int64_t head, int64_t first, int64_t rows, Write write) {
        const int warp_row = first_row_of_warp();
        const float factors[2] = {factor, factor};
        MmaTile<kSize>::deliver_strip(sums, factors, at(y, b, first + warp_row, head, kSize),
                                      y.row_stride, rows - first - warp_row, write);
      };
      using Weights = GradientWeights<true>;
      float weights[kPieces][4], slopes[kPieces][4];  // scores, and their gradients in between
      uint32_t left[kPieces / 2][4], value_left[kPieces / 2][4];
      int own_turn = 0, turn = 0;
      // Queries up to the end of the tiles that have seen a key. Ranges never go back, so the sums
      // of those before are in `partial`.
      int seen = 0;
      for (int key_tile = 0; key_tile < key_tiles; ++key_tile) {
        const TileRange tiles = query_tiles_of(shape, b, key_tile);
        const TileRange next = query_tiles_of(shape, b, key_tile + 1);
        const int complete = next.empty() ? query_tiles : next.first;  // those before it
        float dk[kSize / 8][4] = {}, dv[kSize / 8][4] = {};
        if (!tiles.empty()) {
          barriers.own.wait_until_full(own_turn);
          const int64_t length = VisibleKeys(shape, b).length(), first = key_tile * kTile;
          if (length < first + kTile && length < shape.keys) {
            clear_unseen_rows<Tile>(shared.keys_at(own_turn), static_cast<int>(length - first));
          }
        }
        for (int head = kv_head * heads; head < (kv_head + 1) * heads; ++head) {
          for (int tile = tiles.first; tile < tiles.last; ++tile, ++turn) {
            const int first_t = tile * kTile, first_key = key_tile * kTile + first_row_of_warp();
            barriers.pairs.wait_until_full(turn);
            hold(weights);
            begin_products();
            multiply_rows<Tile, Tile, kSize>(weights, shared.keys_at(own_turn), group * kGroupRows,
                                             shared.queries_at(turn));
            end_products();
            hold(slopes);
            begin_products();
            multiply_rows<Tile, Tile, kSize>(slopes, shared.values_at(own_turn), group * kGroupRows,
                                             shared.d_out_at(turn));
            end_products();
            wait_for_products<1>();
            hold(weights);
            const TileMask mask(shape, b, first_t, kTile, first_key, 16);
            const auto& statistics = shared.statistics_at(turn);
            Weights::weigh(weights, mask, scale, statistics.shift);
            wait_for_products<0>();
            hold(slopes);
            Weights::differentiate<false>(weights, slopes, mask, nullptr, 0, shape.keys,
                                          statistics.delta);
            round_weights(slopes, left);
            round_weights(weights, value_left);
            store_scores(shared.scores_at(turn), left, first_row_of_warp());
            publish_to_async();
            hold(dv);
            hold(dk);
            hold(left);
            hold(value_left);
            begin_products();
            add_weighted_rows<Tile>(dv, value_left, shared.d_out_at(turn));
            add_weighted_rows<Tile>(dk, left, shared.queries_at(turn));
            end_products();

            const PartialSums sums{reinterpret_cast<PartialSums::Piece*>(partial) +
                                   ((b * shape.heads + head) * query_tiles + tile) *
                                       (kSize / 8 * kConsumerThreads)};
            float dq[kSize / 8][4];
            // Both consumers have stored their dS; and each has read the last one but one.
            sync_group(turn_barrier(0), kConsumerThreads);
            hold(dq);
            begin_products();
#pragma unroll
            for (int k = 0; k < kTile / 16; ++k) {
              multiply<true, true>(
                  dq, Scores::of_columns(shared.scores_at(turn) + group * Scores::kPanelBytes, k),
                  Tile::of_columns(shared.keys_at(own_turn), k), k > 0);
            }
            end_products();
            wait_for_products<0>();
            hold(dq);
            hold(dk);
            hold(dv);
            hold(left);
            hold(value_left);
            barriers.pairs.release(turn);
            // Not loaded earlier: the registers are full.
            if (tile < seen) sums.add_to(dq);
            if (tile < complete) {
              give(args.dq, dq, static_cast<float>(shape.scale), head, first_t, shape.queries,
                   args.dq_write);
            } else {
              sums.store(dq);
            }
          }
        }
        give(args.dk, dk, static_cast<float>(shape.scale), kv_head, key_tile * kTile, shape.keys,
             args.dk_write);
        give(args.dv, dv, 1, kv_head, key_tile * kTile, shape.keys, args.dv_write);
        if (!tiles.empty()) barriers.own.release(own_turn++);
        seen = tiles.empty() ? seen : tiles.last;
      }
      // Queries that see no key.
      for (int tile = 0; tile < query_tiles; ++tile) {
        const int64_t first = tile * kTile;
        const int64_t last = first + kTile < shape.queries ? first + kTile : shape.queries;
        const IndexRange keys = VisibleKeys(shape, b).of_queries(first, last);
        if (keys.last > keys.first) continue;
        const float none[kSize / 8][4] = {};
        for (int head = kv_head * heads; head < (kv_head + 1) * heads; ++head) {
          give(args.dq, none, 0, head, tile * kTile, shape.queries, args.dq_write);
        }
      }
    }
  }
}

}  // namespace

bool wants_hopper_heads(const AttentionShape& shape, const AttentionBackward<BFloat16>& args) {
  const cuda::HopperAttention where = cuda::hopper_attention();
  // With dropout its registers do not suffice.
  const bool can = shape.head_size == kSize && shape.dropout.p == 0 && args.dq.data != nullptr &&
                   args.dk.data != nullptr && args.dv.data != nullptr;
  if (!can || where == cuda::HopperAttention::kTwoKernels) return false;
  if (where == cuda::HopperAttention::kHeads) return true;
  static const int64_t processors = cuda::internal::blocks_at_once(
      reinterpret_cast<const void*>(attention_hopper_heads), kHopperThreads);
  // The two kernels take 1.05 to 1.4 times as long on an H200, as long as all processors have heads
  // until the end.
  const int64_t heads = shape.batch * shape.kv_heads;
  const int64_t rounds = (heads + processors - 1) / processors;
  return 10 * heads >= 9 * rounds * processors;
}

void attention_backward_hopper_heads(const AttentionShape& shape,
                                     const AttentionBackward<BFloat16>& args, const float* deltas) {
  const auto of_queries = [&](const Rows<const BFloat16>& x) {
    return map_of(shape, x, shape.queries, shape.heads, kTile);
  };
  const auto of_keys = [&](const Rows<const BFloat16>& x) {
    return map_of(shape, x, shape.keys, shape.kv_heads, kTile);
  };
  const HeadMaps maps = {of_queries(args.q), of_keys(args.k), of_keys(args.v),
                         of_queries(args.d_out)};
  const int64_t query_tiles = (shape.queries + kTile - 1) / kTile;
  DeviceScratch<float> partial(shape.batch * shape.heads * query_tiles * kTile * kSize);
  launch({.kernel = "attention_backward (heads, Hopper)",
          .grid = static_cast<unsigned>(shape.batch * shape.kv_heads),
          .block = kHopperThreads,
          .shared_bytes = HeadLayout::kBytes},
         attention_hopper_heads, shape, args, deltas, partial.data(), maps);
}

}  // namespace tapestry
