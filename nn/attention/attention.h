#pragma once

#include <optional>
#include <vector>

#include "core/base/option_report.h"
#include "nn/attention/guided_alignment.h"
#include "nn/attention/key_value_cache.h"
#include "nn/layers/layers.h"

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
  Sequences sequences = {};    ///< of self-attention; prefix_lengths has a number for each
  /// The values (B, T, G * Kv) of the first layer, for a self-attention that mixes its own with
  /// them.
  Var first_values = {};
  Var* values_out = nullptr;  ///< where a self-attention leaves its values
};

/// Normalizes queries and keys (RMSNorm) before they are rotated: no head, each head by itself with
/// one weight for all heads (Qwen3, Gemma 3), or all heads of a token together (OLMo 2). Henry et
/// al. 2020.
enum class QkNorm { kNone, kHead, kProjection };

/// Multi-head attention (Vaswani et al. 2017, 3.2.2), its query, key and value projections packed
/// in one matrix. With fewer key/value heads than heads it is grouped-query attention (Ainslie et
/// al. 2023), with one it is multi-query attention (Shazeer 2019).
struct MultiHeadAttention {
  struct Options {
    int64_t hidden_size = 0;
    int64_t heads = 1;
    int64_t kv_heads = 0;               ///< 0: as many as heads
    int64_t own_head_size = 0;          ///< K, ModelOptions::head_size; 0: hidden_size / heads
    int64_t value_head_size = 0;        ///< Kv; 0: K, as queries and keys
    int64_t window = 0;                 ///< AttentionOptions::window of self-attention; 0: none
    double scale = 0;                   ///< AttentionOptions::scale; 0: 1 / sqrt(K)
    double softcap = 0;                 ///< AttentionOptions::softcap; 0: none
    double dropout = 0;                 ///< of the attention weights
    bool bias = true;                   ///< of queries, keys and values
    std::optional<bool> out_bias = {};  ///< of the projection behind them; unset: as bias
    QkNorm qk_norm = QkNorm::kNone;
    double norm_eps = 1e-5;         ///< of qk_norm
    bool norm_unit_offset = false;  ///< of qk_norm, Norm::Options::unit_offset
    bool mixes_values = false;      ///< of self-attention, ModelOptions::value_residual
    MatrixInit in_init = {}, out_init = {};
    /// For self-attention: the number of rotary positions whose rows are made at once, others as
    /// needed; 0: queries and keys are not rotated.
    int64_t rope_positions = 0;
    double rope_theta = 10000;
    RopeScaling rope_scaling = {};
    RopeLayout rope_layout = RopeLayout::kHalf;
    double rotary_share = 1;  ///< ModelOptions::partial_rotary_factor
    /// The elements of a head that are rotated.
    int64_t rotary_size() const {
      return static_cast<int64_t>(static_cast<double>(head_size()) * rotary_share);
    }
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

/// The norm of queries and that of keys; empty without QkNorm.
struct QueryKeyNorm {
  QueryKeyNorm(const MultiHeadAttention::Options& options, const ParamScope& scope);

  /// queries (B, T, H * K), keys (B, S, G * K): the same shapes.
  Var queries(const Var& x) const { return normed(x, q); }
  Var keys(const Var& x) const { return normed(x, k); }
  bool exists() const { return q.has_value(); }

  std::optional<Norm> q, k;

 private:
  static Var normed(const Var& x, const std::optional<Norm>& norm);
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
  QueryKeyNorm qk_norm;
  PositionTable rope_angles;       ///< (positions, K) or undefined
  Var own_values, earlier_values;  ///< (1) each, their shares with mixes_values, or undefined

 private:
  Var project(const Var& x, const Positions& positions, const AttentionContext& context) const;
  /// What attends instead of v (B, T, G * Kv).
  Var mixed_values(const Var& v, const AttentionContext& context) const;
};

/// Queries come from x (B, T, D), keys and values from a memory (B, S, D).
struct CrossAttention {
  using Options = MultiHeadAttention::Options;
  CrossAttention(const Options& options, const ParamScope& scope);

  Var operator()(const Var& x, const Var& memory, const Tensor& memory_lengths,
                 const Tensor& mask = {}, GuidedHead* guided = nullptr) const {
    return attend(x, keys_and_values(memory), memory_lengths, mask, guided);
  }
  /// memory (B, S, D) -> (B, S, G * (K + Kv)).
  Var keys_and_values(const Var& memory) const;
  /// With the keys and values of the memory, computed before. Sets the weights of `guided`, if it
  /// is given.
  Var attend(const Var& x, const Var& memory_kv, const Tensor& memory_lengths,
             const Tensor& mask = {}, GuidedHead* guided = nullptr) const;
  /// One token of each sequence, x (R, 1, D), with the memories that a cache holds.
  Var step(const Var& x, const KeyValueCache& memory, const DecodingStep& held) const;

  Options options;
  Linear q, kv, out;
  QueryKeyNorm qk_norm;
};

}  // namespace tapestry
