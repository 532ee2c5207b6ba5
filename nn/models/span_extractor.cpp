#include "nn/models/span_extractor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/shapes_only.h"

namespace tapestry {
namespace {

// The logit of padding: its probability is 0 in every type, and 0 times it is 0.
constexpr double kPaddingLogit = -1e4;

// (B, T): 1 behind the length of a row.
Tensor padding_mask(const Tensor& lengths, int64_t width) {
  Tensor mask = Tensor::empty({lengths.numel(), width}, DType::kInt32);
  if (!ShapesOnly::has_memory(mask.bytes())) return mask;
  int32_t* at = mask.data<int32_t>();
  for (const int32_t length : lengths.to_vector<int32_t>()) {
    for (int64_t t = 0; t < width; ++t) *at++ = t >= length ? 1 : 0;
  }
  return mask;
}

// The part that smoothing e adds to the loss of a row with n tokens, label c and logits z:
//   (1 - e) (lse - z_c) + e (lse - mean(z)) = (lse - z_c) + e (z_c - mean(z)).
// Returns the factors of z in the second term, summed over rows and divided by the normalizer.
Tensor smoothing_factors(const Shape& shape, const Tensor& length_of_rows,
                         const Tensor& label_of_rows, double factor) {
  Tensor factors = Tensor::full(shape, 0, DType::kFloat64);
  if (!ShapesOnly::has_memory(factors.bytes())) return factors;
  const auto lengths = length_of_rows.to_vector<int32_t>(),
             labels = label_of_rows.to_vector<int32_t>();
  double* at = factors.data<double>();
  const int64_t width = shape[2];
  for (size_t row = 0; row < labels.size(); ++row, at += width) {
    const int32_t length = lengths[row % lengths.size()];
    std::fill(at, at + length, -factor / length);
    at[labels[row]] += factor;
  }
  return factors;
}

}  // namespace

SpanExtractor::SpanExtractor(const ModelOptions& o, const LanguageModel::Vocabulary& vocabulary,
                             const ParamScope& scope)
    : trunk(o, word_table(o, vocabulary.size, scope / "embedding"), /*causal=*/false, scope),
      pooler(token_pooler(o, scope)),
      dropout(o.dropout),
      head({.in = o.hidden_size, .out = 2, .bias = false, .init = matrix_init(o), .hidden = false},
           scope / "span_head") {}

Var SpanExtractor::operator()(const Tensor& ids, const Tensor& lengths,
                              const Tensor& segments) const {
  const Device device = ids.device();
  Var x = trunk(ids, lengths.to(device), segments);
  if (pooler) x = tapestry::dropout((*pooler)(x), dropout);
  const Var logits = permute(head(x), {2, 0, 1});
  const Tensor mask = padding_mask(lengths, ids.shape()[1]);
  return masked_fill(logits, mask.to(device), kPaddingLogit);
}

CrossEntropy SpanExtractor::loss(const Tensor& ids, const Tensor& lengths, const Tensor& segments,
                                 const Tensor& labels, const CrossEntropyOptions& options) const {
  const Var logits = (*this)(ids, lengths, segments);
  CrossEntropyOptions plain = options;
  plain.label_smoothing = 0;
  if (plain.normalizer <= 0) plain.normalizer = static_cast<double>(labels.numel());
  CrossEntropy result = cross_entropy(logits, labels, plain);
  if (options.label_smoothing == 0) return result;
  const Tensor factors = smoothing_factors(logits.shape(), lengths, labels,
                                           options.label_smoothing / plain.normalizer);
  const Var more = sum(logits * Var(factors.to(logits.dtype()).to(ids.device())));
  result.loss = result.loss + more;
  const Var summed = affine(more.value().to(DType::kFloat64), plain.normalizer, 0);
  const Tensor zeros = Tensor::full({2}, 0, DType::kFloat64, ids.device());
  result.sums = (Var(result.sums) + concat({reshape(summed, {1}), Var(zeros)}, 0)).value();
  return result;
}

BestSpans best_spans(std::span<const double> first_logits, std::span<const double> last_logits,
                     const SpanSearch& search) {
  const auto size = static_cast<int64_t>(first_logits.size());
  check(last_logits.size() == first_logits.size() && search.begin >= 0 &&
            search.begin <= search.end && search.end <= size && search.max_length >= 1,
        "best_spans", "expected spans of [", search.begin, ", ", search.end, ") in ", size, " and ",
        last_logits.size(), " logits.");
  BestSpans best;
  double highest = -std::numeric_limits<double>::infinity();
  for (int64_t first = search.begin; first < search.end; ++first) {
    const int64_t stop = std::min(search.end, first + search.max_length);
    for (int64_t last = first; last < stop; ++last) {
      const double score =
          first_logits[static_cast<size_t>(first)] + last_logits[static_cast<size_t>(last)];
      best.spans.push_back({first, last, score});
      highest = std::max(highest, score);
    }
  }
  double total = 0;
  for (const TokenSpan& span : best.spans) total += std::exp(span.score - highest);
  best.log_total = highest + std::log(total);
  const auto kept = std::min<size_t>(best.spans.size(), static_cast<size_t>(search.n_best));
  std::partial_sort(best.spans.begin(), best.spans.begin() + static_cast<std::ptrdiff_t>(kept),
                    best.spans.end(), [](const TokenSpan& a, const TokenSpan& b) {
                      return std::tuple(-a.score, a.first, a.last) <
                             std::tuple(-b.score, b.first, b.last);
                    });
  best.spans.resize(kept);
  return best;
}

}  // namespace tapestry
