#include "nn/rnn_attention.h"

#include <cmath>

#include "core/parallel.h"

namespace tapestry {
namespace {

// Makes the rows of a random matrix (size, size) orthonormal, by the Gram-Schmidt method: subtracts
// each row's component from all rows after it.
void orthogonalize(double* matrix, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    double* const pivot = matrix + i * size;
    const auto dot = [&](const double* row) {
      double sums[4] = {};  // four independent sums, so that additions overlap
      int64_t c = 0;
      for (; c + 4 <= size; c += 4) {
        for (int64_t lane = 0; lane < 4; ++lane) sums[lane] += row[c + lane] * pivot[c + lane];
      }
      for (; c < size; ++c) sums[0] += row[c] * pivot[c];
      return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    };
    const double norm = std::sqrt(dot(pivot));
    for (int64_t c = 0; c < size; ++c) pivot[c] /= norm;
    parallel_ranges(size - i - 1, std::max<int64_t>(1, 32768 / size),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t j = i + 1 + begin; j < i + 1 + end; ++j) {
                        double* const row = matrix + j * size;
                        const double share = dot(row);
                        for (int64_t c = 0; c < size; ++c) row[c] -= share * pivot[c];
                      }
                    });
  }
}

// "<scope>.weight" (gates * size, size), each gate's matrix orthogonal.
Var orthogonal_weight(int64_t gates, int64_t size, const ParamScope& scope) {
  Var weight = scope.create("weight", {gates * size, size}, Init::normal(1));
  std::vector<double> values = weight.value().to_vector<double>();
  for (int64_t gate = 0; gate < gates; ++gate) {
    orthogonalize(values.data() + gate * size * size, size);
  }
  weight.value().copy_from(
      Tensor::from<double>(values, weight.shape()).to(scope.dtype()).to(scope.device()));
  return weight;
}

MatrixInit gate_init(int64_t in, int64_t size) {
  return MatrixInit::normal(std::sqrt(2.0 / static_cast<double>(in + size)));
}

// Time first or batch first: (A, B, W) -> (B, A, W).
Var swap_axes(const Var& x) { return permute(x, {1, 0, 2}); }

// Step t of (T, B, W).
Var at_time(const Var& x, int64_t t) {
  return reshape(slice(x, 0, t, t + 1), {x.shape()[1], x.shape()[2]});
}

// T steps (B, W) -> (T, B, W).
Var stack(const std::vector<Var>& steps) {
  const Shape& one = steps.at(0).shape();
  return reshape(concat(steps, 0), {static_cast<int64_t>(steps.size()), one[0], one[1]});
}

}  // namespace

GruLayer::GruLayer(const Options& o, const ParamScope& scope)
    : input({.in = o.in,
             .out = 3 * o.hidden_size * (o.bidirectional ? 2 : 1),
             .init = gate_init(o.in, o.hidden_size)},
            scope / "input"),
      weight(orthogonal_weight(o.bidirectional ? 6 : 3, o.hidden_size, scope / "recurrent")),
      bias((scope / "recurrent").create("bias", {weight.shape()[0]}, Init::zeros())) {}

AttentiveGru::AttentiveGru(const Options& o, const ParamScope& scope)
    : recurrence({.in = o.hidden_size, .hidden_size = o.hidden_size}, scope),
      context({.in = o.memory_size,
               .out = 3 * o.hidden_size,
               .bias = false,
               .init = gate_init(o.memory_size, o.hidden_size)},
              scope / "context"),
      query({.in = o.hidden_size, .out = o.hidden_size, .bias = false},
            scope / "attention" / "query"),
      key({.in = o.memory_size, .out = o.hidden_size}, scope / "attention" / "key"),
      score((scope / "attention" / "score")
                .create("weight", {o.hidden_size}, Init::xavier(1, o.hidden_size))) {}

