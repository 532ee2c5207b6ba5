#include "nn/models/text_embedder.h"

#include <cmath>
#include <numeric>

#include "core/shapes_only.h"

namespace tapestry {
namespace {

// x / |x|: an RMS norm with the weight 1 / sqrt(D). The smallest eps that float32 knows keeps a row
// of zeros at zero.
Var unit_rows(const Var& x) {
  constexpr double kTiny = 1e-30;
  const int64_t size = x.shape().cols();
  const Tensor weight = Tensor::full({size}, 1 / std::sqrt(static_cast<double>(size)), x.dtype());
  return norm(x, Var(weight.to(x.value().device())), {}, {.kind = NormKind::kRms, .eps = kTiny});
}

// 1 where another choice's text is equal to the one to find, (B, C); undefined if none is.
Tensor equal_choices(const std::vector<int64_t>& texts, int64_t rows) {
  if (texts.empty()) return {};
  const int64_t count = std::ssize(texts);
  bool any = false;
  Tensor mask = Tensor::zeros({rows, count}, DType::kInt32);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t other = 0; other < count; ++other) {
      if (other == row || texts[static_cast<size_t>(other)] != texts[static_cast<size_t>(row)]) {
        continue;
      }
      mask.data<int32_t>()[row * count + other] = 1;
      any = true;
    }
  }
  return any ? mask : Tensor();
}

std::optional<Linear> make_dense(const ModelOptions& o, const ParamScope& scope) {
  if (o.vector_size == 0) return std::nullopt;
  return Linear({.in = o.hidden_size,
                 .out = o.vector_size,
                 .bias = o.vector_bias,
                 .init = matrix_init(o),
                 .hidden = false},
                scope / "dense");
}

// Its exponential is 0 in every type, whatever the temperature.
constexpr double kNoChoice = -1e30;

CrossEntropy one_direction(const Var& products, const std::vector<int64_t>& texts,
                           const CrossEntropyOptions& options) {
  std::vector<int32_t> own(static_cast<size_t>(products.shape()[0]));
  std::iota(own.begin(), own.end(), 0);
  const Tensor equal = equal_choices(texts, products.shape()[0]);
  const Var scores = equal.defined()
                         ? masked_fill(products, equal.to(products.value().device()), kNoChoice)
                         : products;
  return cross_entropy(scores, Tensor::from(own, {std::ssize(own)}), options);
}

}  // namespace

TextEmbedder::TextEmbedder(const ModelOptions& o, const LanguageModel::Vocabulary& vocabulary,
                           const ParamScope& scope)
    : trunk(o, word_table(o, vocabulary.size, scope / "embedding"), /*causal=*/false, scope),
      pooling(o.text_pooling),
      dense(make_dense(o, scope)),
      dense_tanh(o.vector_tanh),
      unit_vectors(o.unit_vectors) {}

Var TextEmbedder::operator()(const Tensor& ids, const Tensor& lengths) const {
  const Var hidden = trunk(ids, lengths.to(ids.device()));
  Var vectors = pooled_texts(hidden, lengths, pooling);
  if (dense) {
    const DType wide = vectors.dtype();
    vectors = convert((*dense)(convert(vectors, hidden.dtype())), wide);
    if (dense_tanh) vectors = tanh(vectors);
  }
  return unit_vectors ? unit_rows(vectors) : vectors;
}

CrossEntropy contrastive_loss(const Var& sources, const Var& targets, const EqualTexts& equal,
                              const ContrastiveOptions& contrast,
                              const CrossEntropyOptions& options) {
  const Var scores = (1 / contrast.temperature) * matmul(sources, targets, {.trans_b = true});
  CrossEntropy result = one_direction(scores, equal.targets, options);
  if (!contrast.both_directions) return result;
  const int64_t rows = sources.shape()[0];
  const Var own = scores.shape()[1] > rows ? slice(scores, 1, 0, rows) : scores;
  const CrossEntropy back = one_direction(permute(own, {1, 0}), equal.sources, options);
  result.loss = 0.5 * (result.loss + back.loss);
  result.sums = affine(Var(result.sums) + Var(back.sums), 0.5, 0).value();
  return result;
}

CrossEntropy ranking_loss(const Var& sources, const Var& targets, const std::vector<float>& scores,
                          double temperature, const CrossEntropyOptions& options) {
  const int64_t rows = std::ssize(scores);
  const Var products = (1 / temperature) * sum(mul(sources, targets), 1);
  // What is added to an entry (i, j): 0 where pair i has the larger score.
  Tensor unordered = Tensor::full({rows, rows}, 1, DType::kInt32);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < rows; ++j) {
      const bool larger = scores[static_cast<size_t>(i)] > scores[static_cast<size_t>(j)];
      if (larger) unordered.data<int32_t>()[i * rows + j] = 0;
    }
  }
  const Var lesser = reshape(products, {1, rows}), greater = reshape(products, {rows, 1});
  const Device device = products.value().device();
  const Var differences = masked_fill(sub(lesser, greater), unordered.to(device), kNoChoice);
  // log(1 + sum of exponentials): minus the log-probability of the first of these logits.
  const Var zero(Tensor::zeros({1, 1}, products.dtype(), device));
  const Var logits = concat({zero, reshape(differences, {1, rows * rows})}, 1);
  return cross_entropy(logits, Tensor::from(std::vector<int32_t>{0}, {1}), options);
}

}  // namespace tapestry
