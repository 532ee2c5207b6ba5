#include "nn/attention/latent_attention.h"

#include <algorithm>
#include <cmath>

#include "core/cpu/portable_bits.h"

namespace tapestry {
namespace {

using Options = LatentAttention::Options;

// Fills in the sizes that are not given.
Options resolved(Options o) {
  if (o.head_size == 0) o.head_size = o.hidden_size / std::max<int64_t>(1, o.heads);
  if (o.value_head_size == 0) o.value_head_size = o.head_size;
  return o;
}

Linear projection(const Options& o, int64_t in, int64_t out, const ParamScope& scope,
                  bool only_multiplies = true) {
  return Linear({.in = in,
                 .out = out,
                 .bias = false,
                 .init = o.in_init,
                 .adaptable = only_multiplies,
                 .packable = only_multiplies},
                scope);
}

Norm latent_norm(const Options& o, int64_t size, const ParamScope& scope) {
  return Norm(size, {{.kind = NormKind::kRms, .eps = o.norm_eps}, /*bias=*/false}, scope);
}

int64_t query_source(const Options& o) {
  return o.q_latent_size > 0 ? o.q_latent_size : o.hidden_size;
}

// (B, T, H * size) -> (B, T, H, size) and back.
Var split_heads(const Var& x, int64_t heads) {
  return reshape(x, {x.shape()[0], x.shape()[1], heads, x.shape()[2] / heads});
}
Var merge_heads(const Var& x) {
  return reshape(x, {x.shape()[0], x.shape()[1], x.shape()[2] * x.shape()[3]});
}

}  // namespace

void LatentAttention::validate(const Options& given, const OptionReport& report) {
  const Options o = resolved(given);
  report.expect(o.heads > 0 && (given.head_size > 0 || o.hidden_size % o.heads == 0), "hidden_size",
                "must be a multiple of num_attention_heads, got ", o.hidden_size, " and ", o.heads,
                '.');
  report.expect(o.kv_latent_size > 0, "kv_latent_size", "must be at least 1, got ",
                o.kv_latent_size, '.');
  report.expect(o.q_latent_size >= 0, "q_latent_size", "must be at least 0, got ", o.q_latent_size,
                '.');
  report.expect(o.rope_head_size >= 0 && o.rope_head_size % 2 == 0, "rope_head_size",
                "must be even, got ", o.rope_head_size, '.');
  report.expect(o.value_head_size >= 0, "value_head_size", "must be at least 0, got ",
                o.value_head_size, '.');
  report.expect(o.window >= 0, "attention_window", "must be at least 0, got ", o.window, '.');
}

LatentAttention::LatentAttention(const Options& given, const ParamScope& scope)
    : options((validate(given), resolved(given))),
      q(projection(options, query_source(options), options.heads * options.head_size, scope / "q")),
      kv_down(projection(options, options.hidden_size, options.kv_latent_size, scope / "kv_down")),
      kv_norm(latent_norm(options, options.kv_latent_size, scope / "kv_norm")),
      k_up(projection(options, options.kv_latent_size, options.heads * options.head_size,
                      scope / "k_up", /*only_multiplies=*/false)),
      v_up(projection(options, options.kv_latent_size, options.heads * options.value_head_size,
                      scope / "v_up", /*only_multiplies=*/false)),
      out({.in = options.heads * options.value_head_size,
           .out = options.hidden_size,
           .bias = options.bias,
           .init = options.out_init},
          scope / "out") {
  const Options& o = options;
  if (o.q_latent_size > 0) {
    q_down.emplace(projection(o, o.hidden_size, o.q_latent_size, scope / "q_down"));
    q_norm.emplace(latent_norm(o, o.q_latent_size, scope / "q_norm"));
  }
  if (o.rope_head_size > 0) {
    q_rope.emplace(projection(o, query_source(o), o.heads * o.rope_head_size, scope / "q_rope"));
    k_rope.emplace(projection(o, o.hidden_size, o.rope_head_size, scope / "k_rope"));
    rope_angles = rotary_positions(o.rope_positions, o.rope_head_size,
                                   {o.rope_theta, o.rope_scaling, o.rope_positions}, scope);
  }
}

Var LatentAttention::turn(const Var& x, int64_t heads, const Positions& at) const {
  return rope(x, rope_angles.rows(at.needed(x.shape()[1])).value(),
              {.heads = heads,
               .position_offset = at.first,
               .position_offsets = at.firsts,
               .positions = at.each,
               .layout = options.rope_layout});
}

LatentAttention::Queries LatentAttention::queries(const Var& x, const Positions& position) const {
  const Var source = q_down ? (*q_norm)((*q_down)(x)) : x;
  return {q(source), q_rope ? turn((*q_rope)(source), options.heads, position) : Var()};
}

LatentAttention::Latents LatentAttention::compress(const Var& x, const Positions& position) const {
  return {kv_norm(kv_down(x)), k_rope ? turn((*k_rope)(x), 1, position) : Var()};
}

Var LatentAttention::operator()(const Var& x, const Tensor& lengths, bool causal,
                                const AttentionContext& context) const {
  return attend(x, context.sequences, compress(x, context.sequences),
                {.causal = causal,
                 .key_lengths = lengths,
                 .dropout = options.dropout,
                 .window = options.window,
                 .prefix_lengths = context.prefix_lengths,
                 .mask = context.mask,
                 .sequences = context.sequences,
                 .relative_bias = context.relative_bias});
}

Var LatentAttention::attend(const Var& x, const Positions& position, const Latents& latents,
                            AttentionOptions attention_options) const {
  const int64_t heads = options.heads;
  attention_options.heads = heads;
  const auto [content, rotary] = queries(x, position);
  Var query = content, key = k_up(latents.latent);
  if (rotary.defined()) {
    query = merge_heads(concat({split_heads(rotary, heads), split_heads(content, heads)}, 3));
    // All heads share one rotary key: broadcasting writes it to each.
    const Var shared = split_heads(latents.rope_key, 1);
    const Var none = Tensor::zeros({heads, options.rope_head_size}, x.dtype(), x.value().device());
    key = merge_heads(concat({shared + none, split_heads(key, heads)}, 3));
  }
  // Any tensor of that shape will do for the values: weights do not depend on them.
  AttentionRecorder::record(query, key, key, attention_options);
  return out(attention(query, key, v_up(latents.latent), attention_options));
}

Var LatentAttention::attend_absorbed(const Var& x, const Positions& position, const Var& packed,
                                     AttentionOptions attention_options) const {
  const int64_t batch = x.shape()[0], length = x.shape()[1], rows = batch * length;
  const int64_t heads = options.heads, latent_size = options.kv_latent_size;
  const int64_t size = options.head_size, rope_size = options.rope_head_size;
  // The head size is that of the absorbed queries, but the scale is that of the original keys.
  attention_options.heads = heads;
  attention_options.kv_heads = 1;
  attention_options.scale = 1 / std::sqrt(static_cast<double>(size + rope_size));
  const auto [content, rotary] = queries(x, position);
  // (H, N, K) times W_uk (H, K, C), and back to (N, H, C).
  const Var by_head = permute(reshape(content, {rows, heads, size}), {1, 0, 2});
  Var query = permute(matmul(by_head, reshape(k_up.weight, {heads, size, latent_size})), {1, 0, 2});
  if (rotary.defined()) query = concat({reshape(rotary, {rows, heads, rope_size}), query}, 2);
  query = reshape(query, {batch, length, heads * options.cache_width()});
  // The latents serve as values. The sums of the rotary keys beside them are cut off below.
  const Var sums = reshape(attention(query, packed, packed, attention_options),
                           {rows, heads, options.cache_width()});
  const Var latents = permute(slice(sums, 2, rope_size, options.cache_width()), {1, 0, 2});
  const Var values =
      matmul(latents, reshape(v_up.weight, {heads, options.value_head_size, latent_size}),
             {.trans_b = true});
  return out(reshape(permute(values, {1, 0, 2}), {batch, length, heads * options.value_head_size}));
}

Var LatentAttention::step(const Var& x, KeyValueCache& cache, const DecodingStep& step,
                          const AttentionContext& context) const {
  const Latents latents = compress(x, step.positions);
  const Tensor packed = latents.packed().value();
  cache.write(packed, 0, packed.shape()[2], step);
  AttentionOptions how{
      .causal = true, .window = options.window, .relative_bias = context.relative_bias};
  if (step.reads_prompts()) {
    how.prefix_lengths = context.prefix_lengths;
    return attend(x, step.positions, latents, how);
  }
  how.key_rows = step.key_rows;
  how.key_lengths = step.lengths;
  const int64_t rope = options.rope_head_size;
  // Absorbed products add in another order than training's.
  if (has_portable_bits()) {
    const Var kept(cache.kv);
    return attend(
        x, step.positions,
        {slice(kept, 2, rope, options.cache_width()), rope > 0 ? slice(kept, 2, 0, rope) : Var()},
        how);
  }
  return attend_absorbed(x, step.positions, cache.kv, how);
}

}  // namespace tapestry
