// The self-attention of a layer as the model options ask for it, and how a stack runs its layers.
#pragma once

#include <variant>
#include <vector>

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

  /// True if it mixes its values with those of the first layer.
  bool mixes_values() const {
    const auto* const attention = std::get_if<SelfAttention>(&kind);
    return attention != nullptr && attention->own_values.defined();
  }

  std::variant<SelfAttention, LatentAttention, Ssru> kind;
};

/// What a layer reads: a x + b x0, of the residual stream x and the embeddings x0 of its stack
/// (ModelOptions::residual_scalars), or x.
struct ResidualScalars {
  ResidualScalars(const ModelOptions& options, const ParamScope& scope);

  Var operator()(const Var& x, const Var& x0) const {
    return stream.defined() ? x * stream + x0 * embeddings : x;
  }

  Var stream, embeddings;  ///< a and b, (1) each, or undefined
};

/// The layers of a stack, one after the other: run(layer, x, context, number) -> Var is called for
/// each, with its input. They keep their activations or, with `recomputed`, compute them again, all
/// but number `kept`.
template <class Layer, class F>
Var run_layers(const std::vector<Layer>& layers, Var x, AttentionContext context, bool recomputed,
               int64_t kept, F run) {
  const bool reads_x0 = std::ssize(layers) > 1 && layers[1].residual_scalars.stream.defined();
  const bool reads_values = std::ssize(layers) > 1 && layers[1].self_attention.mixes_values();
  const Var x0 = reads_x0 ? x : Var();
  Var first_values;
  for (int64_t i = 0; i < std::ssize(layers); ++i) {
    const Layer& layer = layers[static_cast<size_t>(i)];
    // What the first one gives is needed now.
    const bool gives = reads_values && i == 0;
    context.values_out = gives ? &first_values : nullptr;
    const auto run_layer = [&layer, x, x0, context, i, run] {
      return run(layer, layer.residual_scalars(x, x0), context, i);
    };
    x = recomputed && !gives && i != kept ? recompute(run_layer) : run_layer();
    context.first_values = first_values;
  }
  return x;
}

/// The same without a tape that could compute anything again.
template <class Layer, class F>
Var run_layers(const std::vector<Layer>& layers, Var x, const AttentionContext& context, F run) {
  return run_layers(layers, std::move(x), context, /*recomputed=*/false, /*kept=*/-1,
                    std::move(run));
}

}  // namespace tapestry
