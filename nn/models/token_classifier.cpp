#include "nn/models/token_classifier.h"

namespace tapestry {

TokenClassifier::TokenClassifier(const ModelOptions& o, const LanguageModel::Vocabulary& vocabulary,
                                 int64_t classes, const ParamScope& scope)
    : trunk(o, word_table(o, vocabulary.size, scope / "embedding"), /*causal=*/false, scope),
      pooler(token_pooler(o, scope)),
      dropout(o.dropout),
      head({.in = o.hidden_size, .out = classes, .init = matrix_init(o), .hidden = false},
           scope / "token_head") {}

Var TokenClassifier::hidden(const Tensor& ids, const Tensor& lengths,
                            const Tensor& segments) const {
  const Var x = trunk(ids, lengths, segments);
  return tapestry::dropout(pooler ? (*pooler)(x) : x, dropout);
}

CrossEntropy TokenClassifier::loss(const Var& hidden, const Tensor& labels,
                                   const CrossEntropyOptions& options) const {
  CrossEntropyOptions own = options;
  own.ignore_index = kNone;
  return head.loss(hidden, labels, own);
}

}  // namespace tapestry
