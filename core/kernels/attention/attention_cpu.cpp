#include "core/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "core/cpu/portable_bits.h"
#include "core/kernels/attention/attention_common.h"
#include "core/kernels/attention/attention_tiles.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/profile.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention/attention_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/attention/attention_bias_simd-inl.h"
#include "core/kernels/attention/attention_simd-inl.h"
#include "core/kernels/attention/running_softmax_simd-inl.h"
#include "core/kernels/cpu/philox_simd-inl.h"
#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_ATTENTION_TILES
#define TAPESTRY_ATTENTION_TILES
namespace tapestry {

template <class T>
struct AttentionTiles {
  // All get the shape and operands of batch element b by itself.
  // Queries [first, first + count) of heads [head, last_head), by blocks of keys.
  void (*block)(const AttentionShape& shape, const AttentionForward<T>& args, int64_t b,
                int64_t head, int64_t last_head, int64_t first, int64_t count);
  // All queries of heads [first, last). For a few queries: reads keys and values once, unpacked.
  void (*few_queries)(const AttentionShape& shape, const AttentionForward<T>& args, int64_t b,
                      int64_t first, int64_t last);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// Packed keys and values of a block stay in L2 (at head size 64, 32 KiB each).
constexpr int64_t kKeyBlock = 128;

template <class T>
struct KeyRows {
  const T* data;
  int64_t stride;
};
// The keys or values from `first` on: where they are, or a copy of scattered ones.
template <class T>
HWY_INLINE KeyRows<T> key_rows(const AttentionShape& shape, const Rows<const T>& rows, int64_t b,
                               int64_t first, int64_t count, int64_t group, int64_t size,
                               T* copies) {
  if (shape.key_rows == nullptr) return {at(rows, b, first, group, size), rows.row_stride};
  for (int64_t j = 0; j < count; ++j) {
    std::copy_n(at(rows, b, key_row(shape, b, first + j), group, size), size, copies + j * size);
  }
  return {copies, size};
}

template <class T>
void forward_block(const AttentionShape& shape, const AttentionForward<T>& args, int64_t b,
                   int64_t head, int64_t first, int64_t count, RowPrefetcher prefetcher) {
  using W = Wider<T>;
  const int64_t size = shape.head_size, value_size = shape.value_size;
  const int64_t group = head / (shape.heads / shape.kv_heads);
  const VisibleKeys visible(shape, b);
  const IndexRange all = visible.of_queries(first, first + count);
  using kernels::kTileBlock;
  const bool on_tiles = kernels::attention_on_tiles<T>(shape);
  std::optional<kernels::AttentionTileProducts> tiles;
  const int64_t height = on_tiles ? kTileBlock : kTileRows;
  // Blocks of keys begin at a multiple of their size.
  const int64_t start = all.first / kKeyBlock * kKeyBlock, end = all.last;
  const int64_t block = std::clamp<int64_t>(end - start, 1, kKeyBlock);
  if (on_tiles) tiles.emplace(size, value_size, block);
  const int64_t score_stride = round_up(block, on_tiles ? kTileBlock : panel_width<T>());
  const int64_t out_stride = round_up(value_size, on_tiles ? kTileBlock : lanes_of<T>());
  const int64_t k_room = on_tiles ? 0 : packed_transpose_room<T>(block, size);
  const int64_t v_room = on_tiles ? 0 : packed_rows_room<T>(block, value_size);
  const int64_t q_room = on_tiles ? 0 : left_rows_room<T>(height, size);
  const int64_t out_room = (on_tiles ? round_up(count, kTileBlock) : count) * out_stride;
  Scratch<W> memory(k_room + v_room + q_room + out_room + height * score_stride + 2 * count);
  const Packed<W> k = packed_transpose(memory.data(), size);
  const Packed<W> v = packed_rows(k.data + k_room, value_size);
  W* const q_memory = v.data + v_room;
  W* const out = q_memory + q_room;
  W* const scores = out + out_room;
  const RunningSoftmax<W> state = {scores + height * score_stride,
                                   scores + height * score_stride + count};
  std::fill_n(out, end > start ? 0 : out_room, W{0});
  std::fill_n(state.max, count, -std::numeric_limits<W>::infinity());
  std::fill_n(state.sum, count, W{0});
  const bool drops = shape.dropout.p > 0, changed = changes_scores(shape, args.bias);
  const DropoutFactors<T> dropout(drops ? shape.dropout : Dropout{1, {}});
  HWY_ALIGN W factor_memory[kKeyBlock + DropoutFactors<T>::kPadding];
  const W scale = changed ? W{1} : static_cast<W>(shape.scale);
  const int64_t rows_ahead = prefetcher.rows_left() * height / count + 1;
  Scratch<T> copied(shape.key_rows != nullptr ? kKeyBlock * (size + value_size) : 0);
  T* const copies = copied.data();

  for (int64_t first_key = start; first_key < end; first_key += kKeyBlock) {
    const int64_t cols = std::min(kKeyBlock, end - first_key);
    const KeyRows<T> keys_at = key_rows(shape, args.k, b, first_key, cols, group, size, copies);
    const KeyRows<T> values_at =
        key_rows(shape, args.v, b, first_key, cols, group, value_size, copies + kKeyBlock * size);
    if constexpr (kernels::kHasTiles<T>) {
      if (tiles) {
        tiles->load_keys({keys_at.data, keys_at.stride}, {values_at.data, values_at.stride}, cols);
      }
    }
    if (!tiles) {
      pack_transposed(keys_at.data, keys_at.stride, cols, size, k);
      pack_rows(values_at.data, values_at.stride, cols, value_size, v);
    }
    for (int64_t strip = 0; strip < count; strip += height) {
      const int64_t rows = std::min(height, count - strip);
      const int64_t t = first + strip;
      const IndexRange seen = within(visible.of_queries(t, t + rows), first_key, cols);
      const int64_t most = seen.last;
      // Tiles of weights begin at a multiple of their depth.
      const int64_t from =
          on_tiles ? seen.first / kernels::kTileDepth * kernels::kTileDepth : seen.first;
      W* const strip_out = out + strip * out_stride;
      if (seen.first >= most) {
        if (first_key == start) std::fill_n(strip_out, rows * out_stride, W{0});
        continue;
      }
      prefetcher.fetch(rows_ahead);
      const T* const q = at(args.q, b, t, head, size);
      if constexpr (kernels::kHasTiles<T>) {
        if (tiles) tiles->scores({q, args.q.row_stride}, rows, most, scores, score_stride);
      }
      if (!tiles) {
        const LeftRows<W> left = left_rows(q, args.q.row_stride, rows, size, q_memory);
        strip_product<Left::kAsStored>(rows, most, size, left.data, left.stride, k, scores,
                                       score_stride, false);
      }
      for (int64_t r = 0; r < rows; ++r) {
        const IndexRange keys = within(visible.of_query(t + r), first_key, cols);
        const int64_t n = keys.last - keys.first, key = first_key + keys.first;
        W* const row = scores + r * score_stride;
        W* const seen_row = row + keys.first;
        if (changed) changed_scores(shape, args.bias, b, head, t + r, key, n, seen_row);
        const W shrink = update_softmax(state, strip + r, seen_row, n, scale);
        if (first_key > start && shrink != 1) {
          scaled_copy(strip_out + r * out_stride, shrink, strip_out + r * out_stride, out_stride);
        }
        if (drops) {
          const int64_t index = weight_index(shape, weight_row(shape, b, head, t + r), key);
          multiply(seen_row, dropout.fill(static_cast<uint64_t>(index), n, factor_memory), n);
        }
        std::fill(row + from, seen_row, W{0});
        std::fill(seen_row + n, row + most, W{0});
      }
      const bool add = first_key > start;
      if constexpr (kernels::kHasTiles<T>) {
        if (tiles) {
          tiles->add_values({scores + from, score_stride}, rows, {from, most}, strip_out,
                            out_stride, add);
          continue;
        }
      }
      Packed<W> values = v;
      values.data += from * v.stride;
      strip_product<Left::kAsStored>(rows, value_size, most - from, scores + from, score_stride,
                                     values, strip_out, out_stride, add);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const W factor = state.sum[i] == 0 ? W{0} : 1 / state.sum[i];
    scaled_copy(out + i * out_stride, factor, at(args.out, b, first + i, head, value_size),
                value_size);
  }
  if (args.log_sum_exp != nullptr) {
    write_log_sum_exp(state, count, args.log_sum_exp + weight_row(shape, b, head, first));
  }
}

template <class T>
void forward_heads(const AttentionShape& shape, const AttentionForward<T>& args, int64_t b,
                   int64_t head, int64_t last_head, int64_t first, int64_t count) {
  const int64_t size = shape.head_size, value_size = shape.value_size;
  const int64_t shared = shape.heads / shape.kv_heads;
  for (; head < last_head; ++head) {
    RowPrefetcher prefetcher;
    const int64_t next = head + 1;
    if (next < last_head) {
      if (next % shared == 0 && shape.key_rows == nullptr) {
        prefetcher.add(args.k, b, 0, next / shared, size, shape.keys);
        prefetcher.add(args.v, b, 0, next / shared, value_size, shape.keys);
      }
      prefetcher.add(args.q, b, first, next, size, count);
      prefetcher.add(args.out, b, first, next, value_size, count);
    }
    forward_block(shape, args, b, head, first, count, prefetcher);
  }
}

template <class T>
HWY_INLINE Wider<T> dot(const Wider<T>* a, const T* b, int64_t n) {
  const Tag<T> d;
  LineSums<T> sums;
  each_line<T>(n, [&](auto io, int64_t i, auto part) HWY_ATTR {
    sums[part] = hn::MulAdd(io.load(d, a + i), io.load(d, b + i), sums[part]);
  });
  return sums.total();
}

// y += factor * x
template <class T>
HWY_INLINE void add_scaled(const T* x, Wider<T> factor, Wider<T>* y, int64_t n) {
  const Tag<T> d;
  const auto factors = hn::Set(d, factor);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::MulAdd(io.load(d, x + i), factors, io.load(d, y + i)), y + i);
  });
}

