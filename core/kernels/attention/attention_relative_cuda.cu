// The gradient of attention's relative bias on CUDA: dS summed over all pairs of a distance, in an
// order that only the shape decides.
#include "core/kernels/attention/attention_backward_cuda.cuh"

namespace tapestry {
namespace {

// Tiles of kRows queries against kRows keys. Those in which (tile of keys) - (tile of queries) is
// the same make up a band; it has 2 * kRows - 1 distances, which it shares with its neighbours.
struct Bands {
  int64_t query_tiles, key_tiles;
  Bands(const AttentionShape& shape, int64_t rows)
      : query_tiles((shape.queries + rows - 1) / rows), key_tiles((shape.keys + rows - 1) / rows) {}
  TAPESTRY_HOST_DEVICE int64_t count() const { return query_tiles + key_tiles - 1; }
};

// A block per (b, head, band): band_sums (B, H, bands, 2 * kRows).
template <class T, int kSize>
__global__ void __launch_bounds__(256)
    attention_band_sums(AttentionShape whole, AttentionBackward<T> all, const Wider<T>* deltas,
                        DropoutFactors<T> dropout, bool packed, Bands bands, Wider<T>* band_sums) {
  using W = Wider<T>;
  using Tile = AttentionTile<W, kSize>;
  constexpr int kRows = Tile::kRows;
  const TileOfBlock block(whole.heads, bands.count(), false);
  const int64_t group = group_of(whole, block.head);
  const AttentionShape shape = shape_of(whole, block.b);
  const AttentionBackward<T> args = own_args(whole, block.b, all);
  GradientTile<T, kSize, false> tile(shape, args, deltas, dropout, packed, block.b);
  tile.behind_softcap = false;  // biases are added to the capped scores
  W* const weights = tile.weights();

  const int diagonal = static_cast<int>(threadIdx.x);  // key - query + kRows - 1, within a tile
  const int first_row = kRows - 1 - diagonal > 0 ? kRows - 1 - diagonal : 0;
  const int last_row = 2 * kRows - 1 - diagonal < kRows ? 2 * kRows - 1 - diagonal : kRows;
  W sum = 0;
  const int64_t shift = block.tile - (bands.query_tiles - 1);
  for (int64_t i = shift < 0 ? -shift : 0; i < bands.query_tiles && i + shift < bands.key_tiles;
       ++i) {
    const int64_t first = i * kRows, other = (i + shift) * kRows;
    if (first >= shape.queries || other >= shape.keys) break;
    const int64_t count = shape.queries - first < kRows ? shape.queries - first : kRows;
    const int64_t cols = shape.keys - other < kRows ? shape.keys - other : kRows;
    const IndexRange seen = within(tile.visible.of_queries(first, first + count), other, cols);
    if (seen.first >= seen.last) continue;
    __syncthreads();  // the last rows and weights have been read
    tile.load_own(block.head, first, count);
    tile.load_passing(group, other, seen.last);
    __syncthreads();
    typename Tile::Weights p, ds;
    tile.compute(block.head, first, other, p, ds);
    Tile::store_weights(weights, ds);
    __syncthreads();
    for (int row = first_row; row < last_row; ++row) {
      sum += weights[row * Tile::kWeightStride + row + diagonal - (kRows - 1)];
    }
  }
  if (diagonal < 2 * kRows) band_sums[int64_t{blockIdx.x} * 2 * kRows + diagonal] = sum;
}

// d_relative (H, 2R - 1) (=|+=) the sums of all bands and sequences; a warp per element. The first
// and the last element of a head take all distances beyond the reach.
template <class T>
__global__ void attention_relative_gradient(AttentionShape shape, AttentionBackward<T> args,
                                            Bands bands, int64_t rows, const Wider<T>* band_sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t width = 2 * args.bias.reach - 1, count = bands.count();
  for (int64_t i = global_thread() / kWarp; i < shape.heads * width;
       i += global_threads() / kWarp) {
    const int64_t head = i / width, column = i % width;
    // Distances are counted from the first one of the first band.
    const int64_t place =
        column - (args.bias.reach - 1) + shape.keys - shape.queries + bands.query_tiles * rows - 1;
    const int64_t end = (count + 1) * rows;
    const int64_t from = column == 0 ? 0 : place, to = column == width - 1 ? end : place + 1;
    Wider<T> sum = 0;
    for (int64_t distance = (from > 0 ? from : 0) + lane; distance < (to < end ? to : end);
         distance += kWarp) {
      const int64_t band = distance / rows, within_band = distance % rows;
      for (int64_t b = 0; b < shape.batch; ++b) {
        const Wider<T>* const sums = band_sums + (b * shape.heads + head) * count * 2 * rows;
        if (band < count) sum += sums[band * 2 * rows + within_band];
        if (band > 0) sum += sums[(band - 1) * 2 * rows + rows + within_band];
      }
    }
    sum = warp_sum(sum);
    if (lane == 0) deliver(args.d_relative + i, sum, args.d_relative_write);
  }
}

}  // namespace

template <class T>
void attention_backward_relative(const AttentionShape& shape, const AttentionBackward<T>& args,
                                 const Wider<T>* deltas) {
  with_head_size(std::max(shape.head_size, shape.value_size), [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    using Tile = AttentionTile<Wider<T>, kSize>;
    const Bands bands(shape, Tile::kRows);
    const bool none = shape.queries == 0 || shape.keys == 0;
    const int64_t blocks = none ? 0 : shape.batch * shape.heads * bands.count();
    DeviceScratch<Wider<T>> sums(blocks * 2 * Tile::kRows);
    if (!none) {
      launch({.kernel = "attention_backward (relative bias)",
              .grid = static_cast<unsigned>(blocks),
              .block = Tile::kThreads,
              .shared_bytes = GradientTile<T, kSize, false>::kBytes + Tile::kWeightBytes},
             attention_band_sums<T, kSize>, shape, args, deltas, DropoutFactors<T>(shape.dropout),
             can_pack_operands(shape, args), bands, sums.data());
    }
    AttentionShape summed = shape;
    if (none) summed.batch = 0;
    launch({.kernel = "attention_backward (sums of the relative bias)",
            .grid = blocks_for(shape.heads * (2 * args.bias.reach - 1), kBlock / kWarp)},
           attention_relative_gradient<T>, summed, args, bands, int64_t{Tile::kRows}, sums.data());
  });
}

template void attention_backward_relative(const AttentionShape&, const AttentionBackward<float>&,
                                          const float*);
template void attention_backward_relative(const AttentionShape&, const AttentionBackward<double>&,
                                          const double*);
template void attention_backward_relative(const AttentionShape&, const AttentionBackward<BFloat16>&,
                                          const float*);

}  // namespace tapestry
