#include "nn/models/classifier_head.h"

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

std::optional<Linear> make_pooler(const ModelOptions& o, bool pooled, const ParamScope& scope) {
  if (!pooled) return std::nullopt;
  const bool bias = o.pooler != Pooler::kNormed || o.bias;
  return Linear({.in = o.hidden_size,
                 .out = o.hidden_size,
                 .bias = bias,
                 .activation = activation_of(o.pooler),
                 .init = matrix_init(o)},
                scope / "pooler");
}

std::optional<Norm> make_norm(const ModelOptions& o, bool pooled, const ParamScope& scope) {
  if (!pooled || o.pooler != Pooler::kNormed) return std::nullopt;
  return Norm(o.hidden_size, norm_options(o), scope / "pooler_norm");
}

}  // namespace

ClassifierHead::ClassifierHead(const ModelOptions& o, int64_t classes, bool pooled,
                               const ParamScope& scope)
    : dropout(o.dropout),
      kind(o.pooler),
      pooler(make_pooler(o, pooled, scope)),
      norm(make_norm(o, pooled, scope)),
      classifier({.in = o.hidden_size, .out = classes, .init = matrix_init(o), .hidden = false},
                 scope / "classifier") {}

Var ClassifierHead::operator()(const Var& x) const {
  const Var first = reshape(slice(x, 1, 0, 1), {x.shape()[0], x.shape()[2]});
  if (!pooler) return classifier(first);
  Var hidden = (*pooler)(first);
  if (kind == Pooler::kTanh) hidden = tanh(hidden);
  if (norm) hidden = (*norm)(hidden);
  return classifier(tapestry::dropout(hidden, dropout));
}

}  // namespace tapestry
