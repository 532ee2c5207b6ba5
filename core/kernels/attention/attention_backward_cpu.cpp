// The backward pass of attention (Dao et al. 2022, B.2), by blocks of queries and keys. With the
// weights P = exp(scale q k^T - lse), P' = dropout(P) and delta = rowsum(dO * O):
//   dV = P'^T dO,  dS = P * (dropout(dO V^T) - delta),  dQ = scale dS K,  dK = scale dS^T Q.
// The gradient of a relative bias is the sum of dS over all pairs of that distance. Behind a
// softcap dQ and dK have dS * (1 - tanh^2) instead.
#include <algorithm>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "core/kernels/attention/attention.h"
#include "core/kernels/attention/attention_common.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/profile.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention/attention_backward_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/attention/attention_backward_simd-inl.h"
#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_ATTENTION_BACKWARD_TILES
#define TAPESTRY_ATTENTION_BACKWARD_TILES
namespace tapestry {

template <class T>
struct AttentionBackwardTiles {
  // All get the shape and operands of batch element b by itself.
  // All gradients of key/value heads [group, last_group) and their query heads; computes their
  // deltas itself. Adds to relative_sums (B, H, 2R - 1), which may be null.
  void (*groups)(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                 int64_t group, int64_t last_group, double* relative_sums);
  // Only dk and dv of one block of keys, or only dq of one block of queries; the deltas are those
  // of all rows of weights.
  void (*keys)(const AttentionShape& shape, const AttentionBackward<T>& args,
               const Wider<T>* deltas, int64_t b, int64_t group, int64_t block);
  void (*queries)(const AttentionShape& shape, const AttentionBackward<T>& args,
                  const Wider<T>* deltas, int64_t b, int64_t head, int64_t block);
  // rowsum(dO * O) of one head.
  void (*deltas)(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                 int64_t head, Wider<T>* deltas);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE Wider<T> dot(const T* a, const T* b, int64_t n) {
  const Tag<T> d;
  LineSums<T> sums;
  each_line<T>(n, [&](auto io, int64_t i, auto part) HWY_ATTR {
    sums[part] = hn::MulAdd(io.load(d, a + i), io.load(d, b + i), sums[part]);
  });
  return sums.total();
}

template <class T>
void head_deltas(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                 int64_t head, Wider<T>* deltas) {
  const int64_t size = shape.value_size;
  for (int64_t t = 0; t < shape.queries; ++t) {
    deltas[t] = dot(at(args.out, b, t, head, size), at(args.d_out, b, t, head, size), size);
  }
}

template <class T>
void backward_group(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                    int64_t group, RowPrefetcher& prefetcher, double* relative_sums) {
  const int64_t shared = shape.heads / shape.kv_heads;
  const int64_t query_blocks = (shape.queries + kBackwardQueries - 1) / kBackwardQueries;
  const int64_t key_blocks = (shape.keys + kBackwardKeys - 1) / kBackwardKeys;
  const int64_t width = 2 * args.bias.reach - 1;
  BackwardBlocks<T> blocks(shape, args, b, group);
  // Each block of keys adds to dq. In bfloat16 every such sum would lose digits.
  const bool keeps_dq = !std::is_same_v<T, Wider<T>> && args.dq.data != nullptr && key_blocks > 1;
  if (keeps_dq) blocks.keep_query_gradients(group * shared, shared);
  Scratch<Wider<T>> deltas(shared * shape.queries);
  for (int64_t h = 0; h < shared; ++h) {
    head_deltas(shape, args, b, group * shared + h, deltas.data() + h * shape.queries);
  }
  // At least one round, which visits all queries: it writes zeros to dq where there are no keys.
  for (int64_t kb = 0; kb < std::max<int64_t>(1, key_blocks); ++kb) {
    blocks.load_keys(kb);
    blocks.clear_key_gradients();
    const IndexRange range = kb == 0 ? IndexRange{0, query_blocks} : blocks.blocks_of_queries();
    for (int64_t h = 0; h < shared; ++h) {
      const int64_t head = group * shared + h;
      for (int64_t qb = range.first; qb < range.last; ++qb) {
        blocks.choose_queries(head, qb);
        if (blocks.queries_see_keys()) {
          blocks.load_queries();
          blocks.compute_weights(deltas.data() + h * shape.queries, prefetcher);
          if (relative_sums != nullptr) {
            blocks.add_relative_gradients(relative_sums + (b * shape.heads + head) * width);
          }
          blocks.chain_softcap();
          blocks.add_key_gradients();
          if (args.dq.data == nullptr) continue;
          blocks.sum_query_gradients(keeps_dq && kb > 0);
          if (!keeps_dq) blocks.deliver_query_gradients(kb == 0 ? args.dq_write : Write::kAdd);
        } else if (kb == 0 && keeps_dq) {
          blocks.clear_query_gradients();
        } else if (kb == 0 && args.dq.data != nullptr && args.dq_write == Write::kSet) {
          blocks.clear_query_gradients();
          blocks.deliver_query_gradients(Write::kSet);
        }
      }
    }
    blocks.deliver_key_gradients();
  }
  if (!keeps_dq) return;
  for (int64_t h = 0; h < shared; ++h) {
    for (int64_t qb = 0; qb < query_blocks; ++qb) {
      blocks.choose_queries(group * shared + h, qb);
      blocks.deliver_query_gradients(args.dq_write);
    }
  }
}

template <class T>
void backward_groups(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                     int64_t group, int64_t last_group, double* relative_sums) {
  const int64_t size = shape.head_size, value_size = shape.value_size;
  const int64_t shared = shape.heads / shape.kv_heads;
  for (; group < last_group; ++group) {
    RowPrefetcher prefetcher;
    const int64_t next = group + 1;
    if (next < last_group) {
      prefetcher.add(args.out, b, 0, next * shared, value_size, shape.queries);
      prefetcher.add(args.d_out, b, 0, next * shared, value_size, shape.queries);
      prefetcher.add(args.q, b, 0, next * shared, size, shape.queries);
      prefetcher.add(args.k, b, 0, next, size, shape.keys);
      prefetcher.add(args.v, b, 0, next, value_size, shape.keys);
      prefetcher.add(args.dq, b, 0, next * shared, size, shape.queries);
      prefetcher.add(args.dk, b, 0, next, size, shape.keys);
      prefetcher.add(args.dv, b, 0, next, value_size, shape.keys);
    }
    backward_group(shape, args, b, group, prefetcher, relative_sums);
  }
}

template <class T>
void backward_keys(const AttentionShape& shape, const AttentionBackward<T>& args,
                   const Wider<T>* deltas, int64_t b, int64_t group, int64_t block) {
  const int64_t shared = shape.heads / shape.kv_heads;
  BackwardBlocks<T> blocks(shape, args, b, group);
  blocks.load_keys(block);
  blocks.clear_key_gradients();
  const IndexRange range = blocks.blocks_of_queries();
  RowPrefetcher nothing;
  for (int64_t h = 0; h < shared; ++h) {
    for (int64_t qb = range.first; qb < range.last; ++qb) {
      blocks.choose_queries(group * shared + h, qb);
      if (!blocks.queries_see_keys()) continue;
      blocks.load_queries();
      blocks.compute_weights(deltas + weight_row(shape, b, group * shared + h, 0), nothing);
      blocks.chain_softcap();
      blocks.add_key_gradients();
    }
  }
  blocks.deliver_key_gradients();
}

template <class T>
void backward_queries(const AttentionShape& shape, const AttentionBackward<T>& args,
                      const Wider<T>* deltas, int64_t b, int64_t head, int64_t block) {
  BackwardBlocks<T> blocks(shape, args, b, head / (shape.heads / shape.kv_heads));
  blocks.choose_queries(head, block);
  blocks.load_queries();
  bool add = false;
  RowPrefetcher nothing;
  const IndexRange keys = blocks.keys_of_queries();
  for (int64_t kb = keys.first / kBackwardKeys; kb * kBackwardKeys < keys.last; ++kb) {
    blocks.load_keys(kb);
    if (!blocks.queries_see_keys()) continue;
    blocks.compute_weights(deltas + weight_row(shape, b, head, 0), nothing);
    blocks.chain_softcap();
    blocks.sum_query_gradients(add);
    add = true;
  }
  if (!add) blocks.clear_query_gradients();
  blocks.deliver_query_gradients(args.dq_write);
}

template <class T>
constexpr AttentionBackwardTiles<T> kFunctions = {backward_groups<T>, backward_keys<T>,
                                                  backward_queries<T>, head_deltas<T>};

const PerType<AttentionBackwardTiles>* backward_tiles() {
  static constexpr PerType<AttentionBackwardTiles> functions = {
      kFunctions<float>, kFunctions<double>, kFunctions<BFloat16>};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(backward_tiles);

// With fewer key/value heads in the batch, a tile per head would leave threads idle. Then dk and dv
// are computed by blocks of keys and dq by blocks of queries; each computes the weights again. Not
// so with the gradient of a relative bias, whose sums belong to a head.
constexpr int64_t kLeastGroups = 8;

}  // namespace

namespace kernels {

template <class T>
void attention_backward(Cpu, const AttentionShape& shape, const AttentionBackward<T>& args) {
  const ProfileScope profile(Part::kAttention);
  const AttentionBackwardTiles<T>& tiles = HWY_DYNAMIC_DISPATCH(backward_tiles)()->of<T>();
  const int64_t groups = shape.batch * shape.kv_heads, heads = shape.batch * shape.heads;
  const int64_t query_blocks = (shape.queries + kBackwardQueries - 1) / kBackwardQueries;
  const int64_t key_blocks = (shape.keys + kBackwardKeys - 1) / kBackwardKeys;
  const bool relative = args.d_relative != nullptr;
  if (groups >= kLeastGroups || (query_blocks <= 1 && key_blocks <= 1) || relative) {
    const int64_t each = heads_per_tile(groups, shape.kv_heads);
    const int64_t pieces = (shape.kv_heads + each - 1) / each;
    // One sum per sequence and head, so that no two tiles add to the same one.
    const int64_t numbers = relative ? shape.heads * (2 * args.bias.reach - 1) : 0;
    Scratch<double> sums(shape.batch * numbers);
    std::fill_n(sums.data(), shape.batch * numbers, 0.0);
    parallel_for(shape.batch * pieces, [&](int64_t tile) {
      const int64_t b = tile / pieces, group = tile % pieces * each;
      tiles.groups(shape_of(shape, b), own_args(shape, b, args), b, group,
                   std::min(group + each, shape.kv_heads), relative ? sums.data() : nullptr);
    });
    for (int64_t i = 0; i < numbers; ++i) {
      double sum =
          args.d_relative_write == Write::kAdd ? static_cast<Wider<T>>(args.d_relative[i]) : 0;
      for (int64_t b = 0; b < shape.batch; ++b) sum += sums[b * numbers + i];
      args.d_relative[i] = static_cast<T>(static_cast<Wider<T>>(sum));
    }
    return;
  }
  Scratch<Wider<T>> deltas(weight_rows(shape));
  parallel_for(heads, [&](int64_t head) {
    const int64_t b = head / shape.heads, h = head % shape.heads;
    tiles.deltas(shape_of(shape, b), own_args(shape, b, args), b, h,
                 deltas.data() + weight_row(shape, b, h, 0));
  });
  const bool wants_keys = args.dk.data != nullptr || args.dv.data != nullptr;
  const int64_t key_tiles = wants_keys ? groups * key_blocks : 0;
  const int64_t query_tiles = args.dq.data != nullptr ? heads * query_blocks : 0;
  parallel_for(key_tiles + query_tiles, [&](int64_t tile) {
    const bool of_keys = tile < key_tiles;
    const int64_t blocks = of_keys ? key_blocks : query_blocks;
    const int64_t heads_of = of_keys ? shape.kv_heads : shape.heads;
    const int64_t number = of_keys ? tile : tile - key_tiles;
    const int64_t block = number % blocks, head = number / blocks % heads_of;
    const int64_t b = number / blocks / heads_of;
    const AttentionShape own = shape_of(shape, b);
    if (block * (of_keys ? kBackwardKeys : kBackwardQueries) >=
        (of_keys ? own.keys : own.queries)) {
      return;
    }
    (of_keys ? tiles.keys : tiles.queries)(own, own_args(shape, b, args), deltas.data(), b, head,
                                           block);
  });
}

template void attention_backward(Cpu, const AttentionShape&, const AttentionBackward<float>&);
template void attention_backward(Cpu, const AttentionShape&, const AttentionBackward<double>&);
template void attention_backward(Cpu, const AttentionShape&, const AttentionBackward<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
