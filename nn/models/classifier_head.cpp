#include "nn/models/classifier_head.h"

#include "core/shapes_only.h"

namespace tapestry {
namespace {

Activation activation_of(Pooler kind) {
  switch (kind) {
    case Pooler::kTanh:
      return Activation::kNone;  // tanh is an operation of its own
    case Pooler::kRelu:
      return Activation::kRelu;
    case Pooler::kGelu:
    case Pooler::kNormed:
      return Activation::kGelu;
  }
  return Activation::kNone;
}

// Which tokens of a row count: 1 or 0, (B, 1, T), exact in every type; and what their sum is
// multiplied by, (B, 1).
struct PooledTokens {
  PooledTokens(TextPooling pooling, const Tensor& lengths, int64_t width)
      : chosen(Tensor::zeros({lengths.numel(), 1, width}, DType::kFloat32)),
        scales(Tensor::full({lengths.numel(), 1}, 1, DType::kFloat64)) {
    if (!ShapesOnly::has_memory(chosen.bytes())) return;
    for (int64_t row = 0; row < lengths.numel(); ++row) {
      const int64_t length = lengths.data<int32_t>()[row];
      float* const tokens = chosen.data<float>() + row * width;
      switch (pooling) {
        case TextPooling::kMean:
          std::fill_n(tokens, length, 1.F);
          scales.data<double>()[row] = 1 / static_cast<double>(length);
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

std::optional<PoolerLayer> make_pooler(const ModelOptions& o, bool pooled,
                                       const ParamScope& scope) {
  if (!pooled) return std::nullopt;
  return PoolerLayer(o, scope);
}

std::optional<Norm> make_norm(const ModelOptions& o, const ParamScope& scope) {
  if (o.pooler != Pooler::kNormed) return std::nullopt;
  return Norm(o.hidden_size, norm_options(o), scope / "pooler_norm");
}

}  // namespace

Var pooled_texts(const Var& hidden, const Tensor& lengths, TextPooling pooling) {
  const Device device = hidden.value().device();
  const PooledTokens pooled(pooling, lengths, hidden.shape()[1]);
  const Var chosen(pooled.chosen.to(hidden.dtype()).to(device));
  const Var sums = reshape(matmul(chosen, hidden), {hidden.shape()[0], hidden.shape().cols()});
  const DType wide = wider(hidden.dtype());
  return convert(sums, wide) * Var(pooled.scales.to(wide).to(device));
}

PoolerLayer::PoolerLayer(const ModelOptions& o, const ParamScope& scope)
    : kind(o.pooler),
      dense({.in = o.hidden_size,
             .out = o.hidden_size,
             .bias = o.pooler != Pooler::kNormed || o.bias,
             .activation = activation_of(o.pooler),
             .init = matrix_init(o)},
            scope / "pooler"),
      norm(make_norm(o, scope)) {}

Var PoolerLayer::operator()(const Var& x) const {
  const Var hidden = dense(x);
  if (kind == Pooler::kTanh) return tanh(hidden);
  return norm ? (*norm)(hidden) : hidden;
}

std::optional<PoolerLayer> token_pooler(const ModelOptions& o, const ParamScope& scope) {
  return make_pooler(o, o.pooled_tokens, scope);
}

ClassifierHead::ClassifierHead(const ModelOptions& o, int64_t classes, bool pooled,
                               const ParamScope& scope)
    : dropout(o.dropout),
      pooling(o.class_pooling),
      pooler(make_pooler(o, pooled, scope)),
      classifier({.in = o.hidden_size, .out = classes, .init = matrix_init(o), .hidden = false},
                 scope / "classifier") {}

Var ClassifierHead::operator()(const Var& x, const Tensor& lengths) const {
  const Var text = pooling == TextPooling::kFirst
                       ? reshape(slice(x, 1, 0, 1), {x.shape()[0], x.shape()[2]})
                       : convert(pooled_texts(x, lengths.to(Device{}), pooling), x.dtype());
  if (!pooler) return classifier(text);
  return classifier(tapestry::dropout((*pooler)(text), dropout));
}

}  // namespace tapestry
