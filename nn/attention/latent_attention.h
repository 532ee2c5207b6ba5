// Multi-head latent attention with decoupled rotary positions (DeepSeek-V2, DeepSeek-AI 2024, 2.1).
// More letters: C the size of a key/value latent, R of the rotary part of a head.
#pragma once

#include <optional>

#include "nn/attention/attention.h"

namespace tapestry {

/// Keys and values come from one latent of C numbers per token, c = RMSnorm(W_down x). With rot()
/// the rotation by the position, head h has the key [rot(W_kr x); W_uk,h c], whose rotary part all
/// heads share, and the value W_uv,h c. Its query is [rot(W_qr,h z); W_q,h z], z = x or a normed
/// latent of x. Decoding keeps only c and the rotary key: C + R numbers per token for all heads
/// together.
struct LatentAttention {
  struct Options {
    int64_t hidden_size = 0;
    int64_t heads = 1;
    int64_t head_size = 0;        ///< K, of the part that is not rotated; 0: hidden_size / heads
    int64_t value_head_size = 0;  ///< 0: K
    int64_t window = 0;           ///< AttentionOptions::window; 0: none
    int64_t kv_latent_size = 0;   ///< C
    int64_t q_latent_size = 0;    ///< 0: queries come from x itself
    int64_t rope_head_size = 0;   ///< R, even; 0: no rotary part
    double norm_eps = 1e-5;       ///< of the latents' RMS norms
    double dropout = 0;           ///< of the attention weights
    bool bias = true;             ///< bias of the output projection; the others have none
    MatrixInit in_init = {}, out_init = {};
    int64_t rope_positions = 0;  ///< number of rotary positions whose rows are made at once
    double rope_theta = 10000;
    RopeScaling rope_scaling = {};
    RopeLayout rope_layout = RopeLayout::kHalf;

    int64_t cache_width() const { return kv_latent_size + rope_head_size; }
  };

  /// The sizes must fit each other. Members are called as in ModelOptions.
  static void validate(const Options& options,
                       const OptionReport& report = OptionReport::throwing("attention"));

  /// Throws as validate() does.
  LatentAttention(const Options& options, const ParamScope& scope);

  /// x (B, T, D), lengths (B) or undefined -> (B, T, D).
  Var operator()(const Var& x, const Tensor& lengths, bool causal,
                 const AttentionContext& context = {}) const;
  /// See SelfAttention::step().
  Var step(const Var& x, KeyValueCache& cache, const DecodingStep& step,
           const AttentionContext& context = {}) const;

  /// The source of keys and values.
  struct Latents {
    Var latent;    ///< (B, S, C)
    Var rope_key;  ///< (B, S, R), rotated; undefined if R = 0
    /// Side by side as the cache holds them: (B, S, R + C), the rotary key first.
    Var packed() const { return rope_key.defined() ? concat({rope_key, latent}, 2) : latent; }
  };
  /// x (B, S, D), its first token at `position`.
  Latents compress(const Var& x, const Positions& position) const;
  /// x (B, T, D), from `position` on, attends to keys and values that are computed in full. Used in
  /// training.
  Var attend(const Var& x, const Positions& position, const Latents& latents,
             AttentionOptions attention) const;
  /// The same with the up-projections absorbed: q . W_uk c = (W_uk^T q) . c, and W_uv is applied to
  /// the weighted sum of latents. All heads read `packed` (B, S, R + C) directly, so for one query
  /// only memory is the limit.
  Var attend_absorbed(const Var& x, const Positions& position, const Var& packed,
                      AttentionOptions attention) const;

  Options options;  ///< with sizes of 0 replaced by their meaning
  std::optional<Linear> q_down;
  std::optional<Norm> q_norm;
  Linear q, kv_down;
  Norm kv_norm;
  Linear k_up, v_up;
  std::optional<Linear> q_rope, k_rope;
  Linear out;
  PositionTable rope_angles;  ///< (positions, R) or undefined

 private:
  struct Queries {
    Var content;  ///< (B, T, H * K)
    Var rotary;   ///< (B, T, H * R), rotated; undefined if R = 0
  };
  Queries queries(const Var& x, const Positions& position) const;
  Var turn(const Var& x, int64_t heads, const Positions& position) const;
};

}  // namespace tapestry
