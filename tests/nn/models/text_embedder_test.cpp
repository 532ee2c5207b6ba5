// Vectors of texts against a sum over their tokens, and their loss against a naive softmax.
#include "nn/models/text_embedder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/philox.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using Rows = std::vector<std::vector<double>>;

constexpr int64_t kSize = 16;

TEST(TextEmbedderTest, EndsInADenseLayerWhereItHasOne) {
  const Tensor ids = Tensor::from(std::vector<int32_t>{4, 7, 5, 9}, {1, 4});
  const Tensor lengths = Tensor::from(std::vector<int32_t>{4}, {1});
  for (const bool tanh : {true, false}) {
    ModelOptions options = test::gpt2_options();
    options.unit_vectors = false;
    ParamStore plain_store(1, DType::kFloat64), store(1, DType::kFloat64);
    const TextEmbedder plain(options, {.size = test::kVocabulary}, plain_store.root());
    options.vector_size = 3;
    options.vector_tanh = tanh;
    const TextEmbedder model(options, {.size = test::kVocabulary}, store.root());
    const auto pooled = plain(ids, lengths).value().to_vector<double>();
    const auto vector = model(ids, lengths).value().to_vector<double>();
    const auto weight = model.dense->weight.value().to_vector<double>();
    ASSERT_EQ(vector.size(), 3u);
    for (size_t row = 0; row < 3; ++row) {
      double sum = 0;  // biases begin at 0
      for (size_t i = 0; i < kSize; ++i) sum += weight[row * kSize + i] * pooled[i];
      EXPECT_NEAR(vector[row], tanh ? std::tanh(sum) : sum, 1e-12);
    }
  }
}

TEST(TextEmbedderTest, PoolsTheTokensOfEachText) {
  const Tensor ids = Tensor::from(std::vector<int32_t>{4, 7, 5, 9, 10, 6, 0, 0}, {2, 4});
  const std::vector<int32_t> lengths = {4, 2};
  for (const TextPooling pooling : {TextPooling::kMean, TextPooling::kFirst, TextPooling::kLast}) {
    for (const bool unit : {false, true}) {
      ModelOptions options = test::gpt2_options();
      options.text_pooling = pooling;
      options.unit_vectors = unit;
      ParamStore store(1, DType::kFloat64);
      const TextEmbedder model(options, {.size = test::kVocabulary}, store.root());
      const Tensor all = Tensor::from(lengths, {2});
      const auto tokens = model.trunk(ids, all).value().to_vector<double>();
      const auto vectors = model(ids, all).value().to_vector<double>();
      for (size_t row = 0; row < 2; ++row) {
        std::vector<double> expected(kSize, 0);
        double squares = 0;
        const auto length = static_cast<size_t>(lengths[row]);
        for (size_t i = 0; i < kSize; ++i) {
          for (size_t t = 0; t < length; ++t) {
            const bool taken = pooling == TextPooling::kMean ||
                               (pooling == TextPooling::kFirst ? t == 0 : t + 1 == length);
            if (taken) expected[i] += tokens[(row * 4 + t) * kSize + i];
          }
          if (pooling == TextPooling::kMean) expected[i] /= static_cast<double>(length);
          squares += expected[i] * expected[i];
        }
        for (size_t i = 0; i < kSize; ++i) {
          EXPECT_NEAR(vectors[row * kSize + i], expected[i] / (unit ? std::sqrt(squares) : 1),
                      // The scales 1 / length are float32.
                      1e-7);
        }
      }
    }
  }
}

// -log of the own target's share, where `equal` ones are no choice.
double naive_loss(const Rows& products, const std::vector<int64_t>& texts) {
  double sum = 0;
  for (size_t row = 0; row < products.size(); ++row) {
    double all = 0;
    for (size_t other = 0; other < products.size(); ++other) {
      const bool equal = !texts.empty() && texts[row] == texts[other];
      if (other == row || !equal) all += std::exp(products[row][other]);
    }
    sum += std::log(all) - products[row][row];
  }
  return sum;
}

