// The recurrent encoder-decoder with additive attention (Bahdanau et al. 2015): a bidirectional GRU
// reads the source; every step of the target attends to its states. It has the interface of
// EncoderDecoder (nn/models/transformer.h).
#pragma once

#include <optional>
#include <vector>

#include "nn/models/transformer.h"

namespace tapestry {

/// A layer of gated recurrent units, one direction or both. The input matrix starts as N(0, 2 / (in
/// + D)), which is Xavier's variance for each gate (Glorot and Bengio 2010). Each gate's state
/// matrix starts as a random orthogonal matrix (Saxe et al. 2014), so that the state neither fades
/// nor grows over the steps.
struct GruLayer {
  struct Options {
    int64_t in = 0;
    int64_t hidden_size = 0;  ///< D
    bool bidirectional = false;
  };

  GruLayer(const Options& options, const ParamScope& scope);
  /// x (T, B, in), time first -> the states (T, B, N*D) of the N directions.
  Var operator()(const Var& x, const GruOptions& options = {}) const {
    return gru(input(x), weight, bias, options);
  }
  /// One step of one direction, from the input's gates (R, 3D) and the state (R, D).
  Var step(const Var& x_gates, const Var& h) const {
    return gru_step(x_gates, linear(h, weight, bias, {.precision = input.precision}), h);
  }

  Linear input;      ///< (N*3D, in): the gates r, z, n of each direction
  Var weight, bias;  ///< (N*3D, D), (N*3D): "recurrent"
};

/// The first layer of the decoder: a GRU whose input is a word and the context to which its
/// previous state attends.
struct AttentiveGru {
  struct Options {
    int64_t hidden_size = 0;  ///< D; of words, states and the scores' hidden layer
    int64_t memory_size = 0;  ///< E
    bool attends = true;      ///< else the memory is one value, which is the context
  };
  /// The values to attend to, with their keys: computed once for all steps.
  struct Memory {
    Var values;      ///< (B, S, E)
    Var keys;        ///< (B, S, D)
    Tensor lengths;  ///< (B)
  };

  AttentiveGru(const Options& options, const ParamScope& scope);
  Memory remember(const Var& values, const Tensor& lengths) const {
    return {values, key ? (*key)(values) : values, lengths};
  }
  /// Attends with the states h (R, D), row r to batch element rows[r] of the memory, or to its own
  /// if `rows` is undefined -> context (R, E), weights (R, S), which are undefined without
  /// attention.
  AttentionWeights attend(const Var& h, const Memory& memory, const Tensor& rows = {}) const {
    if (!key) return {only_value(memory, rows), Var()};
    return additive_attention((*query)(h), memory.keys, memory.values, score, memory.lengths, rows);
  }
  /// word_gates (R, 3D) = word(x) -> the next states (R, D).
  Var step(const Var& word_gates, const Var& context_drawn, const Var& h) const {
    return recurrence.step(word_gates + context(context_drawn), h);
  }
  Var word(const Var& x) const { return recurrence.input(x); }

  GruLayer recurrence;  ///< its input is the word
  Linear context;       ///< (3D, E): the context's part of the gates
  std::optional<Linear> query, key;
  Var score;  ///< (D)

 private:
  static Var only_value(const Memory& memory, const Tensor& rows);
};

/// These options apply: attends, hidden_size, encoder_layers, decoder_layers, tie_word_embeddings,
/// output_bias, scale_embeddings, initializer and initializer_range (of embeddings and classifier)
/// and dropout: of the embeddings, between layers and before the classifier.
struct RnnAttention {
  /// Throws Error(kConfig) when there is no layer on a side.
  RnnAttention(const ModelOptions& options, const Vocabulary& vocabulary, const ParamScope& scope);

  /// source (B, S) int32, lengths (B) -> (B, S, 2D): the states of the forward direction, then
  /// those of the backward one. Behind a row's length a direction keeps its state.
  Var encode(const Tensor& source, const Tensor& source_lengths) const;
  /// Teacher forcing: target_in (B, T) starts with bos -> hidden states (B, T, D): tanh of a linear
  /// layer over state, context and word.
  Var decode(const Tensor& target_in, const Var& memory, const Tensor& source_lengths) const;
  /// hidden (..., D) -> logits (..., V).
  Var logits(const Var& hidden) const { return words.output(hidden); }

  using Batch = EncoderDecoder::Batch;
  /// Cross-entropy of target_out; padding is ignored.
  CrossEntropy loss(const Batch& batch, CrossEntropyOptions options) const;

  /// The decoding state of R target sequences.
  struct State {
    std::vector<Tensor> layers;  ///< (R, D) each
    AttentiveGru::Memory memory;
    std::vector<int32_t> memories;  ///< (R): the batch element of the memory that each reads
    Tensor weights;                 ///< (R, S): attention weights of the last step, if it attends

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
  std::vector<GruLayer> encoder_layers;
  Linear initial;  ///< the decoder's first states are tanh(initial(backward state at token 1))
  AttentiveGru first_layer;
  std::vector<GruLayer> upper_layers;
  Linear readout;

 private:
  Var embed(const Tensor& ids, const WeightMatrix& table) const;
  /// The decoder's memory of the states (B, S, E): all, or the last ones of both directions.
  AttentiveGru::Memory remember(const Var& states, const Tensor& lengths) const;
  /// (B, L*D) for the L layers of the decoder, from a memory.
  Var initial_states(const Var& memory) const;
  /// All (..., D), only the context (..., E).
  Var hidden(const Var& state, const Var& context, const Var& word) const;
};

}  // namespace tapestry
