// The self-attention of a layer as the model options ask for it, and how a stack runs its layers.
#pragma once

#include <variant>

#include "autograd/recompute.h"
#include "nn/models/model_options.h"

namespace tapestry {

/// A layer's self-attention: latent if the options give a kv_latent_size, a recurrence in its place
/// if they say so, else multi-head.
struct LayerAttention {
  LayerAttention(const ModelOptions& options, int64_t branches, const ParamScope& scope);

  /// x (B, T, D), lengths (B) or undefined -> (B, T, D).
  Var operator()(const Var& x, const Tensor& lengths, bool causal,
                 const AttentionContext& context = {}) const {
    return std::visit([&](const auto& f) { return f(x, lengths, causal, context); }, kind);
  }
  /// A step of decoding, x (R, n, D).
  Var step(const Var& x, KeyValueCache& cache, const DecodingStep& step,
           const AttentionContext& context = {}) const {
    return std::visit([&](const auto& f) { return f.step(x, cache, step, context); }, kind);
  }

  std::variant<SelfAttention, LatentAttention, Ssru> kind;
};

/// A layer of a stack, f() -> Var, with its activations kept or, on request, computed again.
template <class F>
Var run_layer(bool recomputed, F f) {
  return recomputed ? recompute(std::move(f)) : f();
}

}  // namespace tapestry
