// Attention backward on CUDA (Dao et al. 2022, B.2; tiles as in FlashAttention-2, Dao 2023). With
// the weights P = exp(scale q k^T - lse), P' = dropout(P) and delta = rowsum(dO * O):
//   dV = P'^T dO,  dS = P * (dropout(dO V^T) - delta),  dQ = scale dS K,  dK = scale dS^T Q.
// Blocks that own keys sum dK and dV, blocks that own queries sum dQ. Both compute the weights: 7
// products instead of 5, but no atomics, so that two runs give the same bits.
#include "core/kernels/attention/attention_backward_cuda.cuh"
#include "core/kernels/cuda/packs.cuh"

namespace tapestry {
namespace {

// deltas (B, H, T): a warp for each (b, t), whose heads are neighbours in memory. `lanes` of its
// lanes, a power of two, share a head and read packs of N elements.
template <class T, int N>
__global__ void attention_deltas(AttentionShape shape, AttentionBackward<T> args, int lanes,
                                 Wider<T>* deltas) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, part = lane % lanes;
  for (int64_t row = global_thread() / kWarp; row < shape.batch * shape.queries;
       row += global_threads() / kWarp) {
    const int64_t b = row / shape.queries, t = row - b * shape.queries;
    for (int64_t first = 0; first < shape.heads; first += kWarp / lanes) {
      const int64_t head = first + lane / lanes;
      Wider<T> sum = 0;
      if (head < shape.heads) {
        const T* const out = at(args.out, b, t, head, shape.value_size);
        const T* const d_out = at(args.d_out, b, t, head, shape.value_size);
        for (int64_t i = part * N; i < shape.value_size; i += lanes * N) {
          Wider<T> x[N], dx[N];
          load_pack(out + i, x);
          load_pack(d_out + i, dx);
          for (int j = 0; j < N; ++j) sum += x[j] * dx[j];
        }
      }
      for (int other = lanes / 2; other > 0; other /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, other);
      }
      if (part == 0 && head < shape.heads) deltas[weight_row(shape, b, head, t)] = sum;
    }
  }
}

template <class T>
void launch_deltas(const AttentionShape& shape, const AttentionBackward<T>& args,
                   Wider<T>* deltas) {
  const bool packed =
      can_pack_rows(args.out, shape.value_size) && can_pack_rows(args.d_out, shape.value_size);
  const int64_t packs = shape.value_size / (packed ? kPack<T> : 1);
  int lanes = 1;
  while (lanes < kWarp && lanes < packs) lanes *= 2;
  launch({.kernel = "attention_backward (deltas)",
          .grid = blocks_for(shape.batch * shape.queries, kBlock / kWarp)},
         packed ? attention_deltas<T, kPack<T>> : attention_deltas<T, 1>, shape, args, lanes,
         deltas);
}

