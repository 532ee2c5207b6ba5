// Attention backward in bfloat16 on the tensor cores of compute capability 9.0: the formulas and
// the division of work are those of attention_mma_backward_cuda.cu.
#include "core/kernels/attention/attention_hopper_backward.cuh"

namespace tapestry {
namespace {

struct GradientMaps {
  CUtensorMap own[2], passing[2];
};

// kOfKeys: a block per (b, key/value head, tile of 128 keys) owns keys and values; queries and
// d_out of all query heads of the group pass. Otherwise: a block per (b, head, tile of 128 queries)
// owns queries and d_out; keys and values pass. With own rows A1, A2 and passing rows B1, B2,
//   scores = A1 B1^T, d_weights = A2 B2^T, sums += dS B1 (dK or dQ), value_sums += P' B2 (dV).
template <int kSize, bool kOfKeys>
struct GradientLayout {
  // As many as leave room in the registers for the sums and for the weights of two tiles.
  static constexpr int kPassing = kSize == 64 && !kOfKeys ? 128 : 64;
  // Whether a turn's sums are added under the next turn's scores: the weights of both turns and the
  // sums have to fit.
  static constexpr bool overlaps() { return kSize == 64 || !kOfKeys; }
  using Own = PanelTile<kOwnRows, kSize>;
  using Passing = PanelTile<kPassing, kSize>;

  struct Barriers {
    TileRing<2> pairs;
    TransferBarrier own;
  };
  using Statistics = QueryStatistics<kPassing>;
  static constexpr int64_t kBytes = 2 * Own::kBytes + 4 * Passing::kBytes +
                                    (kOfKeys ? 2 * sizeof(Statistics) : 0) + sizeof(Barriers);

  unsigned char* const own = tile_memory();
  __device__ unsigned char* own_values() const { return own + Own::kBytes; }
  __device__ unsigned char* rows_at(int turn) const {
    return own + 2 * Own::kBytes + turn % 2 * (2 * Passing::kBytes);
  }
  __device__ unsigned char* values_at(int turn) const { return rows_at(turn) + Passing::kBytes; }
  __device__ Statistics& statistics_at(int turn) const {
    return reinterpret_cast<Statistics*>(behind())[turn % 2];
  }
  __device__ Barriers& barriers() const {
    return *reinterpret_cast<Barriers*>(behind() + (kOfKeys ? 2 * sizeof(Statistics) : 0));
  }

