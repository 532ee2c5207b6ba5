// Attention backward in bfloat16 on tensor cores: the formulas and the division of work are those
// of attention_backward_cuda.cu.
#include "core/kernels/attention/attention_mma.cuh"

namespace tapestry {
namespace {

// kOfKeys: a block per (b, key/value head, tile of 64 keys) owns keys and values; queries and d_out
// of all query heads of the group pass in tiles of 64 rows. Otherwise: a block per (b, head, tile
// of 64 queries) owns queries and d_out; keys and values pass. 4 warps of 16 own rows; with own
// rows A1, A2 and passing rows B1, B2,
//   scores = A1 B1^T, d_weights = A2 B2^T, sums += dS B1 (dK or dQ), value_sums += P' B2 (dV).
// Shared memory: A1, A2, then two pairs B1, B2 and, for passing queries, two pairs of their
// log-sum-exps and deltas.
//
// Each word that ldmatrix loads serves one mma here, so shared memory is the limit. Two strips per
// warp would halve its traffic, but 2 * 2 * kSize / 8 * 4 sums and 2 * 64 weights do not fit into
// 255 registers.
template <int kSize, bool kOfKeys, bool kDropout>
__global__ void __launch_bounds__(kMmaThreads, kSize < 128 && !kOfKeys ? 3 : 2)
    attention_mma_gradients(AttentionShape shape, AttentionBackward<BFloat16> args,
                            const float* deltas, DropoutFactors<BFloat16> dropout) {
  using Tile = MmaTile<kSize>;
  constexpr int kRows = 16 * kMmaWarps, kTile = kRows * kSize;
  static_assert(kRows == kColumns);
  auto* const own = dynamic_shared<BFloat16>();
  const auto pair = [&](int64_t i) { return own + 2 * kTile + (i % 2) * (2 * kTile); };
  const auto statistics = [&](int64_t i) {
    return reinterpret_cast<float*>(own + 6 * kTile) + (i % 2) * (2 * kColumns);
  };

  const int64_t own_rows = kOfKeys ? shape.keys : shape.queries;
  const int64_t own_heads = kOfKeys ? shape.kv_heads : shape.heads;
  const TileOfBlock block(own_heads, (own_rows + kRows - 1) / kRows, !kOfKeys && shape.causal);
  const int64_t b = block.b, first = block.tile * kRows;
  const int64_t count = own_rows - first < kRows ? own_rows - first : kRows;
  const int64_t shared = shape.heads / shape.kv_heads;
  const int64_t group = kOfKeys ? block.head : block.head / shared;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const float scale = static_cast<float>(shape.scale * kLog2E);

  // The passing tiles: rows [from, to) of each of `shared` heads, or of the single head.
  const VisibleKeys visible(shape, b);
  const IndexRange passing =
      kOfKeys ? visible.queries_of(first, first + count) : visible.of_queries(first, first + count);
  const int64_t from = passing.first / kColumns * kColumns, to = passing.last;
  const int64_t tiles = to > from ? (to - from + kColumns - 1) / kColumns : 0;
  const int64_t turns = kOfKeys ? shared * tiles : tiles;
  const auto head_of = [&](int64_t turn) {
    return kOfKeys ? group * shared + turn / tiles : block.head;
  };
  const auto row_of = [&](int64_t turn) { return from + turn % tiles * kColumns; };

  const auto copy_rows = [&](BFloat16* tile, bool keys, int64_t head, int64_t row, int64_t rows) {
    const Rows<const BFloat16>&x = keys ? args.k : args.q, &y = keys ? args.v : args.d_out;
    Tile::template copy_async_rows<kRows>(tile, at(x, b, row, head, kSize), x.row_stride, rows);
    Tile::template copy_async_rows<kRows>(tile + kTile, at(y, b, row, head, kSize), y.row_stride,
                                          rows);
  };
  const auto copy_pair = [&](int64_t turn) {
    const int64_t row = row_of(turn), head = head_of(turn);
    copy_rows(pair(turn), !kOfKeys, kOfKeys ? head : group, row, to - row);
    if constexpr (kOfKeys) {
      static_assert(kMmaThreads == 2 * kColumns);
      const int i = static_cast<int>(threadIdx.x) % kColumns;
      const bool is_delta = threadIdx.x >= kColumns, valid = row + i < to;
      const float* const source = is_delta ? deltas : args.log_sum_exp;
      copy_async<4>(statistics(turn) + (is_delta ? kColumns : 0) + i,
                    source + weight_row(shape, b, head, valid ? row + i : 0), valid);
    }
  };
  copy_rows(own, kOfKeys, block.head, first, count);
  if (turns > 0) copy_pair(0);

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
  MmaSums<1, kSize> sums = {}, value_sums = {};
  wait_for_copies();

  for (int64_t turn = 0; turn < turns; ++turn) {
    const int64_t other = row_of(turn), head = head_of(turn);
    wait_for_copies();
    __syncthreads();  // this pair is complete, and the other one has been read
    if (turn + 1 < turns) copy_pair(turn + 1);
    if (warp_row >= count) continue;  // the warp owns no rows
    MmaWeights<1> p, ds;
    Tile::template multiply_rows<1>(own, warp_row, pair(turn), p);
    Tile::template multiply_rows<1>(own + kTile, warp_row, pair(turn) + kTile, ds);

    const int64_t first_own = first + warp_row;
    const int64_t first_t = kOfKeys ? other : first_own, first_key = kOfKeys ? first_own : other;
    const TileMask mask(shape, b, first_t, kOfKeys ? kColumns : 16, first_key,
                        kOfKeys ? 16 : kColumns);
    const int64_t head_row = weight_row(shape, b, head, 0);
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      float factors[4] = {1, 1, 1, 1};
      if constexpr (kDropout) {
        const int64_t t = first_t + (kOfKeys ? 8 * n : 0), key = first_key + (kOfKeys ? 0 : 8 * n);
        piece_factors<kOfKeys>(dropout, (head_row + t) * shape.keys + key, shape.keys,
                               shape.keys % 4 == 0, factors);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 8 * n + piece_column(e);
        float shift = row_shift[e / 2], delta = row_delta[e / 2];
        if constexpr (kOfKeys) {
          shift = shift_of(statistics(turn)[column]);
          delta = statistics(turn)[kColumns + column];
        }
        float weight = fast_exp2(fmaf(p[0][n][e], scale, -shift));
        if (!mask.all) {
          const int row = piece_row(e);
          if (!(kOfKeys ? mask.sees(column, row) : mask.sees(row, column))) weight = 0;
        }
        p[0][n][e] = weight * factors[e];
        ds[0][n][e] = weight * fmaf(factors[e], ds[0][n][e], -delta);
      }
    }
    if constexpr (kOfKeys) {
      Tile::template add_weighted_rows<1>(p, pair(turn) + kTile, value_sums);
    }
    Tile::template add_weighted_rows<1>(ds, pair(turn), sums);
  }

