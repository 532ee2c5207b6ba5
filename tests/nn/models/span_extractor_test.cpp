#include "nn/models/span_extractor.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::kVocabulary;

struct SmallSpanExtractor {
  explicit SmallSpanExtractor(const ModelOptions& options)
      : store(5, DType::kFloat64), model(options, {.size = kVocabulary}, store.root()) {
    test::disturb(store);
  }
  ParamStore store;
  SpanExtractor model;
};

const Tensor kIds = Tensor::from<int32_t>({2, 7, 3, 9, 10, 3, 2, 6, 3, 8, 3, 0}, {2, 6});
const Tensor kLengths = Tensor::from<int32_t>({6, 5}, {2});
const Tensor kSegments = Tensor::from<int32_t>({0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0}, {2, 6});
const Tensor kLabels = Tensor::from<int32_t>({3, 0, 4, 3}, {2, 2});

TEST(SpanExtractor, LossIsTheMeanOfBothCrossEntropies) {
  const SmallSpanExtractor small(test::bert_options());
  const std::vector<double> z = small.model(kIds, kLengths, kSegments).value().to_vector<double>();
  for (const double smoothing : {0.0, 0.2}) {
    double loss = 0, nll = 0, correct = 0;
    for (int64_t row = 0; row < 4; ++row) {
      const int64_t length = row % 2 == 0 ? 6 : 5;
      const double* const logits = z.data() + row * 6;
      const int32_t label = kLabels.data<int32_t>()[row];
      double sum = 0, mean = 0;
      int64_t best = 0;
      for (int64_t t = 0; t < length; ++t) {
        sum += std::exp(logits[t]);
        mean += logits[t] / static_cast<double>(length);
        if (logits[t] > logits[best]) best = t;
      }
      nll += std::log(sum) - logits[label];
      loss +=
          (1 - smoothing) * (std::log(sum) - logits[label]) + smoothing * (std::log(sum) - mean);
      correct += best == label ? 1 : 0;
    }
    for (const double normalizer : {0.0, 7.0}) {
      const CrossEntropy result =
          small.model.loss(kIds, kLengths, kSegments, kLabels,
                           {.label_smoothing = smoothing, .normalizer = normalizer});
      EXPECT_NEAR(result.loss.value().item(), loss / (normalizer > 0 ? normalizer : 4), 1e-12);
      EXPECT_NEAR(result.loss_sum(), loss, 1e-12);
      EXPECT_NEAR(result.nll_sum(), nll, 1e-12);
      EXPECT_EQ(result.correct(), correct);
      EXPECT_EQ(result.tokens, 4);
    }
  }
}

TEST(SpanExtractor, PaddingChangesNothing) {
  const SmallSpanExtractor small(test::bert_options());
  const auto both = small.model(kIds, kLengths, kSegments).value().to_vector<double>();
  const auto row = [](const Tensor& x) {
    return Tensor::from(std::vector<int32_t>(x.data<int32_t>() + 6, x.data<int32_t>() + 11),
                        {1, 5});
  };
  const auto one = small.model(row(kIds), Tensor::from<int32_t>({5}, {1}), row(kSegments))
                       .value()
                       .to_vector<double>();
  for (int64_t side = 0; side < 2; ++side) {
    for (int64_t t = 0; t < 5; ++t) {
      EXPECT_NEAR(both[static_cast<size_t>(side * 12 + 6 + t)],
                  one[static_cast<size_t>(side * 5 + t)], 1e-12);
    }
    EXPECT_LT(both[static_cast<size_t>(side * 12 + 11)], -1000);
  }
}

// So that init_from takes a masked model's trunk.
TEST(SpanExtractor, ItsTrunkIsNamedAsThatOfAMaskedModel) {
  const SmallSpanExtractor small(test::bert_options());
  const test::SmallLanguageModel masked(test::bert_options(), /*causal=*/false);
  int own = 0;
  for (const Parameter& parameter : small.store.parameters()) {
    if (parameter.name.starts_with("span_head.")) {
      ++own;
    } else {
      EXPECT_TRUE(masked.store.contains(parameter.name)) << parameter.name;
    }
  }
  EXPECT_EQ(own, 1);
}

TEST(BestSpans, AreThoseOfATryOfAll) {
  const std::vector<double> first = {9, 0.5, 2, -1, 0.25, 3, 9}, last = {9, 1, 0.5, 4, -2, 0.75, 9};
  const SpanSearch search{.begin = 1, .end = 6, .max_length = 3, .n_best = 4};
  std::vector<std::tuple<double, int64_t, int64_t>> all;
  double total = 0;
  for (int64_t i = 1; i < 6; ++i) {
    for (int64_t j = 1; j < 6; ++j) {
      if (j < i || j - i + 1 > 3) continue;
      const double score = first[static_cast<size_t>(i)] + last[static_cast<size_t>(j)];
      all.emplace_back(-score, i, j);
      total += std::exp(score);
    }
  }
  std::sort(all.begin(), all.end());
  const BestSpans best = best_spans(first, last, search);
  ASSERT_EQ(best.spans.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::tuple(-best.spans[i].score, best.spans[i].first, best.spans[i].last), all[i]);
  }
  EXPECT_NEAR(best.log_total, std::log(total), 1e-12);
  // Fewer spans than asked for.
  EXPECT_EQ(
      best_spans(first, last, {.begin = 2, .end = 3, .max_length = 9, .n_best = 5}).spans.size(),
      1u);
  EXPECT_THROW(best_spans(first, last, {.begin = 2, .end = 8}), Error);
}

}  // namespace
}  // namespace tapestry