 private:
  __device__ unsigned char* behind() const { return rows_at(0) + 4 * Passing::kBytes; }
};

template <int kSize, bool kOfKeys, bool kDropout>
__global__ void __launch_bounds__(kHopperThreads, 1)
    attention_hopper_gradients(AttentionShape shape, AttentionBackward<BFloat16> args,
                               const float* deltas, DropoutFactors<BFloat16> dropout,
                               const __grid_constant__ GradientMaps maps) {
  if constexpr (kHasWgmma) {
    using Layout = GradientLayout<kSize, kOfKeys>;
    using Own = typename Layout::Own;
    using Passing = typename Layout::Passing;
    constexpr int kPassing = Layout::kPassing, kPieces = kPassing / 8;
    const Layout shared;
    auto& barriers = shared.barriers();

    const int64_t own_rows = kOfKeys ? shape.keys : shape.queries;
    const int64_t own_heads = kOfKeys ? shape.kv_heads : shape.heads;
    const TileOfBlock block(own_heads, (own_rows + kOwnRows - 1) / kOwnRows,
                            !kOfKeys && shape.causal);
    const int64_t b = block.b, first = block.tile * kOwnRows;
    const int64_t count = own_rows - first < kOwnRows ? own_rows - first : kOwnRows;
    const int64_t heads = shape.heads / shape.kv_heads;
    const int64_t kv_head = kOfKeys ? block.head : block.head / heads;

    // The passing tiles: rows [from, to) of each of `heads` heads, or of the single head.
    const VisibleKeys visible(shape, b);
    const IndexRange passing = kOfKeys ? visible.queries_of(first, first + count)
                                       : visible.of_queries(first, first + count);
    const int64_t from = passing.first / kPassing * kPassing, to = passing.last;
    const int tiles = to > from ? static_cast<int>((to - from + kPassing - 1) / kPassing) : 0;
    const int turns = kOfKeys ? static_cast<int>(heads) * tiles : tiles;
    const auto head_of = [&](int turn) {
      return kOfKeys ? kv_head * heads + turn / tiles : block.head;
    };
    const auto row_of = [&](int turn) { return from + int64_t{turn % tiles} * kPassing; };

    if (threadIdx.x == 0) {
      barriers.pairs.init(kOfKeys ? kWarp + 1 : 1);
      init_barrier(&barriers.own, 1);
      barriers_are_ready();
    }
    __syncthreads();

    const int group = consumer();
    if (group < 0) {
      give_registers_back<40>();
      // A warp copies statistics, one thread the rest.
      if (threadIdx.x >= (kOfKeys ? kWarp : 1)) return;
      const int lane = static_cast<int>(threadIdx.x);
      if (lane == 0 && turns > 0) {
        arrive_expecting(&barriers.own, 2 * Own::kBytes);
        Own::copy_async(shared.own, maps.own[0], first, block.head, b, &barriers.own);
        Own::copy_async(shared.own_values(), maps.own[1], first, block.head, b, &barriers.own);
      }
      for (int turn = 0; turn < turns; ++turn) {
        barriers.pairs.wait_until_empty(turn);
        TransferBarrier* const full = barriers.pairs.full_at(turn);
        const int64_t row = row_of(turn), head = head_of(turn);
        if (lane == 0) {
          const int64_t its_head = kOfKeys ? head : kv_head;
          arrive_expecting(full, 2 * Passing::kBytes);
          Passing::copy_async(shared.rows_at(turn), maps.passing[0], row, its_head, b, full);
          Passing::copy_async(shared.values_at(turn), maps.passing[1], row, its_head, b, full);
        }
        if constexpr (kOfKeys) {
          shared.statistics_at(turn).fill(shape, args.log_sum_exp, deltas, b, head, row, to);
          arrive(full);
        }
      }
    } else {
      take_registers<232>();
      const int warp_row = first_row_of_warp();
      const int64_t first_own = first + warp_row;
      const float scale = static_cast<float>(shape.scale * kLog2E);
      float row_shift[2] = {}, row_delta[2] = {};  // of own queries
      if constexpr (!kOfKeys) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int64_t row = warp_row + piece_row(2 * half);
          if (row >= count) continue;
          const int64_t index = weight_row(shape, b, block.head, first + row);
          row_shift[half] = shift_of(args.log_sum_exp[index]);
          row_delta[half] = deltas[index];
        }
      }
      using Weights = GradientWeights<kOfKeys>;
      float weights[kPieces][4], slopes[kPieces][4];  // scores, and their gradients in between
      float sums[kSize / 8][4] = {}, value_sums[kSize / 8][4] = {};
      uint32_t left[kPieces / 2][4], value_left[kPieces / 2][4];

      if (turns > 0) wait_for(&barriers.own, 0);
      for (int turn = 0; turn < turns; ++turn) {
        const int64_t other = row_of(turn), head = head_of(turn);
        barriers.pairs.wait_until_full(turn);
        if (!kOfKeys && turn + 1 == turns && to - other < kPassing && to < shape.keys) {
          clear_unseen_rows<Passing>(shared.rows_at(turn), static_cast<int>(to - other));
        }
        hold(weights);
        begin_products();
        multiply_rows<Own, Passing, kSize>(weights, shared.own, group * kGroupRows,
                                           shared.rows_at(turn));
        end_products();
        hold(slopes);
        begin_products();
        multiply_rows<Own, Passing, kSize>(slopes, shared.own_values(), group * kGroupRows,
                                           shared.values_at(turn));
        end_products();
        // The scores are there, and what the last turn added has been added.
        wait_for_products<1>();
        hold(weights);
        hold(sums);
        hold(left);
        if constexpr (kOfKeys) {
          hold(value_sums);
          hold(value_left);
        }
        if (Layout::overlaps() && turn > 0) barriers.pairs.release(turn - 1);

        const int64_t first_t = kOfKeys ? other : first_own;
        const int64_t first_key = kOfKeys ? first_own : other;
        const TileMask mask(shape, b, first_t, kOfKeys ? kPassing : 16, first_key,
                            kOfKeys ? 16 : kPassing);
        const auto& statistics = shared.statistics_at(turn);  // or not there
        Weights::weigh(weights, mask, scale, kOfKeys ? statistics.shift : row_shift);
        wait_for_products<0>();
        hold(slopes);
        const int64_t first_draw =
            (weight_row(shape, b, head, 0) + first_t) * shape.keys + first_key;
        Weights::template differentiate<kDropout>(weights, slopes, mask, &dropout, first_draw,
                                                  shape.keys,
                                                  kOfKeys ? statistics.delta : row_delta);
        round_weights(slopes, left);
        hold(sums);
        hold(left);
        if constexpr (kOfKeys) {
          round_weights(weights, value_left);
          hold(value_sums);
          hold(value_left);
        }
        begin_products();
        if constexpr (kOfKeys) {
          add_weighted_rows<Passing>(value_sums, value_left, shared.values_at(turn));
        }
        add_weighted_rows<Passing>(sums, left, shared.rows_at(turn));
        end_products();
        if constexpr (!Layout::overlaps()) {
          wait_for_products<0>();
          barriers.pairs.release(turn);
        }
      }
      wait_for_products<0>();
      hold(sums);
      if constexpr (kOfKeys) hold(value_sums);

      const auto give = [&](const Rows<BFloat16>& y, const float(&values)[kSize / 8][4],
                            float factor, Write write) {
        if (y.data == nullptr) return;
        const float factors[2] = {factor, factor};
        MmaTile<kSize>::deliver_strip(values, factors, at(y, b, first_own, block.head, kSize),
                                      y.row_stride, count - warp_row, write);
      };
      const auto d_scale = static_cast<float>(shape.scale);
      if constexpr (kOfKeys) {
        give(args.dk, sums, d_scale, args.dk_write);
        give(args.dv, value_sums, 1, args.dv_write);
      } else {
        give(args.dq, sums, d_scale, args.dq_write);
      }
    }
  }
}

