// The matrices of a model that have a row for each word: embeddings and classifier.
#pragma once

#include "nn/models/model_options.h"

namespace tapestry {

/// A new parameter "<scope>.weight" (rows, E), where E is embedding_width(), D but for narrow
/// embeddings. Under kXavierPacked it is N(0, 1/E), so that scaling by sqrt(E) gives embeddings of
/// unit variance and a tied classifier starts with logits of order 1; under the others it starts as
/// a matrix (rows, E).
Var embedding_table(const ModelOptions& options, int64_t rows, const ParamScope& scope);

/// A table for a vocabulary, which is only looked up in and multiplied by, so that it can be
/// packed.
WeightMatrix word_table(const ModelOptions& options, int64_t rows, const ParamScope& scope);

/// The last hidden states of a model that writes, as its classifier reads them: logit_scale * x. A
/// softcap comes behind the classifier.
inline Var scaled_for_logits(const ModelOptions& options, const Var& x) {
  return options.logit_scale == 1 ? x : options.logit_scale * x;
}

/// The classifier, (..., E) -> (..., vocab). Its matrix is `table` if embeddings are tied, else a
/// new parameter "<scope>.output.weight"; with output_bias it has a "<scope>.output.bias". Its
/// logits have the logit_softcap.
Linear classifier(const ModelOptions& options, int64_t vocab, const WeightMatrix& table,
                  const ParamScope& scope);

}  // namespace tapestry
