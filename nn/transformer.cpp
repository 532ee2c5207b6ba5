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

// Padding in the target needs no mask: a real token never looks ahead to it, and the loss ignores
// it.
Var DecoderLayer::operator()(const Var& x, const Var& memory, const Tensor& memory_lengths) const {
  const Var h =
      self_attention_norm(x, [&](const Var& x) { return self_attention(x, {}, /*causal=*/true); });
  const Var c = cross_attention_norm(
      h, [&](const Var& h) { return cross_attention(h, memory, memory_lengths); });
  return feed_forward_norm(c, feed_forward);
}

Var DecoderLayer::step(const Var& x, const Tensor& memory_lengths, DecoderLayerCache& cache) const {
  const Var h =
      self_attention_norm(x, [&](const Var& x) { return self_attention.step(x, cache.self); });
  // The beams of a sentence are the queries of one attention: its memory is never repeated.
  const int64_t sentences = memory_lengths.numel(), rows = x.shape()[0], size = x.shape()[2];
  const Var c = cross_attention_norm(h, [&](const Var& h) {
    const Var beams = reshape(h, {sentences, rows / sentences, size});
    return reshape(cross_attention.attend(beams, cache.memory_kv, memory_lengths), {rows, 1, size});
  });
  return feed_forward_norm(c, feed_forward);
}

namespace {

bool one_table(const ModelOptions& options, const Vocabulary& vocabulary) {
  return options.tie_word_embeddings && vocabulary.shared;
}

Var make_source_table(const ModelOptions& o, const Vocabulary& v, const ParamScope& scope) {
  return embedding_table(o, v.source_size,
                         one_table(o, v) ? scope / "embedding" : scope / "encoder" / "embedding");
}

Var make_target_table(const ModelOptions& o, const Vocabulary& v, const Var& source_table,
                      const ParamScope& scope) {
  if (one_table(o, v)) return source_table;
  return embedding_table(o, v.target_size, scope / "decoder" / "embedding");
}

Var make_output(const ModelOptions& o, const Vocabulary& v, const Var& target_table,
                const ParamScope& scope) {
  if (o.tie_word_embeddings) return target_table;
  return Linear({.in = o.hidden_size,
                 .out = v.target_size,
                 .bias = false,
                 .deviation = o.initializer_range},
                scope / "output")
      .weight;
}

ModelOptions encoder_options(ModelOptions options) {
  options.num_hidden_layers = options.encoder_layers;
  return options;
}

}  // namespace

EncoderDecoder::EncoderDecoder(const ModelOptions& options, const Vocabulary& vocabulary,
                               const ParamScope& scope)
    : options(options),
      vocabulary(vocabulary),
      source_table(make_source_table(options, vocabulary, scope)),
      target_table(make_target_table(options, vocabulary, source_table, scope)),
      output(make_output(options, vocabulary, target_table, scope)),
      encoder(encoder_options(options), source_table, /*causal=*/false, scope / "encoder"),
      target_embedding(options, target_table, scope / "decoder") {
  for (int64_t i = 0; i < options.decoder_layers; ++i) {
    decoder_layers.emplace_back(options, scope / "decoder" / "layers" / i);
  }
  if (options.norm_position == NormPosition::kPre) {
    decoder_norm.emplace_back(options.hidden_size, norm_options(options),
                              scope / "decoder" / "norm");
  }
}

Var EncoderDecoder::decode(const Tensor& target_in, const Var& memory,
                           const Tensor& source_lengths) const {
  Var x = target_embedding(target_in);
  for (const DecoderLayer& layer : decoder_layers) x = layer(x, memory, source_lengths);
  for (const Norm& norm : decoder_norm) x = norm(x);
  return x;
}

CrossEntropy EncoderDecoder::loss(const Batch& batch, CrossEntropyOptions options) const {
  const Var memory = encode(batch.source, batch.source_lengths);
  const Var hidden = decode(batch.target_in, memory, batch.source_lengths);
  options.ignore_index = vocabulary.pad_id;
  return linear_cross_entropy(hidden, output, {}, batch.target_out, options);
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
  for (size_t i = 0; i < decoder_layers.size(); ++i) {
    x = decoder_layers[i].step(x, state.memory_lengths, state.layers[i]);
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
  const int32_t* keep = sentences.data<int32_t>();
  std::vector<int32_t> lengths(static_cast<size_t>(sentences.numel()));
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = memory_lengths.data<int32_t>()[keep[i]];
  }
  memory_lengths = Tensor::from(lengths, {sentences.numel()}, memory_lengths.device());
}

}  // namespace tapestry