template <int kSize, bool kOfKeys, bool kDropout>
void launch_gradients(const AttentionShape& shape, const AttentionBackward<BFloat16>& args,
                      const float* deltas) {
  using Layout = GradientLayout<kSize, kOfKeys>;
  const int64_t rows = kOfKeys ? shape.keys : shape.queries;
  const int64_t heads = kOfKeys ? shape.kv_heads : shape.heads;
  const auto of_queries = [&](const Rows<const BFloat16>& x, int box_rows) {
    return map_of(shape, x, shape.queries, shape.heads, box_rows);
  };
  const auto of_keys = [&](const Rows<const BFloat16>& x, int box_rows) {
    return map_of(shape, x, shape.keys, shape.kv_heads, box_rows);
  };
  GradientMaps maps;
  maps.own[0] = kOfKeys ? of_keys(args.k, kOwnRows) : of_queries(args.q, kOwnRows);
  maps.own[1] = kOfKeys ? of_keys(args.v, kOwnRows) : of_queries(args.d_out, kOwnRows);
  constexpr int kPassing = Layout::kPassing;
  maps.passing[0] = kOfKeys ? of_queries(args.q, kPassing) : of_keys(args.k, kPassing);
  maps.passing[1] = kOfKeys ? of_queries(args.d_out, kPassing) : of_keys(args.v, kPassing);
  launch({.kernel = kOfKeys ? "attention_backward (keys, Hopper)"
                            : "attention_backward (queries, Hopper)",
          .grid = static_cast<unsigned>(shape.batch * heads * ((rows + kOwnRows - 1) / kOwnRows)),
          .block = kHopperThreads,
          .shared_bytes = Layout::kBytes},
         attention_hopper_gradients<kSize, kOfKeys, kDropout>, shape, args, deltas,
         DropoutFactors<BFloat16>(shape.dropout), maps);
}

template <int kSize, bool kDropout>
void launch_both(const AttentionShape& shape, const AttentionBackward<BFloat16>& args,
                 const float* deltas) {
  if (args.dk.data != nullptr || args.dv.data != nullptr) {
    launch_gradients<kSize, true, kDropout>(shape, args, deltas);
  }
  if (args.dq.data != nullptr) launch_gradients<kSize, false, kDropout>(shape, args, deltas);
}

}  // namespace

void attention_backward_hopper(const AttentionShape& shape, const AttentionBackward<BFloat16>& args,
                               const float* deltas) {
  if (wants_hopper_heads(shape, args)) return attention_backward_hopper_heads(shape, args, deltas);
  const bool drops = shape.dropout.p > 0;
  if (shape.head_size == 64) {
    drops ? launch_both<64, true>(shape, args, deltas)
          : launch_both<64, false>(shape, args, deltas);
  } else {
    drops ? launch_both<128, true>(shape, args, deltas)
          : launch_both<128, false>(shape, args, deltas);
  }
}

}  // namespace tapestry