  const auto give = [&](const Rows<BFloat16>& y, const MmaSums<1, kSize>& values, float factor,
                        Write write) {
    if (y.data == nullptr) return;
    const float factors[2] = {factor, factor};
    Tile::deliver_strip(values[0], factors, at(y, b, first + warp_row, block.head, kSize),
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

template <int kSize, bool kOfKeys, bool kDropout>
void launch_gradients(const AttentionShape& shape, const AttentionBackward<BFloat16>& args,
                      const float* deltas) {
  const int64_t rows = kOfKeys ? shape.keys : shape.queries;
  const int64_t heads = kOfKeys ? shape.kv_heads : shape.heads;
  const int64_t tiles = (rows + kColumns - 1) / kColumns;
  const int64_t statistics = kOfKeys ? 4 * kColumns * static_cast<int64_t>(sizeof(float)) : 0;
  launch({.kernel = kOfKeys ? "attention_backward (keys, tensor cores)"
                            : "attention_backward (queries, tensor cores)",
          .grid = static_cast<unsigned>(shape.batch * heads * tiles),
          .block = kMmaThreads,
          .shared_bytes = MmaTile<kSize>::bytes(6 * kColumns) + statistics},
         attention_mma_gradients<kSize, kOfKeys, kDropout>, shape, args, deltas,
         DropoutFactors<BFloat16>(shape.dropout));
}

}  // namespace

void attention_backward_mma(const AttentionShape& shape, const AttentionBackward<BFloat16>& args,
                            const float* deltas) {
  with_mma_size(shape.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    const bool drops = shape.dropout.p > 0;
    if (args.dk.data != nullptr || args.dv.data != nullptr) {
      drops ? launch_gradients<kSize, true, true>(shape, args, deltas)
            : launch_gradients<kSize, true, false>(shape, args, deltas);
    }
    if (args.dq.data != nullptr) {
      drops ? launch_gradients<kSize, false, true>(shape, args, deltas)
            : launch_gradients<kSize, false, false>(shape, args, deltas);
    }
  });
}

}  // namespace tapestry