constexpr int64_t kRowsAhead = 3;

// The part of key j for `heads` heads from `head` on.
template <class T>
HWY_INLINE void prefetch_row(const AttentionShape& shape, const Rows<const T>& rows, int64_t b,
                             int64_t j, int64_t head, int64_t size, int64_t heads) {
  const T* const row = at(rows, b, key_row(shape, b, j), head, size);
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < heads * size; i += kLine) __builtin_prefetch(row + i);
}

// Reads whole rows of keys and values in order, for all heads at once, because memory is the limit.
template <class T>
void forward_few_queries(const AttentionShape& shape, const AttentionForward<T>& args, int64_t b,
                         int64_t first, int64_t last) {
  using W = Wider<T>;
  const int64_t size = shape.head_size, value_size = shape.value_size;
  const int64_t shared = shape.heads / shape.kv_heads, heads = last - first;
  const int64_t left_of_group = shared - first % shared;  // heads that read the first group
  const int64_t groups = (last - 1) / shared - first / shared + 1;
  const VisibleKeys visible(shape, b);
  const bool changed = changes_scores(shape, args.bias);
  const W scale = changed ? W{1} : static_cast<W>(shape.scale);
  // The output is summed where it belongs, but not in bfloat16.
  constexpr bool kSumsInPlace = std::is_same_v<T, W>;
  const int64_t out_room = kSumsInPlace ? 0 : heads * value_size;
  Scratch<W> memory(heads * shape.keys + 2 * heads + shape.keys + DropoutFactors<T>::kPadding +
                    out_room + left_rows_room<T>(1, heads * size));
  W* const scores = memory.data();
  const RunningSoftmax<W> state = {scores + heads * shape.keys,
                                   scores + heads * shape.keys + heads};
  W* const factor_memory = state.sum + heads;
  W* const out_memory = factor_memory + shape.keys + DropoutFactors<T>::kPadding;
  W* const q_memory = out_memory + out_room;
  for (int64_t t = 0; t < shape.queries; ++t) {
    const IndexRange keys = visible.of_query(t);
    const int64_t seen = keys.last - keys.first;
    const W* const q = left_rows(at(args.q, b, t, first, size), 0, 1, heads * size, q_memory).data;
    for (int64_t j = keys.first; j < keys.last; ++j) {
      if (shape.key_rows != nullptr) {  // the processor does not know which row is next
        const int64_t ahead = std::min(j + kRowsAhead, keys.last - 1);
        prefetch_row(shape, args.k, b, ahead, first / shared, size, groups);
        prefetch_row(shape, args.v, b, j, first / shared, value_size, groups);
      }
      const T* key = at(args.k, b, key_row(shape, b, j), first / shared, size);
      for (int64_t h = 0, left = left_of_group; h < heads; ++h, --left) {
        if (left == 0) key += size, left = shared;
        scores[h * shape.keys + j] = dot(q + h * size, key, size);
      }
    }
    for (int64_t h = 0; h < heads; ++h) {
      W* const row = scores + h * shape.keys + keys.first;
      if (changed) changed_scores(shape, args.bias, b, first + h, t, keys.first, seen, row);
      state.max[h] = -std::numeric_limits<W>::infinity();
      state.sum[h] = 0;
      update_softmax(state, h, row, seen, scale);
      const int64_t weights = weight_row(shape, b, first + h, t);
      if (shape.dropout.p > 0) {
        const DropoutFactors<T> dropout(shape.dropout);
        const auto index = static_cast<uint64_t>(weight_index(shape, weights, keys.first));
        multiply(row, dropout.fill(index, seen, factor_memory), seen);
      }
      scaled_copy(row, state.sum[h] == 0 ? W{0} : 1 / state.sum[h], row, seen);
      if (args.log_sum_exp != nullptr) {
        write_log_sum_exp<W>({state.max + h, state.sum + h}, 1, args.log_sum_exp + weights);
      }
    }
    T* const row_out = at(args.out, b, t, first, value_size);
    W* out = out_memory;
    if constexpr (kSumsInPlace) out = row_out;
    std::fill_n(out, heads * value_size, W{0});
    for (int64_t j = keys.first; j < keys.last; ++j) {
      const T* value = at(args.v, b, key_row(shape, b, j), first / shared, value_size);
      for (int64_t h = 0, left = left_of_group; h < heads; ++h, --left) {
        if (left == 0) value += value_size, left = shared;
        add_scaled(value, scores[h * shape.keys + j], out + h * value_size, value_size);
      }
    }
    if (!kSumsInPlace) scaled_copy(out, W{1}, row_out, heads * value_size);
  }
}

