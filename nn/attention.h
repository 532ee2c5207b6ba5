#pragma once

#include <vector>

#include "core/option_report.h"
#include "nn/key_value_cache.h"
#include "nn/layers.h"
#include "nn/position_table.h"

namespace tapestry {

/// While it lives, attention layers called on its thread store their weights here, in the order of
/// the calls. attention_reference() computes them in addition to the fused operation.
class AttentionRecorder {
 public:
  AttentionRecorder();
  ~AttentionRecorder();
  AttentionRecorder(const AttentionRecorder&) = delete;
  AttentionRecorder& operator=(const AttentionRecorder&) = delete;

  /// (B, H, T, S) each.
  const std::vector<Tensor>& weights() const { return weights_; }

  /// Layers call it with the arguments of attention(). It does nothing without a live recorder.
  static void record(const Var& q, const Var& k, const Var& v, const AttentionOptions& options);
  /// Whether one is alive, for layers that have weights anyway and give them by add().
  static bool listens();
  /// (B, H, T, S).
  static void add(const Tensor& weights);

 private:
  std::vector<Tensor> weights_;
};

/// Multi-head attention (Vaswani et al. 2017, 3.2.2), its query, key and value projections packed
/// in one matrix. With fewer key/value heads than heads it is grouped-query attention (Ainslie et
/// al. 2023), with one it is multi-query attention (Shazeer 2019).
struct MultiHeadAttention {
  struct Options {
    int64_t hidden_size = 0;
    int64_t heads = 1;
    int64_t kv_heads = 0;  ///< 0: as many as heads
    double dropout = 0;    ///< of the attention weights
    bool bias = true;
    MatrixInit in_init = {}, out_init = {};
    /// Of self-attention: rotary positions whose rows are made at once, others as needed; 0:
    /// queries and keys are not rotated.
    int64_t rope_positions = 0;
    double rope_theta = 10000;
    RopeLayout rope_layout = RopeLayout::kHalf;
    int64_t head_size() const { return hidden_size / heads; }
    int64_t kv_width() const { return 2 * (kv_heads == 0 ? heads : kv_heads) * head_size(); }
  };
  /// heads must divide hidden_size and kv_heads heads, and heads with rotary positions have an even
  /// size. Members are called as in ModelOptions.
  static void validate(const Options& options,
                       const OptionReport& report = OptionReport::throwing("attention"));
};

/// Keys, values and queries all come from x (B, T, D).
struct SelfAttention {
  using Options = MultiHeadAttention::Options;
  SelfAttention(const Options& options, const ParamScope& scope);

  Var operator()(const Var& x, const Tensor& lengths, bool causal) const;
  /// n more tokens x (R, n, D) after those in the cache, n > 1 only while it is empty. Causal. For
  /// decoding only: no gradient flows into the cache.
  Var step(const Var& x, KeyValueCache& cache) const;

  Options options;
  Linear qkv, out;
  PositionTable rope_angles;  ///< (positions, K) or undefined

 private:
  Var project(const Var& x, int64_t position_offset) const;
};

/// Queries come from x (B, T, D), keys and values from a memory (B, S, D).
struct CrossAttention {
  using Options = MultiHeadAttention::Options;
  CrossAttention(const Options& options, const ParamScope& scope);

  Var operator()(const Var& x, const Var& memory, const Tensor& memory_lengths) const {
    return attend(x, kv(memory), memory_lengths);
  }
  /// With the memory's keys and values, kv(memory), computed before.
  Var attend(const Var& x, const Var& memory_kv, const Tensor& memory_lengths) const;

  Options options;
  Linear q, kv, out;
};

}  // namespace tapestry
