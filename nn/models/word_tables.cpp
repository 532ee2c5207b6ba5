#include "nn/models/word_tables.h"

#include <cmath>

namespace tapestry {

namespace {

Init table_init(const ModelOptions& o, int64_t rows) {
  return o.chosen_initializer() == Initializer::kXavierPacked
             ? Init::normal(1 / std::sqrt(static_cast<double>(o.embedding_width())))
             : matrix_init(o).of(rows, o.embedding_width());
}

}  // namespace

Var embedding_table(const ModelOptions& o, int64_t rows, const ParamScope& scope) {
  return scope.create("weight", {rows, o.embedding_width()}, table_init(o, rows));
}

WeightMatrix word_table(const ModelOptions& o, int64_t rows, const ParamScope& scope) {
  return scope.create_matrix("weight", {rows, o.embedding_width()}, {{rows, table_init(o, rows)}});
}

Linear classifier(const ModelOptions& o, int64_t vocab, const WeightMatrix& table,
                  const ParamScope& scope) {
  const ParamScope output = scope / "output";
  Linear made = o.tie_word_embeddings ? Linear(table, scope.precision())
                                      : Linear({.in = o.embedding_width(),
                                                .out = vocab,
                                                .bias = o.output_bias,
                                                .init = matrix_init(o),
                                                .adaptable = false,
                                                .hidden = false},
                                               output);
  if (o.tie_word_embeddings && o.output_bias) {
    made.bias = output.create("bias", {vocab}, Init::zeros());
  }
  made.softcap = o.logit_softcap;
  return made;
}

}  // namespace tapestry
