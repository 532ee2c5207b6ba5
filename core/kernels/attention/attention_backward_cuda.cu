// Attention backward on CUDA (Dao et al. 2022, B.2; tiles as in FlashAttention-2, Dao 2023). With
// the weights P = exp(scale q k^T - lse), P' = dropout(P) and delta = rowsum(dO * O):
//   dV = P'^T dO,  dS = P * (dropout(dO V^T) - delta),  dQ = scale dS K,  dK = scale dS^T Q.
// Blocks that own keys sum dK and dV, blocks that own queries sum dQ. Both compute the weights: 7
// products instead of 5, but no atomics, so that two runs give the same bits.
#include "core/kernels/attention/attention_cuda.cuh"

namespace tapestry {
namespace {

// deltas (B, H, T): a warp per row of the head size.
template <class T>
__global__ void attention_deltas(AttentionShape shape, AttentionBackward<T> args,
                                 Wider<T>* deltas) {
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t row = global_thread() / kWarp; row < rows; row += global_threads() / kWarp) {
    // Heads of one (b, t) are neighbours in memory, so they go to neighbouring warps.
    const int64_t head = row % shape.heads, t = row / shape.heads % shape.queries;
    const int64_t b = row / shape.heads / shape.queries;
    const T* const out = at(args.out, b, t, head, shape.head_size);
    const T* const d_out = at(args.d_out, b, t, head, shape.head_size);
    Wider<T> sum = 0;
    for (int64_t i = lane; i < shape.head_size; i += kWarp) sum += widen(out[i]) * widen(d_out[i]);
    sum = warp_sum(sum);
    if (lane == 0) deltas[weight_row(shape, b, head, t)] = sum;
  }
}

// kOfKeys: a block per (b, key/value head, tile of keys) keeps its keys and values in shared
// memory; the queries and d_out of all query heads of the group pass through it tile by tile; the
// sums are dK and dV. Otherwise: a block per (b, head, tile of queries) keeps queries and d_out,
// keys and values pass through, and the sum is dQ. Either way `own` are the rows of the tile of
// weights and `passing` its columns: with own rows A1, A2 and passing rows B1, B2,
//   scores = A1 B1^T, d_weights = A2 B2^T, first += dS B1 (dK or dQ), second += P' B2 (dV).
template <class T, int kSize, bool kOfKeys>
__global__ void __launch_bounds__(256)
    attention_gradients(AttentionShape shape, AttentionBackward<T> args, const Wider<T>* deltas,
                        DropoutFactors<T> dropout, bool packed) {
  using W = Wider<T>;
  using Tile = AttentionTile<W, kSize>;
  constexpr int kRows = Tile::kRows, kEach = Tile::kEach;
  W* const own[] = {dynamic_shared<W>(), dynamic_shared<W>() + kRows * Tile::kStride};
  W* const passing[] = {own[1] + kRows * Tile::kStride, own[1] + 2 * kRows * Tile::kStride};
  W* const weights = passing[1] + kRows * Tile::kStride;

  const int64_t own_rows = kOfKeys ? shape.keys : shape.queries;
  const int64_t own_heads = kOfKeys ? shape.kv_heads : shape.heads;
  const TileOfBlock block(own_heads, (own_rows + kRows - 1) / kRows, !kOfKeys && shape.causal);
  const int64_t b = block.b, first = block.tile * kRows, length = key_length(shape, b);
  const int64_t count = own_rows - first < kRows ? own_rows - first : kRows;
  const int64_t shared = shape.heads / shape.kv_heads;
  const int64_t group = kOfKeys ? block.head : block.head / shared;
  const int size = static_cast<int>(shape.head_size);
  const W scale = static_cast<W>(shape.scale * kLog2E);

  // The passing rows: [from, to) of each head.
  const int64_t from = kOfKeys ? first_viewer(shape, first) / kRows * kRows : 0;
  const int64_t to = !kOfKeys         ? visible_keys(shape, first + count - 1, length)
                     : first < length ? shape.queries
                                      : 0;

  const auto load = [&](W* const(&tiles)[2], bool keys, int64_t head, int64_t row, int64_t rows) {
    const Rows<const T>&x = keys ? args.k : args.q, &y = keys ? args.v : args.d_out;
    Tile::load(tiles[0], at(x, b, row, head, size), x.row_stride, rows, size, packed);
    Tile::load(tiles[1], at(y, b, row, head, size), y.row_stride, rows, size, packed);
  };
  load(own, kOfKeys, block.head, first, count);
  typename Tile::Sums sums = {}, value_sums = {};

  for (int64_t h = 0; h < (kOfKeys ? shared : 1); ++h) {
    const int64_t head = kOfKeys ? group * shared + h : block.head;
    const int64_t head_row = weight_row(shape, b, head, 0);
    for (int64_t other = from; other < to; other += kRows) {
      const int64_t cols = to - other < kRows ? to - other : kRows;
      __syncthreads();  // the last rows have been read
      load(passing, !kOfKeys, kOfKeys ? head : group, other, cols);
      __syncthreads();
      typename Tile::Weights p, ds;
      Tile::multiply_rows(own[0], passing[0], size, p);
      Tile::multiply_rows(own[1], passing[1], size, ds);
      W lse[kEach], delta[kEach];  // of the queries that the thread's rows or columns are
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int64_t t = kOfKeys ? other + Tile::column(e) : first + Tile::row(e);
        const bool there = t < shape.queries;
        lse[e] = there ? args.log_sum_exp[head_row + t] : W(0);
        delta[e] = there ? deltas[head_row + t] : W(0);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          const int64_t row = first + Tile::row(i), column = other + Tile::column(j);
          const int64_t t = kOfKeys ? column : row, key = kOfKeys ? row : column;
          W weight = 0, d_score = 0;
          if (t < shape.queries && key < visible_keys(shape, t, length)) {
            const int e = kOfKeys ? j : i;
            const auto draw = static_cast<uint64_t>((head_row + t) * shape.keys + key);
            const W factor = dropout.at(draw);
            weight = std::exp2(p[i][j] * scale - lse[e] * static_cast<W>(kLog2E));
            d_score = weight * (factor * ds[i][j] - delta[e]);
            weight *= factor;
          }
          p[i][j] = weight;
          ds[i][j] = d_score;
        }
      }
      if (kOfKeys && args.dv.data != nullptr) {
        Tile::store_weights(weights, p);
        Tile::add_weighted_rows(weights, passing[1], cols, size, value_sums);
      }
      if (!kOfKeys || args.dk.data != nullptr) {
        Tile::store_weights(weights, ds);
        Tile::add_weighted_rows(weights, passing[0], cols, size, sums);
      }
    }
  }

  const W d_scale = static_cast<W>(shape.scale);
  const auto give = [&](const Rows<T>& to_rows, const typename Tile::Sums& values, W factor,
                        Write write) {
    if (to_rows.data == nullptr) return;
    Tile::deliver_rows(values, factor, at(to_rows, b, first, block.head, size), to_rows.row_stride,
                       count, size, write);
  };
  if (kOfKeys) {
    give(args.dk, sums, d_scale, args.dk_write);
    give(args.dv, value_sums, W(1), args.dv_write);
  } else {
    give(args.dq, sums, d_scale, args.dq_write);
  }
}

