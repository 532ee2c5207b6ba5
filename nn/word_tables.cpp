#include "nn/word_tables.h"

#include <cmath>

namespace tapestry {

Var embedding_table(const ModelOptions& o, int64_t rows, const ParamScope& scope) {
  const double deviation = o.initializer_range > 0
                               ? o.initializer_range
                               : 1 / std::sqrt(static_cast<double>(o.hidden_size));
  return scope.create("weight", {rows, o.hidden_size}, Init::normal(deviation));
}

Linear classifier(const ModelOptions& o, int64_t vocab, const Var& table, const ParamScope& scope) {
  const ParamScope output = scope / "output";
  if (!o.tie_word_embeddings) {
    return {{.in = o.hidden_size,
             .out = vocab,
             .bias = o.output_bias,
             .deviation = o.initializer_range},
            output};
  }
  Linear tied(table, scope.precision());
  if (o.output_bias) tied.bias = output.create("bias", {vocab}, Init::zeros());
  return tied;
}

}  // namespace tapestry