AttentionWeights AttentiveGru::attend(const Var& h, const Memory& memory) const {
  const int64_t rows = h.shape()[0], sentences = memory.keys.shape()[0];
  if (rows == sentences) {
    return additive_attention(query(h), memory.keys, memory.values, score, memory.lengths);
  }
  // The beams of a sentence are the queries of one attention, so its memory is not repeated.
  const Var beams = reshape(query(h), {sentences, rows / sentences, h.shape()[1]});
  const auto [out, weights] =
      additive_attention(beams, memory.keys, memory.values, score, memory.lengths);
  return {reshape(out, {rows, memory.values.shape()[2]}),
          reshape(weights, {rows, memory.keys.shape()[1]})};
}

namespace {

const ModelOptions& validated(const ModelOptions& o) {
  if (o.encoder_layers < 1 || o.decoder_layers < 1 || o.hidden_size < 1) {
    fail(ErrorKind::kConfig,
         "[rnn_attention] expected hidden_size, encoder_layers and decoder_layers >= 1, got ",
         o.hidden_size, ", ", o.encoder_layers, " and ", o.decoder_layers, '.');
  }
  return o;
}

}  // namespace

RnnAttention::RnnAttention(const ModelOptions& o, const Vocabulary& v, const ParamScope& scope)
    : options(validated(o)),
      vocabulary(v),
      words(o, v, scope),
      initial({.in = o.hidden_size, .out = o.decoder_layers * o.hidden_size},
              scope / "decoder" / "initial"),
      first_layer({.hidden_size = o.hidden_size, .memory_size = 2 * o.hidden_size},
                  scope / "decoder" / "layers" / 0),
      readout({.in = 4 * o.hidden_size, .out = o.hidden_size}, scope / "decoder" / "readout") {
  const int64_t size = o.hidden_size;
  for (int64_t i = 0; i < o.encoder_layers; ++i) {
    encoder_layers.emplace_back(
        GruLayer::Options{
            .in = i == 0 ? size : 2 * size, .hidden_size = size, .bidirectional = true},
        scope / "encoder" / "layers" / i);
  }
  for (int64_t i = 1; i < o.decoder_layers; ++i) {
    upper_layers.emplace_back(GruLayer::Options{.in = size, .hidden_size = size},
                              scope / "decoder" / "layers" / i);
  }
}

Var RnnAttention::embed(const Tensor& ids, const WeightMatrix& table) const {
  const double scale =
      options.scale_embeddings ? std::sqrt(static_cast<double>(options.hidden_size)) : 1.0;
  return table.look_up(ids, {}, {.scale = scale, .dropout = options.dropout});
}

Var RnnAttention::initial_states(const Var& memory) const {
  const int64_t size = options.hidden_size;
  const Var first = slice(slice(memory, 1, 0, 1), 2, size, 2 * size);
  return tanh(initial(reshape(first, {memory.shape()[0], size})));
}

Var RnnAttention::hidden(const Var& state, const Var& context, const Var& word) const {
  return dropout(tanh(readout(concat({state, context, word}, -1))), options.dropout);
}

Var RnnAttention::encode(const Tensor& source, const Tensor& source_lengths) const {
  Var x = swap_axes(embed(source, words.source));
  for (size_t i = 0; i < encoder_layers.size(); ++i) {
    if (i > 0) x = dropout(x, options.dropout);
    x = encoder_layers[i](x, {.lengths = source_lengths});
  }
  return swap_axes(x);
}

