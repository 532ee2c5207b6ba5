// The Simpler Simple Recurrent Unit in the place of a decoder's self-attention (Kim et al. 2019,
// "From Research to Production and Back: Ludicrously Fast Neural Machine Translation").
#pragma once

#include "nn/attention/attention.h"

namespace tapestry {

/// f_t = sigmoid(W_f x_t + b_f), c_t = f_t * c_{t-1} + (1 - f_t) * (W x_t), and relu(c_t) is the
/// output: no projection stands behind it. A step of decoding needs the last state only, whatever
/// the sequence's length; the caches keep those of all tokens, so that beams share them.
struct Ssru {
  struct Options {
    int64_t hidden_size = 0;  ///< D
    bool bias = true;         ///< b_f
    MatrixInit init = {};     ///< of W_f and W
  };
  Ssru(const Options& options, const ParamScope& scope);

  /// x (B, T, D) -> (B, T, D). Causal; of the context only the sequences are read. Padding must be
  /// behind the tokens.
  Var operator()(const Var& x, const Tensor& lengths, bool causal,
                 const AttentionContext& context = {}) const;
  /// See SelfAttention::step(). A row of the cache is a token's state, D numbers.
  Var step(const Var& x, KeyValueCache& cache, const DecodingStep& step,
           const AttentionContext& context = {}) const;

  Linear gates_and_values;  ///< W_f, and W below it
  Var gate_bias;            ///< (D), or undefined
};

}  // namespace tapestry