template <class T, int kSize, bool kOfKeys>
void launch_gradients(const AttentionShape& shape, const AttentionBackward<T>& args,
                      const Wider<T>* deltas) {
  using Tile = AttentionTile<Wider<T>, kSize>;
  const int64_t rows = kOfKeys ? shape.keys : shape.queries;
  const int64_t heads = kOfKeys ? shape.kv_heads : shape.heads;
  const int64_t tiles = (rows + Tile::kRows - 1) / Tile::kRows;
  const bool packed =
      can_pack_rows(args.q, shape.head_size) && can_pack_rows(args.k, shape.head_size) &&
      can_pack_rows(args.v, shape.head_size) && can_pack_rows(args.d_out, shape.head_size);
  launch({.kernel = kOfKeys ? "attention_backward (keys)" : "attention_backward (queries)",
          .grid = static_cast<unsigned>(shape.batch * heads * tiles),
          .block = Tile::kThreads,
          .shared_bytes = 4 * Tile::kBytes + Tile::kWeightBytes},
         attention_gradients<T, kSize, kOfKeys>, shape, args, deltas,
         DropoutFactors<T>(shape.dropout), packed);
}

}  // namespace

namespace kernels {

template <class T>
void attention_backward(Cuda, const AttentionShape& shape, const AttentionBackward<T>& args) {
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  DeviceScratch<Wider<T>> deltas(rows);
  launch({.kernel = "attention_backward (deltas)", .grid = blocks_for(rows, kBlock / kWarp)},
         attention_deltas<T>, shape, args, deltas.data());
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (fits_mma(shape, args.q, args.k, args.v, args.d_out, args.dq, args.dk, args.dv)) {
      return attention_backward_mma(shape, args, deltas.data());
    }
  }
  with_head_size(shape.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    if (args.dk.data != nullptr || args.dv.data != nullptr) {
      launch_gradients<T, kSize, true>(shape, args, deltas.data());
    }
    if (args.dq.data != nullptr) launch_gradients<T, kSize, false>(shape, args, deltas.data());
  });
}

template void attention_backward(Cuda, const AttentionShape&, const AttentionBackward<float>&);
template void attention_backward(Cuda, const AttentionShape&, const AttentionBackward<double>&);
template void attention_backward(Cuda, const AttentionShape&, const AttentionBackward<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
