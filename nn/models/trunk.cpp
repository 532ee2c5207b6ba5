#include "nn/models/trunk.h"

#include <cmath>

#include "nn/layers/unpadded.h"

namespace tapestry {

PositionTable position_table(const ModelOptions& o, const ParamScope& scope) {
  switch (o.position_embedding) {
    case PositionEmbedding::kSinusoidal:
      return {o.max_position_embeddings,
              [size = o.embedding_width(), dtype = scope.dtype(), device = scope.device()](
                  int64_t rows) { return sinusoidal_positions(rows, size, dtype, device); }};
    case PositionEmbedding::kFairseq:
      return {o.max_position_embeddings,
              [size = o.embedding_width(), dtype = scope.dtype(), device = scope.device()](
                  int64_t rows) { return fairseq_positions(rows, size, dtype, device); }};
    case PositionEmbedding::kLearned:
      return PositionTable(embedding_table(o, o.max_position_embeddings, scope / "positions"));
    case PositionEmbedding::kRope:
    case PositionEmbedding::kAlibi:
    case PositionEmbedding::kRelative:
    case PositionEmbedding::kNone:
      break;
  }
  return {};
}

InputEmbedding::InputEmbedding(const ModelOptions& o, const WeightMatrix& table,
                               const ParamScope& scope)
    : table(table),
      positions(position_table(o, scope)),
      options{.scale = o.scale_embeddings ? std::sqrt(double(o.embedding_width())) : 1.0,
              .dropout = o.dropout,
              .position_offset = 0} {
  if (o.type_vocab_size > 0) {
    segment_table = embedding_table(o, o.type_vocab_size, scope / "segments");
  }
  if (o.embedding_norm) {
    norm.emplace_back(o.embedding_width(), norm_options(o), scope / "embedding_norm");
  }
  if (o.embedding_size > 0) {
    projection.emplace(Linear::Options{.in = o.embedding_size,
                                       .out = o.hidden_size,
                                       .init = matrix_init(o),
                                       .adaptable = false,
                                       .hidden = false},
                       scope / "embedding_projection");
  }
}

Var InputEmbedding::operator()(const Tensor& ids, const Positions& at,
                               const Tensor& segments) const {
  const Var x = narrow(ids, at, segments);
  return projection ? (*projection)(x) : x;
}

Var InputEmbedding::narrow(const Tensor& ids, const Positions& at, const Tensor& segments) const {
  EmbeddingOptions at_offset = options;
  at_offset.position_offset = at.first;
  at_offset.position_offsets = at.firsts;
  at_offset.positions = at.each;
  const Var rows = positions.rows(at.needed(ids.shape()[1]));
  if (!segment_table.defined() && norm.empty()) return table.look_up(ids, rows, at_offset);
  at_offset.dropout = 0;  // dropout comes last, after the sum
  Var x = table.look_up(ids, rows, at_offset);
  if (segment_table.defined()) {
    x = x + (segments.defined() ? embedding(segments, segment_table)
                                : reshape(slice(segment_table, 0, 0, 1), {x.shape()[2]}));
  }
  for (const Norm& f : norm) x = f(x);
  return dropout(x, options.dropout);
}

EncoderLayer::EncoderLayer(const ModelOptions& o, const ParamScope& scope)
    : residual_scalars(o, scope / "residual_scalars"),
      self_attention(o, 2 * o.num_hidden_layers, scope / "self_attention"),
      self_attention_norm(first_residual_options(o), scope / "self_attention_norm"),
      feed_forward(feed_forward_options(o, 2 * o.num_hidden_layers), scope / "feed_forward"),
      feed_forward_norm(o.shared_norm ? unnormed_residual_options(o) : residual_options(o),
                        scope / "feed_forward_norm"),
      parallel(o.parallel_residual),
      shared_norm(o.shared_norm) {}

Var EncoderLayer::operator()(const Var& x, const Tensor& lengths, bool causal,
                             const AttentionContext& context) const {
  return run(x, [&](const Var& x) { return self_attention(x, lengths, causal, context); });
}

Var EncoderLayer::step(const Var& x, KeyValueCache& cache, const DecodingStep& step,
                       const AttentionContext& context) const {
  return run(x, [&](const Var& x) { return self_attention.step(x, cache, step, context); });
}

EncoderStack::EncoderStack(const ModelOptions& options, bool causal, const ParamScope& scope)
    : causal((options.validate(), causal)),
      recompute(options.recompute),
      batch_norms(options.norm == NormKind::kBatch),
      relative_positions(options, causal, scope / "relative_positions") {
  for (int64_t i = 0; i < options.num_hidden_layers; ++i) {
    layers.emplace_back(options.of_layer(i), scope / "layers" / i);
  }
  if (options.has_final_norm()) {
    norm.emplace_back(options.hidden_size, norm_options(options), scope / "norm");
  }
}

Var EncoderStack::operator()(Var x, const Tensor& lengths, AttentionContext context) const {
  const Sequences& sequences = context.sequences;
  context.relative_bias =
      relative_positions.bias(sequences.defined() ? sequences.longest : x.shape()[1]);
  x = run_layers(
      layers, x, context, recompute, /*kept=*/-1,
      [this, lengths](const EncoderLayer& layer, const Var& in, const AttentionContext& own,
                      int64_t) { return layer(in, lengths, causal, own); });
  for (const Norm& f : norm) x = f(x);
  return x;
}

Trunk::Trunk(const ModelOptions& options, const WeightMatrix& table, bool causal,
             const ParamScope& scope)
    : embedding(options, table, scope), stack(options, causal, scope) {}

Var Trunk::operator()(const Tensor& ids, const Tensor& lengths, const Tensor& segments,
                      AttentionContext context) const {
  if (context.sequences.defined()) {
    const Shape joined{1, ids.numel()};
    const Tensor kinds = segments.defined() ? segments.reshape(joined) : Tensor();
    const Var x = stack(embedding(ids.reshape(joined), context.sequences, kinds), {}, context);
    return reshape(x, {ids.shape()[0], ids.shape()[1], x.shape()[2]});
  }
  const bool whole = context.mask.defined() || stack.batch_norms || AttentionRecorder::listens();
  const auto unpadded = whole ? std::nullopt : Unpadded::of(ids, lengths);
  if (!unpadded) return stack(embedding(ids, 0, segments), lengths, context);
  context.sequences = unpadded->sequences();
  return unpadded->with_padding(
      stack(embedding(unpadded->tokens_of(ids), context.sequences, unpadded->tokens_of(segments)),
            {}, context));
}

Var Trunk::step(const Tensor& ids, std::vector<KeyValueCache>& caches, const DecodingStep& step,
                AttentionContext context) const {
  check(stack.causal, "trunk", "only a causal model can be fed step by step.");
  caches.resize(stack.layers.size());
  context.relative_bias = stack.relative_positions.bias(step.positions.first + ids.shape()[1]);
  Var x = embedding(ids, step.positions);
  x = run_layers(stack.layers, std::move(x), context,
                 [&](const EncoderLayer& layer, const Var& in, const AttentionContext& own,
                     int64_t i) { return layer.step(in, caches[size_t(i)], step, own); });
  for (const Norm& f : stack.norm) x = f(x);
  return x;
}

}  // namespace tapestry
