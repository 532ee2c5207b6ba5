#include "nn/models/text_embedder.h"

#include <cmath>
#include <numeric>

#include "core/shapes_only.h"

namespace tapestry {
namespace {

// Which tokens of a row count: 1 or 0, (B, 1, T), exact in every type; and what their sum is
// multiplied by, (B, 1).
struct PooledTokens {
  PooledTokens(TextPooling pooling, const Tensor& lengths, int64_t width)
      : chosen(Tensor::zeros({lengths.numel(), 1, width}, DType::kFloat32)),
        scales(Tensor::full({lengths.numel(), 1}, 1, DType::kFloat32)) {
    if (!ShapesOnly::has_memory(chosen.bytes())) return;
    for (int64_t row = 0; row < lengths.numel(); ++row) {
      const int64_t length = lengths.data<int32_t>()[row];
      float* const tokens = chosen.data<float>() + row * width;
      switch (pooling) {
        case TextPooling::kMean:
          std::fill_n(tokens, length, 1.F);
          scales.data<float>()[row] = 1.F / static_cast<float>(length);
          break;
        case TextPooling::kFirst:
          tokens[0] = 1;
          break;
        case TextPooling::kLast:
          tokens[length - 1] = 1;
          break;
      }
    }
  }

  Tensor chosen, scales;
};

// x / |x|: an RMS norm with the weight 1 / sqrt(D). The smallest eps that float32 knows keeps a row
// of zeros at zero.
Var unit_rows(const Var& x) {
  constexpr double kTiny = 1e-30;
  const int64_t size = x.shape().cols();
  const Tensor weight = Tensor::full({size}, 1 / std::sqrt(static_cast<double>(size)), x.dtype());
  return norm(x, Var(weight.to(x.value().device())), {}, {.kind = NormKind::kRms, .eps = kTiny});
}

// 1 where another pair's text is equal to the one to find, (B, B); undefined if none is.
Tensor equal_choices(const std::vector<int64_t>& texts) {
  if (texts.empty()) return {};
  const int64_t count = std::ssize(texts);
  bool any = false;
  Tensor mask = Tensor::zeros({count, count}, DType::kInt32);
  for (int64_t row = 0; row < count; ++row) {
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

CrossEntropy one_direction(const Var& products, const std::vector<int64_t>& texts,
                           const CrossEntropyOptions& options) {
  // Its exponential is 0 in every type, whatever the temperature.
  constexpr double kNoChoice = -1e30;
  std::vector<int32_t> own(static_cast<size_t>(products.shape()[0]));
  std::iota(own.begin(), own.end(), 0);
  const Tensor equal = equal_choices(texts);
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
      unit_vectors(o.unit_vectors) {}

Var TextEmbedder::operator()(const Tensor& ids, const Tensor& lengths) const {
  const Var hidden = trunk(ids, lengths.to(ids.device()));
  const PooledTokens pooled(pooling, lengths, ids.shape()[1]);
  const Var chosen(pooled.chosen.to(hidden.dtype()).to(ids.device()));
  const Var sums = reshape(matmul(chosen, hidden), {ids.shape()[0], hidden.shape().cols()});
  const DType wide = wider(hidden.dtype());
  const Var vectors = convert(sums, wide) * Var(pooled.scales.to(wide).to(ids.device()));
  return unit_vectors ? unit_rows(vectors) : vectors;
}

CrossEntropy contrastive_loss(const Var& sources, const Var& targets, const EqualTexts& equal,
                              const ContrastiveOptions& contrast,
                              const CrossEntropyOptions& options) {
  const Var scores = (1 / contrast.temperature) * matmul(sources, targets, {.trans_b = true});
  CrossEntropy result = one_direction(scores, equal.targets, options);
  if (!contrast.both_directions) return result;
  const CrossEntropy back = one_direction(permute(scores, {1, 0}), equal.sources, options);
  result.loss = 0.5 * (result.loss + back.loss);
  result.sums = affine(Var(result.sums) + Var(back.sums), 0.5, 0).value();
  return result;
}

}  // namespace tapestry
