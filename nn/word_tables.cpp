#include "nn/word_tables.h"

#include <cmath>

namespace tapestry {

Var embedding_table(const ModelOptions& o, int64_t rows, const ParamScope& scope) {
  const Init init = o.chosen_initializer() == Initializer::kXavierPacked
                        ? Init::normal(1 / std::sqrt(static_cast<double>(o.hidden_size)))
                        : matrix_init(o).of(rows, o.hidden_size);
  return scope.create("weight", {rows, o.hidden_size}, init);
}

Linear classifier(const ModelOptions& o, int64_t vocab, const Var& table, const ParamScope& scope) {
  const ParamScope output = scope / "output";
  if (!o.tie_word_embeddings) {
    return {{.in = o.hidden_size,
             .out = vocab,
             .bias = o.output_bias,
             .init = matrix_init(o),
             .adaptable = false},
            output};
  }
  Linear tied(table, scope.precision());
  if (o.output_bias) tied.bias = output.create("bias", {vocab}, Init::zeros());
  return tied;
}

}  // namespace tapestry
