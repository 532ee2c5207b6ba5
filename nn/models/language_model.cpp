#include "nn/models/language_model.h"

#include <algorithm>

#include "core/shapes_only.h"

namespace tapestry {
namespace {

// The places that have a target, in the flattened batch, and their targets.
struct Places {
  Tensor rows;     ///< (1, M) int32
  Tensor targets;  ///< (M) int32, in host memory

  // An embedding lookup in the hidden states takes the rows that have a target: (M, D).
  Var of(const Var& hidden) const {
    const int64_t size = hidden.shape().cols();
    const Var all = reshape(hidden, {hidden.shape().rows(), size});
    return reshape(embedding(rows, all), {targets.numel(), size});
  }
};

Places places_with_target(const Tensor& targets, int32_t no_target, Device device) {
  if (!ShapesOnly::has_memory(targets.bytes())) {  // as if all had one
    const int64_t count = targets.numel();
    return {Tensor::empty({1, count}, DType::kInt32, device),
            Tensor::empty({count}, DType::kInt32)};
  }
  std::vector<int32_t> rows, wanted;
  const auto ids = targets.to_vector<int32_t>();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == no_target) continue;
    rows.push_back(static_cast<int32_t>(i));
    wanted.push_back(ids[i]);
  }
  const auto count = static_cast<int64_t>(rows.size());
  return {Tensor::from(rows, {1, count}, device), Tensor::from(wanted, {count})};
}

// Where the places of each row (B, T) end among all of them.
std::vector<int64_t> ends_of_rows(const Tensor& targets, int32_t no_target) {
  const int64_t width = targets.shape()[1];
  const bool readable = ShapesOnly::has_memory(targets.bytes());
  std::vector<int64_t> ends;
  int64_t found = 0;
  for (int64_t row = 0; row < targets.shape()[0]; ++row) {
    const int32_t* const ids = readable ? targets.data<int32_t>() + row * width : nullptr;
    found += readable ? width - std::count(ids, ids + width, no_target) : width;
    ends.push_back(found);
  }
  return ends;
}

}  // namespace

MaskedHead::MaskedHead(const ModelOptions& o, int64_t vocab, const ParamScope& scope)
    : dense({.in = o.hidden_size,
             .out = o.embedding_width(),
             .bias = o.bias,
             .activation = o.hidden_act.activation,
             .init = matrix_init(o)},
            scope / "dense"),
      norm(o.embedding_width(), norm_options(o), scope / "norm"),
      bias(scope.create("bias", {vocab}, Init::zeros())) {}

namespace {

// A masked model's classifier takes the bias of its head, if it has one.
ModelOptions classifier_options(ModelOptions options, bool causal) {
  options.output_bias = options.output_bias && (causal || !options.transformed_head);
  return options;
}

}  // namespace

LanguageModel::LanguageModel(const ModelOptions& options, const Vocabulary& vocabulary, bool causal,
                             const ParamScope& scope)
    : options(options),
      vocabulary(vocabulary),
      table(word_table(options, vocabulary.size, scope / "embedding")),
      output(classifier(classifier_options(options, causal), vocabulary.size, table, scope)),
      trunk(options, table, causal, scope) {
  masked = !causal;
  if (causal || !options.transformed_head) return;
  head.emplace(options, vocabulary.size, scope / "head");
  output.bias = head->bias;
}

Var LanguageModel::hidden(const Tensor& ids, const Tensor& lengths, const Tensor& segments,
                          const AttentionContext& context) const {
  const Var x = trunk(ids, lengths, segments, context);
  if (!masked) return scaled_for_logits(options, x);
  return head ? (*head)(x) : x;
}

CrossEntropy LanguageModel::loss(const Batch& batch, CrossEntropyOptions loss_options) const {
  loss_options.ignore_index = vocabulary.no_target;
  Var x = trunk(batch.ids, batch.lengths, batch.segments, context_of(batch));
  if (!masked) {
    return output.loss(scaled_for_logits(options, x), batch.targets, loss_options);
  }
  const Places places = places_with_target(batch.targets, vocabulary.no_target, batch.ids.device());
  x = places.of(x);
  return output.loss(head ? (*head)(x) : x, places.targets, loss_options);
}

Var LanguageModel::log_probabilities(const Batch& batch) const {
  const Var x = hidden(batch);
  const Places places = places_with_target(batch.targets, vocabulary.no_target, batch.ids.device());
  return output.log_probabilities(places.of(x), places.targets,
                                  ends_of_rows(batch.targets, vocabulary.no_target));
}

void LanguageModel::add(const Tensor& ids, const std::vector<int32_t>& lengths, bool prefix,
                        State& state) const {
  const Device device = ids.device();
  const auto count = static_cast<int64_t>(lengths.size());
  check(ids.shape().rank() == 2 && ids.shape()[0] == count, "language_model", "expected ids of ",
        count, " sequences, got ", ids.shape(), '.');
  const int64_t first = state.tokens.sequences();
  const DecodingStep step = state.tokens.add(lengths, ids.shape()[1], device);
  if (ids.numel() == 0) return;
  const Tensor prefixes = prefix ? Tensor::from(lengths, {count}, device) : Tensor();
  trunk.step(ids, state.layers, step, {.prefix_lengths = prefixes});
  // Fed again, the last token gets the same values: it sees all of the prefix either way.
  if (prefix) state.tokens.drop_last(first);
}

