#include "nn/language_model.h"

#include <algorithm>

namespace tapestry {
namespace {

// The places that have a target, in the flattened batch, and their targets.
struct Places {
  Tensor rows;     ///< (1, M) int32
  Tensor targets;  ///< (M) int32, in host memory
};

Places places_with_target(const Tensor& targets, int32_t no_target, Device device) {
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

}  // namespace

MaskedHead::MaskedHead(const ModelOptions& o, int64_t vocab, const ParamScope& scope)
    : dense({.in = o.hidden_size,
             .out = o.hidden_size,
             .bias = o.bias,
             .activation = o.hidden_act.activation,
             .init = matrix_init(o)},
            scope / "dense"),
      norm(o.hidden_size, norm_options(o), scope / "norm"),
      bias(scope.create("bias", {vocab}, Init::zeros())) {}

namespace {

// A masked model's classifier takes the bias of its head.
ModelOptions classifier_options(ModelOptions options, bool causal) {
  options.output_bias = options.output_bias && causal;
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
  if (causal) return;
  head.emplace(options, vocabulary.size, scope / "head");
  output.bias = head->bias;
}

Var LanguageModel::hidden(const Tensor& ids, const Tensor& lengths, const Tensor& segments,
                          const AttentionContext& context) const {
  const Var x = trunk(ids, lengths, segments, context);
  return head ? (*head)(x) : x;
}

CrossEntropy LanguageModel::loss(const Batch& batch, CrossEntropyOptions loss_options) const {
  loss_options.ignore_index = vocabulary.no_target;
  Var x = trunk(batch.ids, batch.lengths, batch.segments, {.prefix_lengths = batch.prefix_lengths});
  if (!head) return output.loss(x, batch.targets, loss_options);
  // An embedding lookup in the hidden states takes the rows that have a target, about one in seven.
  const Places places = places_with_target(batch.targets, vocabulary.no_target, batch.ids.device());
  x = embedding(places.rows, reshape(x, {batch.ids.numel(), options.hidden_size}));
  x = reshape(x, {places.targets.numel(), options.hidden_size});
  return output.loss((*head)(x), places.targets, loss_options);
}

Tensor LanguageModel::step(const Tensor& ids, std::vector<KeyValueCache>& caches,
                           const Tensor& prefix_lengths) const {
  const Var x = trunk.step(ids, caches, {.prefix_lengths = prefix_lengths});
  const int64_t rows = ids.shape()[0], count = ids.shape()[1];
  return logits(reshape(slice(x, 1, count - 1, count), {rows, options.hidden_size})).value();
}

Tensor LanguageModelSteps::step(const std::vector<int32_t>& tokens) {
  const size_t rows = histories_.size();
  check(rows > 0 && !tokens.empty() && tokens.size() % rows == 0, "decoding",
        "expected the same number of tokens for each of ", rows, " rows, got ", tokens.size(),
        " tokens.");
  size_t count = tokens.size() / rows;
  Tensor prefixes;
  if (model_.options.prefix_lm && histories_[0].empty()) {
    prefixes = Tensor::full({static_cast<int64_t>(rows)}, static_cast<double>(count), DType::kInt32,
                            model_.table.device());
  }
  for (size_t row = 0; row < rows; ++row) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(row * count);
    histories_[row].insert(histories_[row].end(), first,
                           first + static_cast<std::ptrdiff_t>(count));
  }
  const auto positions = static_cast<size_t>(model_.options.longest_sequence());
  if (histories_[0].size() > positions) {
    const size_t kept = std::max<size_t>(1, positions / 2);
    for (auto& history : histories_) {
      history.erase(history.begin(), history.end() - static_cast<std::ptrdiff_t>(kept));
    }
    caches_.clear();
    count = kept;
  }
  std::vector<int32_t> fed;
  for (const auto& history : histories_) {
    fed.insert(fed.end(), history.end() - static_cast<std::ptrdiff_t>(count), history.end());
  }
  const Device device = model_.table.device();
  return model_.step(
      Tensor::from(fed, {static_cast<int64_t>(rows), static_cast<int64_t>(count)}, device), caches_,
      prefixes);
}

void LanguageModelSteps::select(const std::vector<int32_t>&, const std::vector<int32_t>& rows) {
  std::vector<std::vector<int32_t>> kept;
  for (const int32_t row : rows) kept.push_back(histories_[static_cast<size_t>(row)]);
  histories_ = std::move(kept);
  const Tensor ids = Tensor::from(rows, {static_cast<int64_t>(rows.size())}, model_.table.device());
  for (KeyValueCache& cache : caches_) cache.select(ids);
}

SequenceClassifier::SequenceClassifier(const ModelOptions& o,
                                       const LanguageModel::Vocabulary& vocabulary, int64_t classes,
                                       const ParamScope& scope)
    : trunk(o, word_table(o, vocabulary.size, scope / "embedding"), /*causal=*/false, scope),
      head(o, classes, /*pooled=*/true, scope) {}

Var SequenceClassifier::operator()(const Tensor& ids, const Tensor& lengths,
                                   const Tensor& segments) const {
  return head(trunk(ids, lengths, segments));
}

}  // namespace tapestry
