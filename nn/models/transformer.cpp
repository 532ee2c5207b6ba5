#include "nn/models/transformer.h"

namespace tapestry {

DecoderLayer::DecoderLayer(const ModelOptions& options, const ParamScope& scope)
    : residual_scalars(options, scope / "residual_scalars"),
      self_attention(options, 3 * options.decoder_layers, scope / "self_attention"),
      self_attention_norm(first_residual_options(options), scope / "self_attention_norm"),
      cross_attention(attention_options(options, 3 * options.decoder_layers),
                      scope / "cross_attention"),
      cross_attention_norm(residual_options(options), scope / "cross_attention_norm"),
      feed_forward(feed_forward_options(options, 3 * options.decoder_layers),
                   scope / "feed_forward"),
      feed_forward_norm(residual_options(options), scope / "feed_forward_norm") {}

// Padding in the target needs no mask: it comes after the real tokens, which see no later ones, and
// the loss ignores it.
Var DecoderLayer::operator()(const Var& x, const Var& memory, const Tensor& memory_lengths,
                             const AttentionContext& context, GuidedHead* guided) const {
  const Var h = self_attention_norm(
      x, [&](const Var& x) { return self_attention(x, {}, /*causal=*/true, context); });
  const Var c = cross_attention_norm(
      h, [&](const Var& h) { return cross_attention(h, memory, memory_lengths, {}, guided); });
  return feed_forward_norm(c, feed_forward);
}

Var DecoderLayer::step(const Var& x, DecoderLayerCache& cache, const DecodingStep& step,
                       const DecodingStep& memory, const AttentionContext& context) const {
  const Var h = self_attention_norm(
      x, [&](const Var& x) { return self_attention.step(x, cache.self, step, context); });
  const Var c = cross_attention_norm(
      h, [&](const Var& h) { return cross_attention.step(h, cache.memory, memory); });
  return feed_forward_norm(c, feed_forward);
}

WordTables::WordTables(const ModelOptions& o, const Vocabulary& v, const ParamScope& scope)
    : one((o.tie_word_embeddings || o.share_encoder_decoder_embeddings) && v.shared),
      source(word_table(o, v.source_size,
                        one ? scope / "embedding" : scope / "encoder" / "embedding")),
      target(one ? source : word_table(o, v.target_size, scope / "decoder" / "embedding")),
      output(classifier(o, v.target_size, target, scope)) {
  check(v.shared || !o.share_encoder_decoder_embeddings, "model",
        "share_encoder_decoder_embeddings needs one vocabulary for both sides.");
}

namespace {

ModelOptions encoder_options(ModelOptions options) {
  options.num_hidden_layers = options.encoder_layers;
  options.decoder_self_attention = DecoderSelfAttention::kAttention;
  return options;
}

}  // namespace

EncoderDecoder::EncoderDecoder(const ModelOptions& options, const Vocabulary& vocabulary,
                               const ParamScope& scope)
    : options(options),
      vocabulary(vocabulary),
      words(options, vocabulary, scope),
      encoder(encoder_options(options), words.source, /*causal=*/false, scope / "encoder"),
      target_embedding(options, words.target, scope / "decoder"),
      decoder_positions(options, /*causal=*/true, scope / "decoder" / "relative_positions") {
  for (int64_t i = 0; i < options.decoder_layers; ++i) {
    decoder_layers.emplace_back(options.of_layer(i), scope / "decoder" / "layers" / i);
  }
  if (options.has_final_norm()) {
    decoder_norm.emplace_back(options.hidden_size, norm_options(options),
                              scope / "decoder" / "norm");
  }
}

Var EncoderDecoder::decode(const Tensor& target_in, const Var& memory, const Tensor& source_lengths,
                           GuidedHead* guided) const {
  check(guided == nullptr || options.alignment_layer > 0, "model",
        "an alignment needs an alignment_layer, got 0.");
  // What the guided head gives is needed now.
  const int64_t kept = guided != nullptr ? options.alignment_layer - 1 : -1;
  Var x = run_layers(
      decoder_layers, target_embedding(target_in),
      {.relative_bias = decoder_positions.bias(target_in.shape()[1])}, options.recompute, kept,
      [=](const DecoderLayer& layer, const Var& in, const AttentionContext& context,
          int64_t number) {
        return layer(in, memory, source_lengths, context, number == kept ? guided : nullptr);
      });
  for (const Norm& norm : decoder_norm) x = norm(x);
  return scaled_for_logits(options, x);
}

CrossEntropy EncoderDecoder::loss(const Batch& batch, CrossEntropyOptions options) const {
  const TargetStates states(*this, batch);
  options.ignore_index = vocabulary.no_target;
  return states.with_alignment(words.output.loss(states.hidden, batch.target_out, options),
                               batch.alignment, options.normalizer);
}

void EncoderDecoder::add(const Tensor& source, const Tensor& source_lengths, State& state) const {
  const Device device = source.device();
  const int64_t width = source.shape()[1];
  const std::vector<int32_t> lengths = source_lengths.to_vector<int32_t>();
  const DecodingStep memories = state.memories.add(lengths, width, device);
  state.tokens.add(std::vector<int32_t>(lengths.size(), 0), 0, device);
  state.layers.resize(decoder_layers.size());
  const Var memory = encode(source, source_lengths);
  for (size_t i = 0; i < decoder_layers.size(); ++i) {
    const Tensor kv = decoder_layers[i].cross_attention.keys_and_values(memory).value();
    state.layers[i].memory.write(kv, 0, kv.shape()[2], memories);
  }
}

Var EncoderDecoder::advance(const Tensor& tokens, State& state) const {
  const int64_t rows = tokens.numel();
  const Device device = tokens.device();
  const DecodingStep step = state.tokens.next(device), memory = state.memories.held(device);
  Var x = target_embedding(tokens.reshape({rows, 1}), step.positions);
  const AttentionContext context{.relative_bias = decoder_positions.bias(step.positions.first + 1)};
  x = run_layers(
      decoder_layers, x, context,
      [&](const DecoderLayer& layer, const Var& in, const AttentionContext& own, int64_t i) {
        return layer.step(in, state.layers[size_t(i)], step, memory, own);
      });
  for (const Norm& norm : decoder_norm) x = norm(x);
  return reshape(scaled_for_logits(options, x), {rows, options.hidden_size});
}

void EncoderDecoder::State::select(std::span<const int32_t> sequences) {
  tokens.select(sequences);
  memories.select(sequences);
}

}  // namespace tapestry