// kOfKeys: a block per (b, key/value head, tile of keys) keeps its keys and values in shared
// memory; the queries and d_out of all query heads of the group pass through it tile by tile; the
// sums are dK and dV. Otherwise: a block per (b, head, tile of queries) keeps queries and d_out,
// keys and values pass through, and the sum is dQ. Either way, with passing rows B1 and B2,
//   sums += dS B1 (dK or dQ), value_sums += P' B2 (dV).
template <class T, int kSize, bool kOfKeys>
__global__ void __launch_bounds__(256)
    attention_gradients(AttentionShape whole, AttentionBackward<T> all, const Wider<T>* deltas,
                        DropoutFactors<T> dropout, bool packed) {
  using W = Wider<T>;
  using Tile = AttentionTile<W, kSize>;
  constexpr int kRows = Tile::kRows;
  const int64_t most_rows = kOfKeys ? whole.keys : whole.queries;
  const int64_t own_heads = kOfKeys ? whole.kv_heads : whole.heads;
  const TileOfBlock block(own_heads, (most_rows + kRows - 1) / kRows, !kOfKeys && whole.causal);
  const int64_t b = block.b, first = block.tile * kRows;
  const AttentionShape shape = shape_of(whole, b);
  const AttentionBackward<T> args = own_args(whole, b, all);
  const int64_t left = (kOfKeys ? shape.keys : shape.queries) - first;
  if (left <= 0) return;
  const int64_t count = left < kRows ? left : kRows;
  const int64_t shared = shape.heads / shape.kv_heads;
  const int64_t group = kOfKeys ? block.head : block.head / shared;
  const int size = static_cast<int>(shape.head_size);
  const int value_size = static_cast<int>(shape.value_size);
  const GradientTile<T, kSize, kOfKeys> tile(shape, args, deltas, dropout, packed, b);
  W* const weights = tile.weights();

  // The passing rows: [from, to) of each head.
  const IndexRange passing = kOfKeys ? tile.visible.queries_of(first, first + count)
                                     : tile.visible.of_queries(first, first + count);
  const int64_t from = passing.first / kRows * kRows, to = passing.last;
  tile.load_own(block.head, first, count);
  typename Tile::Sums sums = {}, value_sums = {};

  for (int64_t h = 0; h < (kOfKeys ? shared : 1); ++h) {
    const int64_t head = kOfKeys ? group * shared + h : block.head;
    for (int64_t other = from; other < to; other += kRows) {
      const int64_t cols = to - other < kRows ? to - other : kRows;
      __syncthreads();  // the last rows have been read
      tile.load_passing(kOfKeys ? head : group, other, cols);
      __syncthreads();
      typename Tile::Weights p, ds;
      tile.compute(head, first, other, p, ds);
      if (kOfKeys && args.dv.data != nullptr) {
        Tile::store_weights(weights, p);
        Tile::add_weighted_rows(weights, tile.passing[1], cols, value_size, value_sums);
      }
      if (!kOfKeys || args.dk.data != nullptr) {
        Tile::store_weights(weights, ds);
        Tile::add_weighted_rows(weights, tile.passing[0], cols, size, sums);
      }
    }
  }

  const W d_scale = static_cast<W>(shape.scale);
  const auto give = [&](const Rows<T>& to_rows, const typename Tile::Sums& values, W factor,
                        int row_size, Write write) {
    if (to_rows.data == nullptr) return;
    Tile::deliver_rows(values, factor, at(to_rows, b, first, block.head, row_size),
                       to_rows.row_stride, count, row_size, write);
  };
  if (kOfKeys) {
    give(args.dk, sums, d_scale, size, args.dk_write);
    give(args.dv, value_sums, W(1), value_size, args.dv_write);
  } else {
    give(args.dq, sums, d_scale, size, args.dq_write);
  }
}

template <class T, int kSize, bool kOfKeys>
void launch_gradients(const AttentionShape& shape, const AttentionBackward<T>& args,
                      const Wider<T>* deltas) {
  using Tile = AttentionTile<Wider<T>, kSize>;
  const int64_t rows = kOfKeys ? shape.keys : shape.queries;
  const int64_t heads = kOfKeys ? shape.kv_heads : shape.heads;
  const int64_t tiles = (rows + Tile::kRows - 1) / Tile::kRows;
  launch({.kernel = kOfKeys ? "attention_backward (keys)" : "attention_backward (queries)",
          .grid = static_cast<unsigned>(shape.batch * heads * tiles),
          .block = Tile::kThreads,
          .shared_bytes = GradientTile<T, kSize, kOfKeys>::kBytes + Tile::kWeightBytes},
         attention_gradients<T, kSize, kOfKeys>, shape, args, deltas,
         DropoutFactors<T>(shape.dropout), can_pack_operands(shape, args));
}

}  // namespace

namespace kernels {

template <class T>
void attention_backward(Cuda, const AttentionShape& shape, const AttentionBackward<T>& args) {
  bool fits = false, hopper = false;
  if constexpr (std::is_same_v<T, BFloat16>) {
    fits =
        fits_mma(shape, args.bias, args.q, args.k, args.v, args.d_out, args.dq, args.dk, args.dv);
    hopper = fits && wants_hopper(shape, args.q, args.k, args.v, args.d_out);
    if (fits && !hopper && attention_backward_short(shape, args)) return;
  }
  DeviceScratch<Wider<T>> deltas(weight_rows(shape));
  launch_deltas(joined(shape), args, deltas.data());
  if (args.d_relative != nullptr) attention_backward_relative(shape, args, deltas.data());
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (hopper) return attention_backward_hopper(shape, args, deltas.data());
    if (fits) return attention_backward_mma(shape, args, deltas.data());
  }
  with_head_size(std::max(shape.head_size, shape.value_size), [&](auto size) {
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
