#include "core/kernels/attention/attention_tiles.h"

#include <algorithm>
#include <utility>

namespace tapestry::kernels {
namespace {

using Side = TileOperand::Side;

constexpr auto room = TileOperand::room;

// Takes `count` elements from `next` on.
BFloat16* take(BFloat16*& next, int64_t count) { return std::exchange(next, next + count); }

void pack(std::optional<TileOperand>& operand, Side side, int64_t length, int64_t k,
          BFloat16* memory, const Factor& rows) {
  operand.emplace(side, length, k, memory);
  operand->pack(rows);
}

}  // namespace

AttentionTileProducts::AttentionTileProducts(int64_t size, int64_t value_size, int64_t most_keys)
    : size_(size),
      value_size_(value_size),
      memory_(room(most_keys, size) + room(value_size, most_keys) +
              room(kTileBlock, std::max(size, most_keys))) {
  BFloat16* next = memory_.data();
  k_memory_ = take(next, room(most_keys, size));
  v_memory_ = take(next, room(value_size, most_keys));
  left_memory_ = next;
}

void AttentionTileProducts::load_keys(HeadRows k, HeadRows v, int64_t count) {
  pack(k_, Side::kRight, count, size_, k_memory_, k.along_k());
  pack(v_, Side::kRight, value_size_, count, v_memory_, v.across_k());
}

void AttentionTileProducts::scores(HeadRows q, int64_t count, int64_t keys, float* scores,
                                   int64_t stride) const {
  TileOperand queries(Side::kLeft, count, size_, left_memory_);
  queries.pack(q.along_k());
  session_.multiply({.a = queries.view(),
                     .b = k_->view({0, keys}, {0, size_}),
                     .c = scores,
                     .ldc = stride,
                     .has_room = true});
}

void AttentionTileProducts::add_values(HeadRows weights, int64_t count, Range keys, float* out,
                                       int64_t stride, bool add) const {
  TileOperand left(Side::kLeft, count, keys.size(), left_memory_);
  left.pack(weights.along_k());
  session_.multiply({.a = left.view(),
                     .b = v_->view({0, value_size_}, keys),
                     .c = out,
                     .ldc = stride,
                     .has_room = true,
                     .add = add});
}

AttentionBackwardTileProducts::AttentionBackwardTileProducts(int64_t size, int64_t value_size,
                                                             int64_t most_queries,
                                                             int64_t most_keys)
    : size_(size),
      value_size_(value_size),
      memory_(room(most_keys, size) + room(most_keys, value_size) + room(size, most_keys) +
              room(most_queries, size) + room(most_queries, value_size) + room(size, most_queries) +
              room(value_size, most_queries) + room(most_keys, most_queries)) {
  BFloat16* next = memory_.data();
  k_memory_ = take(next, room(most_keys, size));
  v_memory_ = take(next, room(most_keys, value_size));
  dq_memory_ = take(next, room(size, most_keys));
  q_memory_ = take(next, room(most_queries, size));
  d_out_memory_ = take(next, room(most_queries, value_size));
  dk_memory_ = take(next, room(size, most_queries));
  dv_memory_ = take(next, room(value_size, most_queries));
  left_memory_ = next;
}

void AttentionBackwardTileProducts::load_keys(HeadRows k, HeadRows v, int64_t count) {
  pack(k_for_scores_, Side::kRight, count, size_, k_memory_, k.along_k());
  pack(v_for_weights_, Side::kRight, count, value_size_, v_memory_, v.along_k());
  pack(k_for_dq_, Side::kRight, size_, count, dq_memory_, k.across_k());
}

void AttentionBackwardTileProducts::load_queries(HeadRows q, HeadRows d_out, int64_t count) {
  queries_ = count;
  pack(q_for_scores_, Side::kLeft, count, size_, q_memory_, q.along_k());
  pack(d_out_for_weights_, Side::kLeft, count, value_size_, d_out_memory_, d_out.along_k());
  pack(q_for_dk_, Side::kRight, size_, count, dk_memory_, q.across_k());
  pack(d_out_for_dv_, Side::kRight, value_size_, count, dv_memory_, d_out.across_k());
}

void AttentionBackwardTileProducts::weights(int64_t query, int64_t keys, float* scores,
                                            float* d_weights, int64_t stride) const {
  const Range strip{query, std::min(query + kTileBlock, queries_)};
  session_.multiply({.a = q_for_scores_->view(strip, {0, size_}),
                     .b = k_for_scores_->view({0, keys}, {0, size_}),
                     .c = scores,
                     .ldc = stride,
                     .has_room = true});
  session_.multiply({.a = d_out_for_weights_->view(strip, {0, value_size_}),
                     .b = v_for_weights_->view({0, keys}, {0, value_size_}),
                     .c = d_weights,
                     .ldc = stride,
                     .has_room = true});
}

void AttentionBackwardTileProducts::add_key_gradients(HeadRows weights, HeadRows d_scores,
                                                      Range keys, float* dk, int64_t dk_stride,
                                                      float* dv, int64_t dv_stride) const {
  TileOperand left(Side::kLeft, keys.size(), queries_, left_memory_);
  if (dv != nullptr) {
    left.pack(weights.across_k().from(keys.begin, 0));
    session_.multiply({.a = left.view(),
                       .b = d_out_for_dv_->view(),
                       .c = dv + keys.begin * dv_stride,
                       .ldc = dv_stride,
                       .has_room = true,
                       .add = true});
  }
  if (dk != nullptr) {
    left.pack(d_scores.across_k().from(keys.begin, 0));
    session_.multiply({.a = left.view(),
                       .b = q_for_dk_->view(),
                       .c = dk + keys.begin * dk_stride,
                       .ldc = dk_stride,
                       .has_room = true,
                       .add = true});
  }
}

void AttentionBackwardTileProducts::query_gradients(HeadRows d_scores, int64_t count, Range keys,
                                                    float* dq, int64_t stride, bool add) const {
  TileOperand left(Side::kLeft, count, keys.size(), left_memory_);
  left.pack(d_scores.along_k());
  session_.multiply({.a = left.view(),
                     .b = k_for_dq_->view({0, size_}, keys),
                     .c = dq,
                     .ldc = stride,
                     .has_room = true,
                     .add = add});
}

}  // namespace tapestry::kernels