// Padding in the target needs no mask: no step depends on later tokens, and the loss ignores it.
Var RnnAttention::decode(const Tensor& target_in, const Var& memory,
                         const Tensor& source_lengths) const {
  const int64_t steps = target_in.shape()[1], size = options.hidden_size;
  const Var fed = swap_axes(embed(target_in, words.target));
  const Var word_gates = first_layer.word(fed), starts = initial_states(memory);
  const AttentiveGru::Memory remembered = first_layer.remember(memory, source_lengths);
  std::vector<Var> states, contexts, weights;
  const bool recorded = AttentionRecorder::listens();
  Var h = slice(starts, 1, 0, size);
  for (int64_t t = 0; t < steps; ++t) {
    const AttentionWeights drawn = first_layer.attend(h, remembered);
    contexts.push_back(drawn.out);
    if (recorded) weights.push_back(drawn.weights);
    h = first_layer.step(at_time(word_gates, t), contexts.back(), h);
    states.push_back(h);
  }
  if (recorded) {
    const Shape& one = weights.at(0).shape();
    AttentionRecorder::add(reshape(swap_axes(stack(weights)), {one[0], 1, steps, one[1]}).value());
  }
  Var x = stack(states);
  int64_t begin = size;
  for (const GruLayer& layer : upper_layers) {
    x = layer(dropout(x, options.dropout), {.initial = slice(starts, 1, begin, begin + size)});
    begin += size;
  }
  return swap_axes(hidden(x, stack(contexts), fed));
}

CrossEntropy RnnAttention::loss(const Batch& batch, CrossEntropyOptions options) const {
  const Var memory = encode(batch.source, batch.source_lengths);
  const Var states = decode(batch.target_in, memory, batch.source_lengths);
  options.ignore_index = vocabulary.no_target;
  return words.output.loss(states, batch.target_out, options);
}

RnnAttention::State RnnAttention::start(const Tensor& source, const Tensor& source_lengths) const {
  const Var memory = encode(source, source_lengths);
  State state;
  state.memory = first_layer.remember(memory, source_lengths);
  const Var starts = initial_states(memory);
  const int64_t size = options.hidden_size;
  for (int64_t i = 0; i < options.decoder_layers; ++i) {
    state.layers.push_back(slice(starts, 1, i * size, (i + 1) * size).value());
  }
  return state;
}

namespace {

// Each of the rows `repeat` times, side by side.
Tensor repeat_rows(const Tensor& x, int64_t repeat) {
  const int64_t rows = x.shape()[0];
  std::vector<int32_t> parents(static_cast<size_t>(rows * repeat));
  for (size_t i = 0; i < parents.size(); ++i) {
    parents[i] = static_cast<int32_t>(static_cast<int64_t>(i) / repeat);
  }
  return gather_rows(x, Tensor::from<int32_t>(parents, {rows * repeat}, x.device()));
}

}  // namespace

Tensor RnnAttention::step(const Tensor& tokens, State& state) const {
  const int64_t rows = tokens.numel(), size = options.hidden_size;
  if (state.position == 0) {  // the first step shows the number of beams
    for (Tensor& h : state.layers) h = repeat_rows(h, rows / h.shape()[0]);
  }
  const Var word = reshape(embed(tokens.reshape({rows, 1}), words.target), {rows, size});
  const auto [context, weights] = first_layer.attend(state.layers[0], state.memory);
  Var x = first_layer.step(first_layer.word(word), context, state.layers[0]);
  state.layers[0] = x.value();
  for (size_t i = 0; i < upper_layers.size(); ++i) {
    x = upper_layers[i].step(upper_layers[i].input(x), state.layers[i + 1]);
    state.layers[i + 1] = x.value();
  }
  state.weights = weights.value();
  ++state.position;
  return logits(hidden(x, context, word)).value();
}

void RnnAttention::State::select_rows(const Tensor& rows) {
  for (Tensor& h : layers) h = gather_rows(h, rows);
  if (weights.defined()) weights = gather_rows(weights, rows);
}

void RnnAttention::State::select(const Tensor& sentences, const Tensor& rows) {
  select_rows(rows);
  memory.values = gather_rows(memory.values.value(), sentences);
  memory.keys = gather_rows(memory.keys.value(), sentences);
  memory.lengths = gather_ids(memory.lengths, sentences);
}

}  // namespace tapestry
