// Guided alignment (Chen et al. 2016; of one head of a Transformer, Garg et al. 2019): attention
// learns from alignments which source tokens a target token translates.
#pragma once

#include "autograd/ops.h"

namespace tapestry {

/// What one head of a decoder layer should attend to.
struct GuidedAlignment {
  /// (B, T, S) float32: place t is the decoder's that predicts target token t, and its row has the
  /// shares of the source tokens, which sum to the weight of the token, or zeros: it then does not
  /// count. Undefined: none.
  Tensor shares = {};
  Tensor hidden = {};  ///< hidden_keys() of the source
  double weight = 0;   ///< of its loss beside that of the translation

  bool exists() const { return shares.defined(); }
};

/// What is added to scores so that keys at or after the length get no weight: lengths (B) int32 in
/// host memory -> (B, 1, keys) float32.
Tensor hidden_keys(const Tensor& lengths, int64_t keys);

/// The attention of the first head, as fused attention does not give it.
struct GuidedHead {
  Tensor hidden;    ///< as GuidedAlignment::hidden
  Var log_weights;  ///< (B, T, S), set by the layer: float32, or float64 of such scores

  /// Sets the weights by the scores of q (B, T, K) and k (B, S, K), which `options` scale and cap.
  void attend(const Var& q, const Var& k, const AttentionOptions& options);
};

/// Adds to a loss `weight` times the cross-entropy between the shares and the attention: -sum of
/// share * log(attention) over the normalizer, by which the loss itself is divided (0: its tokens).
/// log_attention (passes * B, T, S): of R-Drop's two passes, whose mean counts, or the only one.
/// `sums` get a fifth entry: the cross-entropy without its weight and divisor.
CrossEntropy with_alignment(CrossEntropy loss, const Var& log_attention,
                            const GuidedAlignment& guided, double normalizer);

}  // namespace tapestry