TEST(TextEmbedderTest, ThePairIsToBeFoundAmongThePairs) {
  constexpr int64_t kRows = 5, kWidth = 3;
  constexpr double kTemperature = 0.3;
  const auto draws = [](uint32_t stream) {
    std::vector<double> values;
    for (uint64_t i = 0; i < kRows * kWidth; ++i)
      values.push_back(philox_normal({7, 0, stream}, i));
    return values;
  };
  const std::vector<double> sources = draws(1), targets = draws(2);
  Rows forwards(kRows, std::vector<double>(kRows)), backwards = forwards;
  for (size_t a = 0; a < kRows; ++a) {
    for (size_t b = 0; b < kRows; ++b) {
      double product = 0;
      for (size_t i = 0; i < kWidth; ++i)
        product += sources[a * kWidth + i] * targets[b * kWidth + i];
      forwards[a][b] = backwards[b][a] = product / kTemperature;
    }
  }
  const Var q(Tensor::from(sources, {kRows, kWidth})), p(Tensor::from(targets, {kRows, kWidth}));
  const EqualTexts equal{.sources = {0, 1, 2, 3, 3}, .targets = {0, 1, 0, 3, 0}};
  for (const EqualTexts& texts : {EqualTexts(), equal}) {
    const double there = naive_loss(forwards, texts.targets);
    const double back = naive_loss(backwards, texts.sources);
    const CrossEntropy one =
        contrastive_loss(q, p, texts, {.temperature = kTemperature}, {.normalizer = 10});
    EXPECT_NEAR(one.loss.value().item(), there / 10, 1e-12);
    EXPECT_NEAR(one.nll_sum(), there, 1e-12);
    EXPECT_EQ(one.tokens, kRows);
    const CrossEntropy both = contrastive_loss(
        q, p, texts, {.temperature = kTemperature, .both_directions = true}, {.normalizer = 10});
    EXPECT_NEAR(both.loss.value().item(), (there + back) / 20, 1e-12);
    EXPECT_NEAR(both.nll_sum(), (there + back) / 2, 1e-12);
  }
}

TEST(TextEmbedderTest, NegativesAreFurtherChoices) {
  const Var q(Tensor::from(std::vector<double>{1, 0, 0, 1}, {2, 2}));
  const Var p(Tensor::from(std::vector<double>{2, 0, 0, 3, 1, 1, 0, 3}, {4, 2}));
  // Products with the two targets and two negatives: 2 0 1 0 and 0 3 1 3.
  const auto loss = [](const std::vector<double>& all, double own) {
    double sum = 0;
    for (const double one : all) sum += std::exp(one);
    return std::log(sum) - own;
  };
  EXPECT_NEAR(contrastive_loss(q, p, {}, {.temperature = 1}, {}).nll_sum(),
              loss({2, 0, 1, 0}, 2) + loss({0, 3, 1, 3}, 3), 1e-12);
  // The last negative is equal to the second target: it is no choice for the second source.
  const EqualTexts equal{.sources = {0, 1}, .targets = {0, 1, 2, 1}};
  EXPECT_NEAR(contrastive_loss(q, p, equal, {.temperature = 1}, {}).nll_sum(),
              loss({2, 0, 1, 0}, 2) + loss({0, 3, 1}, 3), 1e-12);
  // The other direction finds sources only.
  EXPECT_NEAR(
      contrastive_loss(q, p, {}, {.temperature = 1, .both_directions = true}, {}).nll_sum(),
      (loss({2, 0, 1, 0}, 2) + loss({0, 3, 1, 3}, 3) + loss({2, 0}, 2) + loss({0, 3}, 3)) / 2,
      1e-12);
}

TEST(TextEmbedderTest, LargerScoresShallHaveLargerProducts) {
  const std::vector<double> a = {1, 0, 0, 1, 1, 1}, b = {0.5, 2, 3, 0.1, 0.2, 0.2};
  const std::vector<double> products = {0.5, 0.1, 0.4};
  const std::vector<float> scores = {1, 3, 1};
  double sum = 1;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      if (scores[i] > scores[j]) sum += std::exp((products[j] - products[i]) / 0.05);
    }
  }
  const CrossEntropy loss =
      ranking_loss(Var(Tensor::from(a, {3, 2})), Var(Tensor::from(b, {3, 2})), scores, 0.05, {});
  EXPECT_NEAR(loss.loss.value().item(), std::log(sum), 1e-12);
  EXPECT_EQ(loss.tokens, 1);
  EXPECT_NEAR(
      ranking_loss(Var(Tensor::from(a, {3, 2})), Var(Tensor::from(b, {3, 2})), {2, 2, 2}, 0.05, {})
          .loss.value()
          .item(),
      0, 1e-12);
}

}  // namespace
}  // namespace tapestry
