// Attention forward on CUDA: online softmax over tiles of keys (FlashAttention-2, Dao 2023), so
// that no array of size T x S is in global memory.
#include "core/kernels/attention/attention_cuda.cuh"

namespace tapestry {
namespace {

// A block per (b, head, tile of queries). The queries stay in shared memory. Tiles of keys, each
// followed by the same rows of the values, are loaded one after the other to the same place. Thread
// (ty, tx) keeps its share of the outputs and of the sums of exponentials in registers.
template <class T, int kSize>
__global__ void __launch_bounds__(256)
    attention_forward(AttentionShape whole, AttentionForward<T> all, DropoutFactors<T> dropout,
                      bool packed) {
  using W = Wider<T>;
  using Tile = AttentionTile<W, kSize>;
  constexpr int kRows = Tile::kRows, kEach = Tile::kEach;
  W* const queries = dynamic_shared<W>();
  W* const others = queries + kRows * Tile::kStride;  // keys or values
  W* const weights = others + kRows * Tile::kStride;

  const TileOfBlock block(whole.heads, (whole.queries + kRows - 1) / kRows, whole.causal);
  const int64_t b = block.b, head = block.head, group = group_of(whole, head);
  const int64_t first = block.tile * kRows;
  const AttentionShape shape = shape_of(whole, b);
  const AttentionForward<T> args = own_args(whole, b, all);
  if (first >= shape.queries) return;
  const int64_t count = shape.queries - first < kRows ? shape.queries - first : kRows;
  const VisibleKeys visible(shape, b);
  const IndexRange keys = visible.of_queries(first, first + count);
  const int size = static_cast<int>(shape.head_size);
  const int value_size = static_cast<int>(shape.value_size);
  const W scale = static_cast<W>(shape.scale * kLog2E);
  const W infinity = static_cast<W>(INFINITY);

  Tile::load(queries, at(args.q, b, first, head, size), args.q.row_stride, count, size, packed);
  typename Tile::Sums out = {};
  W max[kEach], sum[kEach];
  for (int i = 0; i < kEach; ++i) max[i] = -infinity, sum[i] = 0;

  for (int64_t first_key = keys.first; first_key < keys.last; first_key += kRows) {
    const int64_t cols = keys.last - first_key < kRows ? keys.last - first_key : kRows;
    __syncthreads();  // the last values have been read
    Tile::load(others, at(args.k, b, first_key, group, size), args.k.row_stride, cols, size,
               packed);
    __syncthreads();
    typename Tile::Weights p;
    Tile::multiply_rows(queries, others, size, p);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t t = first + Tile::row(i);
      // Rows behind the last query have no bias, and nobody reads what they give.
      const IndexRange seen =
          t < shape.queries ? within(visible.of_query(t), first_key, kRows) : IndexRange{0, 0};
      W largest = max[i];
      if (shape.softcap > 0) {
#pragma unroll
        for (W& score : p[i]) score = capped_score(shape, score).power_of_two(shape);
      } else {
#pragma unroll
        for (W& score : p[i]) score *= scale;
      }
      if (args.bias.any()) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          if (!seen.has(Tile::column(j))) continue;
          p[i][j] += static_cast<W>(kLog2E) *
                     bias_at(shape, args.bias, b, head, t, first_key + Tile::column(j));
        }
      }
      for (int j = 0; j < kEach; ++j) {
        if (seen.has(Tile::column(j))) largest = MaxOf()(largest, p[i][j]);
      }
      largest = half_warp_reduce(largest, MaxOf());
      const W shift = largest == -infinity ? W(0) : largest;
      const W shrink = std::exp2(max[i] - shift);
      max[i] = largest;
      sum[i] *= shrink;
      for (auto& pack : out[i]) {
        for (W& v : pack.v) v *= shrink;
      }
      const int64_t draws = weight_index(shape, weight_row(shape, b, head, t), first_key);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        p[i][j] = seen.has(Tile::column(j)) ? std::exp2(p[i][j] - shift) : W(0);
        sum[i] += p[i][j];
        p[i][j] *= dropout.at(static_cast<uint64_t>(draws + Tile::column(j)));
      }
    }
    Tile::store_weights(weights, p);
    __syncthreads();  // the keys have been read
    Tile::load(others, at(args.v, b, first_key, group, value_size), args.v.row_stride, cols,
               value_size, packed);
    __syncthreads();
    Tile::add_weighted_rows(weights, others, cols, value_size, out);
  }

  for (int i = 0; i < kEach; ++i) {
    const W total = half_warp_reduce(sum[i], SumOf());
    const W factor = total == 0 ? W(0) : 1 / total;
    for (auto& pack : out[i]) {
      for (W& v : pack.v) v *= factor;
    }
    if (args.log_sum_exp != nullptr && Tile::tx() == 0 && Tile::row(i) < count) {
      args.log_sum_exp[weight_row(shape, b, head, first + Tile::row(i))] =
          max[i] * static_cast<W>(kLn2) + std::log(total);
    }
  }
  Tile::deliver_rows(out, W(1), at(args.out, b, first, head, value_size), args.out.row_stride,
                     count, value_size, Write::kSet);
}

}  // namespace

namespace kernels {

template <class T>
void attention(Cuda, const AttentionShape& shape, const AttentionForward<T>& args) {
  if (attend_one_query(shape, args)) return;
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (fits_mma(shape, args.bias, args.q, args.k, args.v, args.out)) {
      const bool hopper = wants_hopper(shape, args.q, args.k, args.v);
      return hopper ? attention_hopper(shape, args) : attention_mma(shape, args);
    }
  }
  with_head_size(std::max(shape.head_size, shape.value_size), [&](auto size) {
    using Tile = AttentionTile<Wider<T>, decltype(size)::value>;
    const bool packed = can_pack_rows(args.q, shape.head_size) &&
                        can_pack_rows(args.k, shape.head_size) &&
                        can_pack_rows(args.v, shape.value_size);
    const int64_t tiles = (shape.queries + Tile::kRows - 1) / Tile::kRows;
    launch({.kernel = "attention",
            .grid = static_cast<unsigned>(shape.batch * shape.heads * tiles),
            .block = Tile::kThreads,
            .shared_bytes = 2 * Tile::kBytes + Tile::kWeightBytes},
           attention_forward<T, decltype(size)::value>, shape, args,
           DropoutFactors<T>(shape.dropout), packed);
  });
}

template void attention(Cuda, const AttentionShape&, const AttentionForward<float>&);
template void attention(Cuda, const AttentionShape&, const AttentionForward<double>&);
template void attention(Cuda, const AttentionShape&, const AttentionForward<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