template <class T>
constexpr AttentionTiles<T> kFunctions = {forward_heads<T>, forward_few_queries<T>};

const PerType<AttentionTiles>* attention_tiles() {
  static constexpr PerType<AttentionTiles> functions = {kFunctions<float>, kFunctions<double>,
                                                        kFunctions<BFloat16>};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(attention_tiles);

// Queries per tile: many, so that packed keys are reused often, but few enough to give every thread
// a tile.
int64_t query_block(const AttentionShape& shape) {
  const int64_t heads = shape.batch * shape.heads;
  for (const int64_t block : {256, 128}) {
    if (heads * ((shape.queries + block - 1) / block) >= 16) return block;
  }
  return 64;
}

}  // namespace

namespace kernels {

template <class T>
void attention(Cpu, const AttentionShape& shape, const AttentionForward<T>& args) {
  const ProfileScope profile(Part::kAttention);
  const AttentionTiles<T>& tiles = HWY_DYNAMIC_DISPATCH(attention_tiles)()->of<T>();
  // Few queries add in another order, which would tell a search from a training.
  if (shape.queries <= kFewQueries && !has_portable_bits()) {
    const int64_t heads = shape.batch >= 8 ? shape.heads : 1, pieces = shape.heads / heads;
    parallel_for(shape.batch * pieces, [&](int64_t tile) {
      const int64_t b = tile / pieces, first = tile % pieces * heads;
      tiles.few_queries(shape_of(shape, b), own_args(shape, b, args), b, first, first + heads);
    });
    return;
  }
  const int64_t size = query_block(shape), blocks = (shape.queries + size - 1) / size;
  const int64_t heads = heads_per_tile(shape.batch * shape.heads * blocks, shape.heads);
  const int64_t pieces = (shape.heads + heads - 1) / heads;
  parallel_for(shape.batch * pieces * blocks, [&](int64_t tile) {
    const int64_t first = tile % blocks * size, head = tile / blocks % pieces * heads;
    const int64_t b = tile / blocks / pieces;
    const AttentionShape own = shape_of(shape, b);
    if (first >= own.queries) return;
    tiles.block(own, own_args(shape, b, args), b, head, std::min(head + heads, shape.heads), first,
                std::min(size, own.queries - first));
  });
}

template void attention(Cpu, const AttentionShape&, const AttentionForward<float>&);
template void attention(Cpu, const AttentionShape&, const AttentionForward<double>&);
template void attention(Cpu, const AttentionShape&, const AttentionForward<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