Var LanguageModel::advance(const Tensor& tokens, State& state) const {
  const int64_t rows = tokens.numel();
  const DecodingStep step = state.tokens.next(tokens.device());
  const Var x =
      scaled_for_logits(options, trunk.step(tokens.reshape({rows, 1}), state.layers, step));
  return reshape(x, {rows, options.hidden_size});
}

// Reads sequences from their beginning, behind the rows that are there.
void LanguageModelSteps::read(const std::vector<Tokens>& histories, bool prefix) {
  std::vector<int32_t> lengths;
  size_t width = 0;
  for (const Tokens& history : histories) {
    lengths.push_back(static_cast<int32_t>(history.size()));
    width = std::max(width, history.size());
  }
  std::vector<int32_t> ids(histories.size() * width);
  for (size_t i = 0; i < histories.size(); ++i) {
    std::copy(histories[i].begin(), histories[i].end(),
              ids.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  const Shape shape{std::ssize(histories), static_cast<int64_t>(width)};
  model_.add(Tensor::from(ids, shape, device()), lengths, prefix, state_);
}

// If the positions end before the next token, only the last half remains, that token included.
bool LanguageModelSteps::shorten(Tokens& history) const {
  const auto positions = static_cast<size_t>(model_.options.longest_sequence());
  if (history.size() < positions) return false;
  const auto kept = static_cast<std::ptrdiff_t>(std::max<size_t>(1, positions / 2) - 1);
  history.erase(history.begin(), history.end() - kept);
  return true;
}

void LanguageModelSteps::add(const std::vector<NewSentence>& sentences) {
  const bool prefix = model_.options.prefix_lm;
  std::vector<Tokens> fresh;
  for (const NewSentence& sentence : sentences) {
    const auto& prompt = sentence.prompt;
    Tokens& history = histories_.emplace_back(prompt.begin(), prompt.end() - 1);
    shorten(history);
    fresh.push_back(history);
    if (prefix) fresh.back().push_back(prompt.back());
  }
  read(fresh, prefix);
}

Tensor LanguageModelSteps::step(const std::vector<int32_t>& tokens) {
  return model_.step(feed(tokens), state_);
}

Tensor LanguageModelSteps::best(const std::vector<int32_t>& tokens, int64_t count,
                                const std::vector<int32_t>& banned) {
  if (!model_.output.has_best()) return {};
  return model_.output.best(model_.advance(feed(tokens), state_), count, banned);
}

Tensor LanguageModelSteps::largest(const std::vector<int32_t>& tokens,
                                   const std::vector<int32_t>& banned) {
  if (!model_.output.has_largest()) return {};
  return model_.output.largest(model_.advance(feed(tokens), state_), banned);
}

// The tokens that the state gets, which the histories have then.
Tensor LanguageModelSteps::feed(const std::vector<int32_t>& tokens) {
  check(tokens.size() == histories_.size() && !tokens.empty(), "decoding",
        "expected a token for each of ", histories_.size(), " rows, got ", tokens.size(), '.');
  read_again();
  for (size_t row = 0; row < tokens.size(); ++row) histories_[row].push_back(tokens[row]);
  return Tensor::from(tokens, {std::ssize(tokens)}, device());
}

// Reads rows again whose positions end.
void LanguageModelSteps::read_again() {
  std::vector<int32_t> order;
  std::vector<Tokens> shorter;
  for (size_t row = 0; row < histories_.size(); ++row) {
    const size_t place = shorten(histories_[row]) ? histories_.size() + shorter.size() : row;
    if (place != row) shorter.push_back(histories_[row]);
    order.push_back(static_cast<int32_t>(place));
  }
  if (shorter.empty()) return;
  read(shorter, /*prefix=*/false);
  state_.tokens.select(order);
}

void LanguageModelSteps::select(const std::vector<int32_t>& rows) {
  std::vector<Tokens> kept;
  for (const int32_t row : rows) kept.push_back(histories_[static_cast<size_t>(row)]);
  histories_ = std::move(kept);
  state_.tokens.select(rows);
}

SequenceClassifier::SequenceClassifier(const ModelOptions& o,
                                       const LanguageModel::Vocabulary& vocabulary, int64_t classes,
                                       const ParamScope& scope)
    : trunk(o, word_table(o, vocabulary.size, scope / "embedding"), /*causal=*/false, scope),
      head(o, classes, /*pooled=*/true, scope) {}

Var SequenceClassifier::operator()(const Tensor& ids, const Tensor& lengths,
                                   const Tensor& segments) const {
  return head(trunk(ids, lengths, segments), lengths);
}

}  // namespace tapestry
