// Models that learn for int8 or int4: their forward pass is that of the packed model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/layers/weight_matrix.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the small models

constexpr WeightFormat kLearnt[] = {WeightFormat::kInt8, WeightFormat::kInt4};

// A small model whose store learns for a format, or for none.
template <class Model>
struct Learner {
  template <class... Arguments>
  explicit Learner(std::optional<WeightFormat> format, const Arguments&... arguments)
      : store(5, DType::kFloat32, {}, Precision::kFull, {}, ParamStore::Start::kDrawn, {}, format),
        model(arguments..., store.root()) {
    disturb(store);
  }
  ParamStore store;
  Model model;
};

Tensor some_ids(int64_t rows, int64_t length) {
  Tensor ids = Tensor::empty({rows, length}, DType::kInt32);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(4 + (7 * i + i / length) % (kVocabulary - 4));
  }
  return ids;
}

template <class Model>
Tensor logits_of_pairs(const Model& model) {
  const PairInput input{some_ids(3, 6), Tensor::from<int32_t>({6, 4, 1}, {3}), some_ids(3, 5)};
  return pair_logits(&model, input).value();
}
Tensor logits_of_texts(const LanguageModel& model) {
  return model.logits(model.hidden(some_ids(3, 7))).value();
}

double median_distance(const Tensor& a, const Tensor& b) {
  std::vector<double> x = a.to_vector<double>();
  const std::vector<double> y = b.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::abs(x[i] - y[i]);
  const auto middle = x.begin() + std::ssize(x) / 2;
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
}

// `make(format)` gives the same model every time, and `logits` reads it.
template <class Make, class Logits>
void expect_forward_of_packed(Make make, Logits logits) {
  for (const WeightFormat format : kLearnt) {
    SCOPED_TRACE(name_of(format));
    const auto plain = make(std::nullopt), learner = make(format), packed = make(std::nullopt);
    packed->store.pack(format);
    const Tensor expected = logits(packed->model), learnt = logits(learner->model);
    // A number that is about to be rounded may fall to the other side after another sum, which
    // moves the logits of its row, but not most of them.
    EXPECT_LT(median_distance(learnt, expected),
              0.01 * median_distance(logits(plain->model), expected));
    learner->store.pack(learner->store.usual_format());
    EXPECT_EQ(distance(logits(learner->model), expected), 0);
  }
}

const Vocabulary kPairs = {.source_size = kVocabulary, .target_size = kVocabulary, .no_target = 0};

TEST(LearnsFor, PairsAreSeenAsByThePackedModel) {
  for (const ModelOptions& options : {post_norm_options(), pre_norm_options()}) {
    expect_forward_of_packed(
        [&](std::optional<WeightFormat> format) {
          return std::make_unique<Learner<EncoderDecoder>>(format, options, kPairs);
        },
        logits_of_pairs<EncoderDecoder>);
  }
  expect_forward_of_packed(
      [&](std::optional<WeightFormat> format) {
        return std::make_unique<Learner<RnnAttention>>(format, post_norm_options(), kPairs);
      },
      logits_of_pairs<RnnAttention>);
}

TEST(LearnsFor, TextsAreSeenAsByThePackedModel) {
  for (const ModelOptions& options : {gpt2_options(), llama_options()}) {
    expect_forward_of_packed(
        [&](std::optional<WeightFormat> format) {
          return std::make_unique<Learner<LanguageModel>>(
              format, options, LanguageModel::Vocabulary{.size = kVocabulary, .no_target = 0},
              true);
        },
        logits_of_texts);
  }
}

// dx = dy W', dW = dy^T x' of the rounded W' and x'.
TEST(LearnsFor, GradientsAreThoseOfTheRoundedProduct) {
  const Tensor w = Tensor::from<float>({0.31F, -1.7F, 0.02F, 0.9F, 0.5F, -0.4F}, {2, 3});
  const Tensor x = Tensor::from<float>({1.01F, 0.3F, -0.77F}, {1, 3});
  const Tensor slope = Tensor::from<float>({2, -3}, {1, 2});
  const auto gradients = [&](const Tensor& weight, const Tensor& input, bool learns) {
    const Var v = Var::parameter(weight.clone()), u = Var::parameter(input.clone());
    const WeightMatrix matrix(v);
    if (learns) matrix.learn_for(WeightFormat::kInt8);
    Tape tape;
    const Var y = matrix.multiply(u, {});
    tape.backward(sum(y * Var(slope)));
    return std::array{y.value(), u.grad(), v.grad()};
  };
  const Tensor rounded_w = fake_quantize(w, Rounding::kInt8).value();
  const Tensor rounded_x = fake_quantize(x, Rounding::kInt8).value();
  ASSERT_GT(distance(rounded_w, w), 1e-4);
  const auto learnt = gradients(w, x, true), expected = gradients(rounded_w, rounded_x, false);
  for (size_t i = 0; i < learnt.size(); ++i) EXPECT_EQ(distance(learnt[i], expected[i]), 0) << i;
}

// A classifier's fused loss, and the rows of a table.
TEST(LearnsFor, LossesAndLookUpsAreRounded) {
  const ModelOptions options = gpt2_options();
  const LanguageModel::Vocabulary words{.size = kVocabulary, .no_target = 0};
  const Learner<LanguageModel> learner(WeightFormat::kInt8, options, words, true);
  const Tensor ids = some_ids(2, 6), targets = some_ids(2, 6);
  const Var hidden = learner.model.hidden(ids);
  const Tensor separate =
      cross_entropy(learner.model.logits(hidden), targets, {.ignore_index = 0}).loss.value();
  const Tensor fused = learner.model.output.loss(hidden, targets, {.ignore_index = 0}).loss.value();
  EXPECT_LT(distance(fused, separate), 1e-5);
  Learner<LanguageModel> packed(std::nullopt, options, words, true);
  const Tensor read = learner.model.trunk.embedding.table.look_up(ids).value();
  packed.store.pack(WeightFormat::kInt8);
  EXPECT_EQ(distance(read, packed.model.trunk.embedding.table.look_up(ids).value()), 0);
}

// A search between two updates has the integers of the packed model.
TEST(LearnsFor, ASearchWhileTrainingIsThatOfThePackedModel) {
  const Learner<EncoderDecoder> learner(WeightFormat::kInt8, post_norm_options(), kPairs);
  Learner<EncoderDecoder> packed(std::nullopt, post_norm_options(), kPairs);
  packed.store.pack(WeightFormat::kInt8);
  const TranslationInput input{.source = some_ids(3, 6),
                               .lengths = Tensor::from<int32_t>({6, 4, 1}, {3})};
  const PackedScope scope(learner.store);
  const auto found = translate({{&learner.model}}, input, {});
  const auto expected = translate({{&packed.model}}, input, {});
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].at(0).tokens, expected[i].at(0).tokens);
    EXPECT_EQ(found[i].at(0).log_probability, expected[i].at(0).log_probability);
  }
}

}  // namespace
}  // namespace tapestry
