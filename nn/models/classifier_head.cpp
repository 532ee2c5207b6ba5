#include "nn/models/classifier_head.h"

namespace tapestry {
namespace {

std::optional<Linear> make_pooler(const ModelOptions& o, bool pooled, const ParamScope& scope) {
  if (!pooled) return std::nullopt;
  return Linear({.in = o.hidden_size, .out = o.hidden_size, .init = matrix_init(o)},
                scope / "pooler");
}

}  // namespace

ClassifierHead::ClassifierHead(const ModelOptions& o, int64_t classes, bool pooled,
                               const ParamScope& scope)
    : dropout(o.dropout),
      pooler(make_pooler(o, pooled, scope)),
      classifier({.in = o.hidden_size, .out = classes, .init = matrix_init(o), .hidden = false},
                 scope / "classifier") {}

Var ClassifierHead::operator()(const Var& x) const {
  const Var first = reshape(slice(x, 1, 0, 1), {x.shape()[0], x.shape()[2]});
  if (!pooler) return classifier(first);
  return classifier(tapestry::dropout(tanh((*pooler)(first)), dropout));
}

}  // namespace tapestry
