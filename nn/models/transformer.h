// The encoder-decoder Transformer (Vaswani et al. 2017).
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "nn/models/trunk.h"

namespace tapestry {

/// Sizes that come from the tokenizer, not from the config.
struct Vocabulary {
  int64_t source_size = 0;
  int64_t target_size = 0;
  bool shared = true;      ///< one vocabulary for both sides: with tied embeddings, one table
  int32_t no_target = -1;  ///< stands in for a missing target
};

/// The state of a decoder layer between two steps of decoding.
struct DecoderLayerCache {
  KeyValueCache self, memory;
};

struct DecoderLayer {
  DecoderLayer(const ModelOptions& options, const ParamScope& scope);
  /// The context is that of the self-attention, the guided head one of the cross-attention.
  Var operator()(const Var& x, const Var& memory, const Tensor& memory_lengths,
                 const AttentionContext& context = {}, GuidedHead* guided = nullptr) const;
  /// One more token of each sequence: x (R, 1, D), with the memory of each.
  Var step(const Var& x, DecoderLayerCache& cache, const DecodingStep& step,
           const DecodingStep& memory, const AttentionContext& context = {}) const;

  ResidualScalars residual_scalars;
  LayerAttention self_attention;
  Residual self_attention_norm;
  CrossAttention cross_attention;
  Residual cross_attention_norm;
  FeedForward feed_forward;
  Residual feed_forward_norm;
};

/// The matrices of an encoder-decoder with a row per word: the embeddings of both sides and the
/// classifier. Some or all may be one matrix.
struct WordTables {
  WordTables(const ModelOptions& options, const Vocabulary& vocabulary, const ParamScope& scope);

  bool one;  ///< source and target have one vocabulary and one table
  WeightMatrix source, target;
  Linear output;
};

struct EncoderDecoder {
  EncoderDecoder(const ModelOptions& options, const Vocabulary& vocabulary,
                 const ParamScope& scope);

  /// source (B, S) int32, lengths (B) -> (B, S, D).
  Var encode(const Tensor& source, const Tensor& source_lengths) const {
    return encoder(source, source_lengths);
  }
  /// Teacher forcing: target_in (B, T) starts with bos -> hidden states (B, T, D). Sets the weights
  /// of `guided`, if it is given, to those of layer ModelOptions::alignment_layer.
  Var decode(const Tensor& target_in, const Var& memory, const Tensor& source_lengths,
             GuidedHead* guided = nullptr) const;
  /// hidden (..., D) -> logits (..., V).
  Var logits(const Var& hidden) const { return words.output(hidden); }

  struct Batch {
    Tensor source;                   ///< (B, S)
    Tensor source_lengths;           ///< (B)
    Tensor target_in;                ///< (B, T): bos, y_1, ...
    Tensor target_out;               ///< (B, T): y_1, ..., eos, then no target
    GuidedAlignment alignment = {};  ///< needs a ModelOptions::alignment_layer
  };
  /// Cross-entropy of target_out; tokens without target are ignored. With the alignment's, if there
  /// is one.
  CrossEntropy loss(const Batch& batch, CrossEntropyOptions options) const;

  /// The decoding state of R target sequences: their tokens and their sources.
  struct State {
    std::vector<DecoderLayerCache> layers;
    CacheRows tokens, memories;

    /// New sequence i is old sequence sequences[i].
    void select(std::span<const int32_t> sequences);
  };
  /// Adds B sequences without tokens, one for each source.
  void add(const Tensor& source, const Tensor& source_lengths, State& state) const;
  /// Feeds one token to each sequence (R) int32 and returns the hidden states (R, D) ...
  Var advance(const Tensor& tokens, State& state) const;
  /// ... or the logits of the next one (R, V).
  Tensor step(const Tensor& tokens, State& state) const {
    return logits(advance(tokens, state)).value();
  }

  ModelOptions options;
  Vocabulary vocabulary;
  WordTables words;
  Trunk encoder;
  InputEmbedding target_embedding;
  RelativePositions decoder_positions;
  std::vector<DecoderLayer> decoder_layers;
  std::vector<Norm> decoder_norm;  ///< one with ModelOptions::has_final_norm(), else none
};

/// The hidden states of a batch's targets, by an EncoderDecoder or a RnnAttention (which has no
/// alignment), and the attention that its alignment guides.
struct TargetStates {
  template <class Model>
  TargetStates(const Model& model, const EncoderDecoder::Batch& batch)
      : head{batch.alignment.hidden, {}} {
    const Var memory = model.encode(batch.source, batch.source_lengths);
    if constexpr (std::is_same_v<Model, EncoderDecoder>) {
      GuidedHead* const guided = batch.alignment.exists() ? &head : nullptr;
      hidden = model.decode(batch.target_in, memory, batch.source_lengths, guided);
    } else {
      check(!batch.alignment.exists(), "model", "a recurrent model has no guided alignment.");
      hidden = model.decode(batch.target_in, memory, batch.source_lengths);
    }
  }
  /// The loss of these states with that of the alignment, if there is one.
  CrossEntropy with_alignment(CrossEntropy loss, const GuidedAlignment& alignment,
                              double normalizer) const {
    if (!alignment.exists()) return loss;
    return tapestry::with_alignment(std::move(loss), head.log_weights, alignment, normalizer);
  }

  GuidedHead head;
  Var hidden;
};

}  // namespace tapestry
