#include "nn/models/rnn_attention.h"

#include <cmath>

#include "core/cpu/parallel.h"

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
  scope.declare_projections("weight", std::vector<int64_t>(static_cast<size_t>(gates), size));
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
             .init = gate_init(o.in, o.hidden_size),
             .parts = std::vector<int64_t>(o.bidirectional ? 6 : 3, o.hidden_size)},
            scope / "input"),
      weight(orthogonal_weight(o.bidirectional ? 6 : 3, o.hidden_size, scope / "recurrent")),
      bias((scope / "recurrent").create("bias", {weight.shape()[0]}, Init::zeros())) {}

AttentiveGru::AttentiveGru(const Options& o, const ParamScope& scope)
    : recurrence({.in = o.hidden_size, .hidden_size = o.hidden_size}, scope),
      context({.in = o.memory_size,
               .out = 3 * o.hidden_size,
               .bias = false,
               .init = gate_init(o.memory_size, o.hidden_size),
               .parts = std::vector<int64_t>(3, o.hidden_size)},
              scope / "context") {
  if (!o.attends) return;
  query.emplace(Linear::Options{.in = o.hidden_size, .out = o.hidden_size, .bias = false},
                scope / "attention" / "query");
  key.emplace(Linear::Options{.in = o.memory_size, .out = o.hidden_size},
              scope / "attention" / "key");
  score = (scope / "attention" / "score")
              .create("weight", {o.hidden_size}, Init::xavier(1, o.hidden_size));
}

Var AttentiveGru::only_value(const Memory& memory, const Tensor& rows) {
  const Shape& shape = memory.values.shape();
  const Var values = reshape(memory.values, {shape[0], shape[2]});
  return rows.defined() ? Var(gather_rows(values.value(), rows)) : values;
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
      initial({.in = o.hidden_size,
               .out = o.decoder_layers * o.hidden_size,
               .parts = std::vector<int64_t>(static_cast<size_t>(o.decoder_layers), o.hidden_size)},
              scope / "decoder" / "initial"),
      first_layer(
          {.hidden_size = o.hidden_size, .memory_size = 2 * o.hidden_size, .attends = o.attends},
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

// A direction keeps its state behind a row's length, so the forward one ends in the last place.
AttentiveGru::Memory RnnAttention::remember(const Var& states, const Tensor& lengths) const {
  if (options.attends) return first_layer.remember(states, lengths);
  const int64_t batch = states.shape()[0], last = states.shape()[1], size = options.hidden_size;
  const Var forward = slice(slice(states, 1, last - 1, last), 2, 0, size);
  const Var backward = slice(slice(states, 1, 0, 1), 2, size, 2 * size);
  const Tensor ones = Tensor::from(std::vector<int32_t>(static_cast<size_t>(batch), 1), {batch},
                                   states.value().device());
  return first_layer.remember(concat({forward, backward}, 2), ones);
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
  const AttentiveGru::Memory remembered = remember(memory, source_lengths);
  std::vector<Var> states, contexts, weights;
  const bool recorded = options.attends && AttentionRecorder::listens();
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

namespace {

// (B, S, E) with zeros up to `length` on its second axis.
Var lengthened(const Var& x, int64_t length) {
  const int64_t missing = length - x.shape()[1];
  if (missing == 0) return x;
  const Var zeros = Tensor::zeros(x.shape().with(1, missing), x.dtype(), x.value().device());
  return concat({x, zeros}, 1);
}

Tensor ids_on(Device device, const std::vector<int32_t>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())}, device);
}

// Drops memory that no sequence reads any more.
void forget_unread(AttentiveGru::Memory& memory, std::vector<int32_t>& memories) {
  std::vector<int32_t> number(static_cast<size_t>(memory.keys.shape()[0]), -1), kept;
  for (int32_t& m : memories) {
    int32_t& place = number[static_cast<size_t>(m)];
    if (place < 0) {
      place = static_cast<int32_t>(kept.size());
      kept.push_back(m);
    }
    m = place;
  }
  const Tensor rows = ids_on(memory.keys.value().device(), kept);
  memory.values = gather_rows(memory.values.value(), rows);
  memory.keys = gather_rows(memory.keys.value(), rows);
  const std::vector<int32_t> lengths = memory.lengths.to_vector<int32_t>();
  for (int32_t& m : kept) m = lengths[static_cast<size_t>(m)];
  memory.lengths = ids_on(rows.device(), kept);
}

}  // namespace

void RnnAttention::add(const Tensor& source, const Tensor& source_lengths, State& state) const {
  const Var values = encode(source, source_lengths), starts = initial_states(values);
  const int64_t size = options.hidden_size;
  AttentiveGru::Memory fresh = remember(values, source_lengths);
  const bool joins = !state.memories.empty();
  int32_t before = 0;
  if (joins) {
    AttentiveGru::Memory& memory = state.memory;
    forget_unread(memory, state.memories);
    before = static_cast<int32_t>(memory.keys.shape()[0]);
    const int64_t length = std::max(memory.keys.shape()[1], fresh.keys.shape()[1]);
    const auto together = [length](const Var& a, const Var& b) {
      return concat({lengthened(a, length), lengthened(b, length)}, 0);
    };
    std::vector<int32_t> lengths = memory.lengths.to_vector<int32_t>();
    for (const int32_t more : fresh.lengths.to_vector<int32_t>()) lengths.push_back(more);
    fresh = {together(memory.values, fresh.values), together(memory.keys, fresh.keys),
             ids_on(source.device(), lengths)};
  }
  state.memory = fresh;
  for (int32_t b = 0; b < source.shape()[0]; ++b) state.memories.push_back(before + b);
  state.layers.resize(static_cast<size_t>(options.decoder_layers));
  for (int64_t i = 0; i < options.decoder_layers; ++i) {
    Tensor& h = state.layers[static_cast<size_t>(i)];
    const Var start = slice(starts, 1, i * size, (i + 1) * size);
    h = joins ? concat({h, start}, 0).value() : start.value();
  }
}

Var RnnAttention::advance(const Tensor& tokens, State& state) const {
  const int64_t rows = tokens.numel(), size = options.hidden_size;
  const Var word = reshape(embed(tokens.reshape({rows, 1}), words.target), {rows, size});
  const AttentionWeights drawn =
      first_layer.attend(state.layers[0], state.memory, ids_on(tokens.device(), state.memories));
  Var x = first_layer.step(first_layer.word(word), drawn.out, state.layers[0]);
  state.layers[0] = x.value();
  for (size_t i = 0; i < upper_layers.size(); ++i) {
    x = upper_layers[i].step(upper_layers[i].input(x), state.layers[i + 1]);
    state.layers[i + 1] = x.value();
  }
  if (options.attends) state.weights = drawn.weights.value();
  return hidden(x, drawn.out, word);
}

void RnnAttention::State::select(std::span<const int32_t> sequences) {
  std::vector<int32_t> selected;
  for (const int32_t i : sequences) selected.push_back(memories.at(static_cast<size_t>(i)));
  memories = std::move(selected);
  if (layers.empty() || memories.empty()) return;
  const Tensor rows = Tensor::from(std::vector<int32_t>(sequences.begin(), sequences.end()),
                                   {std::ssize(sequences)}, layers[0].device());
  for (Tensor& h : layers) h = gather_rows(h, rows);
}

}  // namespace tapestry
