#pragma once

#include <vector>

#include "core/option_report.h"
#include "nn/key_value_cache.h"
#include "nn/layers.h"

namespace tapestry {

/// While it lives, attention layers called on its thread store their weights here, in the order of
/// the calls. attention_reference() computes them in addition to the fused operation.
class AttentionRecorder {
 public:
  /// (B, H, T, S) each; the last two are those of AttentionWeights, or undefined.
  struct Map {
    Tensor weights, products = {}, scores = {};
  };

  explicit AttentionRecorder(bool with_scores = false);
  ~AttentionRecorder();
  AttentionRecorder(const AttentionRecorder&) = delete;
  AttentionRecorder& operator=(const AttentionRecorder&) = delete;

  const std::vector<Map>& maps() const { return maps_; }

  /// Layers call it with the arguments of attention(). It does nothing without a live recorder.
  static void record(const Var& q, const Var& k, const Var& v, const AttentionOptions& options);
  /// True if a recorder is alive. Layers that have weights anyway then give them by add().
  static bool listens();
  /// (B, H, T, S).
  static void add(const Tensor& weights);

 private:
  const bool with_scores_;
  std::vector<Map> maps_;
};

/// The arguments of one call of an attention layer, besides the layer's own options; see
/// AttentionOptions.
struct AttentionContext {
  Tensor mask = {};            ///< (T, S), (B, T, S) or (B, H, T, S), or undefined
  Tensor prefix_lengths = {};  ///< (B) int32 of a causal layer, or undefined
  Var relative_bias = {};      ///< (H, 2R - 1) of self-attention, or undefined
};

/// Multi-head attention (Vaswani et al. 2017, 3.2.2), its query, key and value projections packed
/// in one matrix. With fewer key/value heads than heads it is grouped-query attention (Ainslie et
/// al. 2023), with one it is multi-query attention (Shazeer 2019).
struct MultiHeadAttention {
  struct Options {
    int64_t hidden_size = 0;
    int64_t heads = 1;
    int64_t kv_heads = 0;         ///< 0: as many as heads
    int64_t own_head_size = 0;    ///< K, ModelOptions::head_size; 0: hidden_size / heads
    int64_t value_head_size = 0;  ///< Kv; 0: K, as queries and keys
    int64_t window = 0;           ///< AttentionOptions::window of self-attention; 0: none
    double dropout = 0;           ///< of the attention weights
    bool bias = true;
    MatrixInit in_init = {}, out_init = {};
    /// For self-attention: the number of rotary positions whose rows are made at once, others as
    /// needed; 0: queries and keys are not rotated.
    int64_t rope_positions = 0;
    double rope_theta = 10000;
    RopeScaling rope_scaling = {};
    RopeLayout rope_layout = RopeLayout::kHalf;
    int64_t head_size() const { return own_head_size > 0 ? own_head_size : hidden_size / heads; }
    int64_t query_width() const { return heads * head_size(); }
    int64_t value_size() const { return value_head_size > 0 ? value_head_size : head_size(); }
    int64_t groups() const { return kv_heads == 0 ? heads : kv_heads; }
    int64_t kv_width() const { return groups() * (head_size() + value_size()); }
  };
  /// heads must divide hidden_size, unless they have a size of their own, and kv_heads heads, and
  /// heads with rotary positions have an even size. Members are called as in ModelOptions.
  static void validate(const Options& options,
                       const OptionReport& report = OptionReport::throwing("attention"));
};

/// Keys, values and queries all come from x (B, T, D).
struct SelfAttention {
  using Options = MultiHeadAttention::Options;
  SelfAttention(const Options& options, const ParamScope& scope);

  Var operator()(const Var& x, const Tensor& lengths, bool causal,
                 const AttentionContext& context = {}) const;
  /// A step of decoding, x (R, n, D), n = 1 except for first tokens. Causal; of the context only
  /// the prefix is read, for first tokens, and never the mask. No gradient flows into the cache.
  Var step(const Var& x, KeyValueCache& cache, const DecodingStep& step,
           const AttentionContext& context = {}) const;

  Options options;
  Linear qkv, out;
  PositionTable rope_angles;  ///< (positions, K) or undefined

 private:
  Var project(const Var& x, const Positions& positions) const;
};

/// Queries come from x (B, T, D), keys and values from a memory (B, S, D).
struct CrossAttention {
  using Options = MultiHeadAttention::Options;
  CrossAttention(const Options& options, const ParamScope& scope);

  Var operator()(const Var& x, const Var& memory, const Tensor& memory_lengths,
                 const Tensor& mask = {}) const {
    return attend(x, kv(memory), memory_lengths, mask);
  }
  /// With keys and values of the memory that were computed before by kv(memory).
  Var attend(const Var& x, const Var& memory_kv, const Tensor& memory_lengths,
             const Tensor& mask = {}) const;
  /// One token of each sequence, x (R, 1, D), with the memories that a cache holds.
  Var step(const Var& x, const KeyValueCache& memory, const DecodingStep& held) const;

  Options options;
  Linear q, kv, out;
};

}  // namespace tapestry
