// A stack of self-attention layers over embedded tokens: the encoder of an encoder-decoder, a
// causal language model (GPT-2, Llama) and a masked one (BERT) without their heads.
#pragma once

#include <optional>
#include <vector>

#include "nn/attention/position_table.h"
#include "nn/models/layer_attention.h"
#include "nn/models/relative_positions.h"
#include "nn/models/word_tables.h"

namespace tapestry {

/// The table (max_position_embeddings, E) that is added to token embeddings: learned
/// ("<scope>.positions.weight"), or sinusoidal, which grows. Undefined if attention computes
/// positions, or if there are none.
PositionTable position_table(const ModelOptions& options, const ParamScope& scope);

/// Token embedding with positions, segments, norm and dropout, and, if its tables are narrow, the
/// matrix that widens it.
struct InputEmbedding {
  InputEmbedding(const ModelOptions& options, const WeightMatrix& table, const ParamScope& scope);
  /// ids (B, T); segments (B, T) in [0, type_vocab_size), or undefined: all 0 -> (B, T, D).
  Var operator()(const Tensor& ids, const Positions& positions = 0,
                 const Tensor& segments = {}) const;

  WeightMatrix table;
  Var segment_table;
  PositionTable positions;
  EmbeddingOptions options;
  std::vector<Norm> norm;            ///< one with embedding_norm, else none
  std::optional<Linear> projection;  ///< (E -> D) with embedding_size, "embedding_projection"

 private:
  /// (B, T, E).
  Var narrow(const Tensor& ids, const Positions& positions, const Tensor& segments) const;
};

/// Self-attention and feed-forward network (Vaswani et al. 2017, 3.1).
struct EncoderLayer {
  EncoderLayer(const ModelOptions& options, const ParamScope& scope);
  /// x (B, T, D), lengths (B) or undefined -> (B, T, D).
  Var operator()(const Var& x, const Tensor& lengths, bool causal = false,
                 const AttentionContext& context = {}) const;
  /// A step of decoding, x (R, n, D). Causal.
  Var step(const Var& x, KeyValueCache& cache, const DecodingStep& step,
           const AttentionContext& context = {}) const;

  ResidualScalars residual_scalars;
  LayerAttention self_attention;
  Residual self_attention_norm;
  FeedForward feed_forward;
  Residual feed_forward_norm;
  bool parallel;     ///< ModelOptions::parallel_residual
  bool shared_norm;  ///< self_attention_norm is that of both

 private:
  /// x and what `attend` and the feed-forward network add to it.
  template <class F>
  Var run(const Var& x, F&& attend) const {
    if (shared_norm) {
      const Var y = (*self_attention_norm.norm)(x);
      return x + dropout(attend(y), self_attention_norm.dropout) +
             feed_forward_norm.branch(y, feed_forward);
    }
    if (parallel) {
      return x + self_attention_norm.branch(x, attend) + feed_forward_norm.branch(x, feed_forward);
    }
    return feed_forward_norm(self_attention_norm(x, attend), feed_forward);
  }
};

/// A stack of layers over embeddings of any kind, with the norm behind them.
struct EncoderStack {
  /// options.num_hidden_layers layers.
  EncoderStack(const ModelOptions& options, bool causal, const ParamScope& scope);
  /// x (B, T, D), lengths (B) or undefined -> (B, T, D). Its own biases replace the context's.
  Var operator()(Var x, const Tensor& lengths = {}, AttentionContext context = {}) const;

  bool causal;
  bool recompute;  ///< ModelOptions::recompute
  /// Their statistics are those of all places of a batch, padding among them.
  bool batch_norms;
  RelativePositions relative_positions;
  std::vector<EncoderLayer> layers;
  std::vector<Norm> norm;  ///< one with ModelOptions::has_final_norm(), else none
};

struct Trunk {
  /// A stack over the embedding `table` (V, E).
  Trunk(const ModelOptions& options, const WeightMatrix& table, bool causal,
        const ParamScope& scope);
  /// ids (B, T) int32, lengths (B) or undefined, segments as in InputEmbedding -> (B, T, D). What
  /// stands behind the end of a row is a number, but means nothing. Sequences of the context lie in
  /// the rows one after the other, all B * T tokens, and take the place of lengths.
  Var operator()(const Tensor& ids, const Tensor& lengths = {}, const Tensor& segments = {},
                 AttentionContext context = {}) const;
  /// A step of decoding: ids (R, n) -> (R, n, D). One cache per layer. Only for causal trunks; only
  /// the prefix of the context counts, for first tokens.
  Var step(const Tensor& ids, std::vector<KeyValueCache>& caches, const DecodingStep& step,
           AttentionContext context = {}) const;

  InputEmbedding embedding;
  EncoderStack stack;
};

}  // namespace tapestry
