// Finds spans of a sequence by two scores for each token: answers to questions about a text.
#pragma once

#include <span>
#include <vector>

#include "nn/models/language_model.h"

namespace tapestry {

/// A trunk with a linear layer that gives each token a logit to be the first of the span and one to
/// be the last (Devlin et al. 2019, 4.2), behind the pooler with ModelOptions::pooled_tokens.
struct SpanExtractor {
  SpanExtractor(const ModelOptions& options, const LanguageModel::Vocabulary& vocabulary,
                const ParamScope& scope);

  /// ids (B, T), lengths (B) in host memory, segments (B, T) or undefined -> (2, B, T): the logits
  /// of the beginning and of the end. Behind a row's length they are very small.
  Var operator()(const Tensor& ids, const Tensor& lengths, const Tensor& segments = {}) const;

  /// Cross-entropy of beginnings and ends: labels (2, B) in host memory. A smoothed label spreads
  /// over the tokens of its row, not over the padding.
  CrossEntropy loss(const Tensor& ids, const Tensor& lengths, const Tensor& segments,
                    const Tensor& labels, const CrossEntropyOptions& options) const;

  Trunk trunk;
  std::optional<PoolerLayer> pooler;
  double dropout;  ///< behind the pooler only
  Linear head;     ///< (D -> 2), without a bias, which no softmax sees
};

/// Tokens [first, last] of a row. The score is the sum of the two logits.
struct TokenSpan {
  int64_t first = 0;
  int64_t last = 0;
  double score = 0;
};

struct SpanSearch {
  int64_t begin = 0;  ///< spans lie in [begin, end) of the row
  int64_t end = 0;
  int64_t max_length = 30;  ///< tokens of a span, at least 1
  int64_t n_best = 1;
};

struct BestSpans {
  std::vector<TokenSpan> spans;  ///< best first; ties go to the earlier one
  double log_total = 0;          ///< log of the sum of exp(score) over all spans that are allowed
};

/// Searches all spans of one row by its logits.
BestSpans best_spans(std::span<const double> first_logits, std::span<const double> last_logits,
                     const SpanSearch& search);

}  // namespace tapestry
