#include "nn/transformer.h"

namespace tapestry {

DecoderLayer::DecoderLayer(const ModelOptions& options, const ParamScope& scope)
    : self_attention(options, 3 * options.decoder_layers, scope / "self_attention"),
      self_attention_norm(residual_options(options), scope / "self_attention_norm"),
      cross_attention(attention_options(options, 3 * options.decoder_layers),
                      scope / "cross_attention"),
      cross_attention_norm(residual_options(options), scope / "cross_attention_norm"),
      feed_forward(feed_forward_options(options, 3 * options.decoder_layers),
                   scope / "feed_forward"),
      feed_forward_norm(residual_options(options), scope / "feed_forward_norm") {}

// Padding in the target needs no mask: it comes after the real tokens, which see no later ones, and
// the loss ignores it.
Var DecoderLayer::operator()(const Var& x, const Var& memory, const Tensor& memory_lengths,
                             const AttentionContext& context) const {
  const Var h = self_attention_norm(
      x, [&](const Var& x) { return self_attention(x, {}, /*causal=*/true, context); });
  const Var c = cross_attention_norm(
      h, [&](const Var& h) { return cross_attention(h, memory, memory_lengths); });
  return feed_forward_norm(c, feed_forward);
}

Var DecoderLayer::step(const Var& x, const Tensor& memory_lengths, DecoderLayerCache& cache,
                       const AttentionContext& context) const {
  const Var h = self_attention_norm(
      x, [&](const Var& x) { return self_attention.step(x, cache.self, context); });
  // The beams of a sentence are the queries of one attention, so its memory is not repeated.
  const int64_t sentences = memory_lengths.numel(), rows = x.shape()[0], size = x.shape()[2];
  const Var c = cross_attention_norm(h, [&](const Var& h) {
    const Var beams = reshape(h, {sentences, rows / sentences, size});
    return reshape(cross_attention.attend(beams, cache.memory_kv, memory_lengths), {rows, 1, size});
  });
  return feed_forward_norm(c, feed_forward);
}

WordTables::WordTables(const ModelOptions& o, const Vocabulary& v, const ParamScope& scope)
    : one(o.tie_word_embeddings && v.shared),
      source(word_table(o, v.source_size,
                        one ? scope / "embedding" : scope / "encoder" / "embedding")),
      target(one ? source : word_table(o, v.target_size, scope / "decoder" / "embedding")),
      output(classifier(o, v.target_size, target, scope)) {}

namespace {

ModelOptions encoder_options(ModelOptions options) {
  options.num_hidden_layers = options.encoder_layers;
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
    decoder_layers.emplace_back(options, scope / "decoder" / "layers" / i);
  }
  if (options.has_final_norm()) {
    decoder_norm.emplace_back(options.hidden_size, norm_options(options),
                              scope / "decoder" / "norm");
  }
}

Var EncoderDecoder::decode(const Tensor& target_in, const Var& memory,
                           const Tensor& source_lengths) const {
  Var x = target_embedding(target_in);
  const AttentionContext context{.relative_bias = decoder_positions.bias(target_in.shape()[1])};
  for (const DecoderLayer& layer : decoder_layers) {
    x = run_layer(options.recompute, [&layer, x, memory, source_lengths, context] {
      return layer(x, memory, source_lengths, context);
    });
  }
  for (const Norm& norm : decoder_norm) x = norm(x);
  return x;
}

CrossEntropy EncoderDecoder::loss(const Batch& batch, CrossEntropyOptions options) const {
  const Var memory = encode(batch.source, batch.source_lengths);
  const Var hidden = decode(batch.target_in, memory, batch.source_lengths);
  options.ignore_index = vocabulary.no_target;
  return words.output.loss(hidden, batch.target_out, options);
}

EncoderDecoder::State EncoderDecoder::start(const Tensor& source,
                                            const Tensor& source_lengths) const {
  const Var memory = encode(source, source_lengths);
  State state;
  state.memory_lengths = source_lengths;
  for (const DecoderLayer& layer : decoder_layers) {
    state.layers.push_back({{}, layer.cross_attention.kv(memory)});
  }
  return state;
}

Tensor EncoderDecoder::step(const Tensor& tokens, State& state) const {
  const int64_t rows = tokens.numel();
  Var x = target_embedding(tokens.reshape({rows, 1}), state.position);
  const AttentionContext context{.relative_bias = decoder_positions.bias(state.position + 1)};
  for (size_t i = 0; i < decoder_layers.size(); ++i) {
    x = decoder_layers[i].step(x, state.memory_lengths, state.layers[i], context);
  }
  for (const Norm& norm : decoder_norm) x = norm(x);
  ++state.position;
  return logits(reshape(x, {rows, options.hidden_size})).value();
}

void EncoderDecoder::State::select_rows(const Tensor& rows) {
  for (DecoderLayerCache& layer : layers) layer.self.select(rows);
}

void EncoderDecoder::State::select(const Tensor& sentences, const Tensor& rows) {
  select_rows(rows);
  for (DecoderLayerCache& layer : layers) {
    layer.memory_kv = gather_rows(layer.memory_kv.value(), sentences);
  }
  memory_lengths = gather_ids(memory_lengths, sentences);
}

}  // namespace tapestry
