#include "nn/attention/attention.h"

#include <algorithm>

#include "core/kernels/elementwise/elementwise.h"

namespace tapestry {
namespace {

thread_local AttentionRecorder* recorder = nullptr;

// Passes packed operands to the recorder, if there is one: queries in the columns of `q` from
// q_column on, keys and values side by side in those of `kv` from kv_column on.
void record_packed(const Var& q, int64_t q_column, const Var& kv, int64_t kv_column,
                   const MultiHeadAttention::Options& sizes, const AttentionOptions& how) {
  if (recorder == nullptr) return;
  const int64_t values = kv_column + sizes.groups() * sizes.head_size();
  AttentionRecorder::record(slice(q, 2, q_column, q_column + sizes.query_width()),
                            slice(kv, 2, kv_column, values),
                            slice(kv, 2, values, kv_column + sizes.kv_width()), how);
}

}  // namespace

AttentionRecorder::AttentionRecorder(bool with_scores) : with_scores_(with_scores) {
  check(recorder == nullptr, "attention", "a recorder is already alive on this thread.");
  recorder = this;
}

AttentionRecorder::~AttentionRecorder() { recorder = nullptr; }

void AttentionRecorder::record(const Var& q, const Var& k, const Var& v,
                               const AttentionOptions& options) {
  if (recorder == nullptr) return;
  const AttentionWeights all = attention_reference(q, k, v, options, recorder->with_scores_);
  recorder->maps_.push_back({.weights = all.weights.value()});
  if (!recorder->with_scores_) return;
  recorder->maps_.back().products = all.products.value();
  recorder->maps_.back().scores = all.scores.value();
}

bool AttentionRecorder::listens() { return recorder != nullptr; }

void AttentionRecorder::add(const Tensor& weights) {
  if (recorder != nullptr) recorder->maps_.push_back({.weights = weights});
}

void MultiHeadAttention::validate(const Options& options, const OptionReport& report) {
  const int64_t heads = options.heads, groups = options.kv_heads == 0 ? heads : options.kv_heads;
  const bool own = options.own_head_size != 0;
  report.expect(options.own_head_size >= 0, "head_size", "must be at least 0, got ",
                options.own_head_size, '.');
  const bool whole =
      report.expect(heads > 0 && (own || options.hidden_size % heads == 0), "hidden_size",
                    "must be a multiple of num_attention_heads without head_size, "
                    "got ",
                    options.hidden_size, " and ", heads, '.');
  report.expect(groups > 0 && heads % groups == 0, "num_key_value_heads",
                "must divide num_attention_heads, got ", groups, " and ", heads, '.');
  const bool all = options.rotary_share == 1, rotates = whole && options.rope_positions > 0;
  report.expect(!rotates || !all || options.head_size() % 2 == 0, own ? "head_size" : "hidden_size",
                "must give heads of even size for rotary positions, got ",
                own ? options.own_head_size : options.hidden_size, " and ", heads, " heads.");
  report.expect(!rotates || all || (options.rotary_size() > 0 && options.rotary_size() % 2 == 0),
                "partial_rotary_factor",
                "must rotate an even number of the numbers of a head, got ", options.rotary_share,
                " of ", options.head_size(), '.');
  report.expect(options.value_head_size >= 0, "value_head_size", "must be at least 0, got ",
                options.value_head_size, '.');
  report.expect(options.window >= 0, "attention_window", "must be at least 0, got ", options.window,
                '.');
}

QueryKeyNorm::QueryKeyNorm(const MultiHeadAttention::Options& options, const ParamScope& scope) {
  if (options.qk_norm == QkNorm::kNone) return;
  const bool each = options.qk_norm == QkNorm::kHead;
  const int64_t size = options.head_size();
  const Norm::Options rms{{.kind = NormKind::kRms, .eps = options.norm_eps},
                          /*bias=*/false,
                          /*biased_running_variance=*/false,
                          /*running_momentum=*/0.1,
                          options.norm_unit_offset};
  q.emplace(each ? size : options.query_width(), rms, scope / "q_norm");
  k.emplace(each ? size : options.groups() * size, rms, scope / "k_norm");
}

Var QueryKeyNorm::normed(const Var& x, const std::optional<Norm>& norm) {
  if (!norm) return x;
  const int64_t size = norm->weight.shape()[0];
  if (x.shape()[-1] == size) return (*norm)(x);
  const Shape& shape = x.shape();
  return reshape((*norm)(reshape(x, {shape[0], shape[1], shape[2] / size, size})), shape);
}

SelfAttention::SelfAttention(const Options& options, const ParamScope& scope)
    : options((MultiHeadAttention::validate(options), options)),
      qkv({.in = options.hidden_size,
           .out = options.query_width() + options.kv_width(),
           .bias = options.bias,
           .init = options.in_init,
           .parts = {options.query_width(), options.groups() * options.head_size(),
                     options.groups() * options.value_size()}},
          scope / "qkv"),
      out({.in = options.heads * options.value_size(),
           .out = options.hidden_size,
           .bias = options.out_bias.value_or(options.bias),
           .init = options.out_init},
          scope / "out"),
      qk_norm(options, scope),
      rope_angles(
          options.rope_positions > 0
              ? rotary_positions(options.rope_positions, options.rotary_size(),
                                 {options.rope_theta, options.rope_scaling, options.rope_positions},
                                 scope)
              : PositionTable()) {
  if (!options.mixes_values) return;
  constexpr Init kHalf{Init::Kind::kConstant, 0.5};
  own_values = scope.create("own_values", {1}, kHalf);
  earlier_values = scope.create("earlier_values", {1}, kHalf);
}

Var SelfAttention::mixed_values(const Var& v, const AttentionContext& context) const {
  if (context.values_out != nullptr) *context.values_out = v;
  if (!own_values.defined()) return v;
  check(context.first_values.defined(), "attention",
        "the values of the first layer are missing: its stack gives them.");
  return v * own_values + context.first_values * earlier_values;
}

// Queries, keys and values side by side; with rotary positions queries and keys are rotated.
Var SelfAttention::project(const Var& x, const Positions& positions,
                           const AttentionContext& context) const {
  Var packed = qkv(x);
  if (qk_norm.exists() || own_values.defined() || context.values_out != nullptr) {
    const int64_t keys = options.query_width(),
                  values = keys + options.groups() * options.head_size();
    const Var q = qk_norm.queries(slice(packed, 2, 0, keys));
    const Var k = qk_norm.keys(slice(packed, 2, keys, values));
    packed = concat({q, k, mixed_values(slice(packed, 2, values, packed.shape()[2]), context)}, 2);
  }
  if (!rope_angles.defined()) return packed;
  return rope(packed, rope_angles.rows(positions.needed(x.shape()[1])).value(),
              {.heads = options.heads + options.groups(),
               .head_size = options.head_size(),
               .position_offset = positions.first,
               .position_offsets = positions.firsts,
               .positions = positions.each,
               .layout = options.rope_layout});
}

Var SelfAttention::operator()(const Var& x, const Tensor& lengths, bool causal,
                              const AttentionContext& context) const {
  const Var packed = project(x, context.sequences, context);
  const AttentionOptions how{.heads = options.heads,
                             .kv_heads = options.kv_heads,
                             .causal = causal,
                             .key_lengths = lengths,
                             .dropout = options.dropout,
                             .scale = options.scale,
                             .softcap = options.softcap,
                             .value_size = options.value_head_size,
                             .window = options.window,
                             .prefix_lengths = context.prefix_lengths,
                             .mask = context.mask,
                             .sequences = context.sequences,
                             .relative_bias = context.relative_bias};
  record_packed(packed, 0, packed, options.query_width(), options, how);
  return out(attention(packed, how));
}

Var SelfAttention::step(const Var& x, KeyValueCache& cache, const DecodingStep& step,
                        const AttentionContext& context) const {
  const int64_t width = options.query_width();
  const Var packed = project(x, step.positions, context);
  cache.write(packed.value(), width, options.kv_width(), step);
  AttentionOptions how{.heads = options.heads,
                       .kv_heads = options.kv_heads,
                       .causal = true,
                       .scale = options.scale,
                       .softcap = options.softcap,
                       .value_size = options.value_head_size,
                       .window = options.window,
                       .relative_bias = context.relative_bias};
  if (step.reads_prompts()) {
    how.prefix_lengths = context.prefix_lengths;
    return out(attention(packed, how));
  }
  how.key_rows = step.key_rows;
  how.key_lengths = step.lengths;
  return out(attention(slice(packed, 2, 0, width), cache.kv, how));
}

CrossAttention::CrossAttention(const Options& options, const ParamScope& scope)
    : options((MultiHeadAttention::validate(options), options)),
      q({.in = options.hidden_size,
         .out = options.query_width(),
         .bias = options.bias,
         .init = options.in_init},
        scope / "q"),
      kv({.in = options.hidden_size,
          .out = options.kv_width(),
          .bias = options.bias,
          .init = options.in_init,
          .parts = {options.groups() * options.head_size(),
                    options.groups() * options.value_size()}},
         scope / "kv"),
      out({.in = options.heads * options.value_size(),
           .out = options.hidden_size,
           .bias = options.out_bias.value_or(options.bias),
           .init = options.out_init},
          scope / "out"),
      qk_norm(options, scope) {}

Var CrossAttention::keys_and_values(const Var& memory) const {
  const Var packed = kv(memory);
  if (!qk_norm.exists()) return packed;
  const int64_t values = options.groups() * options.head_size();
  return concat(
      {qk_norm.keys(slice(packed, 2, 0, values)), slice(packed, 2, values, packed.shape()[2])}, 2);
}

Var CrossAttention::attend(const Var& x, const Var& memory_kv, const Tensor& memory_lengths,
                           const Tensor& mask, GuidedHead* guided) const {
  const AttentionOptions how{.heads = options.heads,
                             .kv_heads = options.kv_heads,
                             .key_lengths = memory_lengths,
                             .dropout = options.dropout,
                             .scale = options.scale,
                             .softcap = options.softcap,
                             .value_size = options.value_head_size,
                             .mask = mask};
  const Var query = qk_norm.queries(q(x));
  record_packed(query, 0, memory_kv, 0, options, how);
  if (guided != nullptr) {
    const int64_t size = options.head_size();
    guided->attend(slice(query, 2, 0, size), slice(memory_kv, 2, 0, size), how);
  }
  return out(attention(query, memory_kv, how));
}

Var CrossAttention::step(const Var& x, const KeyValueCache& memory,
                         const DecodingStep& held) const {
  return out(attention(qk_norm.queries(q(x)), memory.kv,
                       {.heads = options.heads,
                        .kv_heads = options.kv_heads,
                        .key_lengths = held.lengths,
                        .scale = options.scale,
                        .softcap = options.softcap,
                        .value_size = options.value_head_size,
                        .key_rows = held.key_rows}));
}

}  // namespace tapestry
