// Options of T5, M2M100 and Gemma 2: factors and softcaps of scores and logits, one table under a
// classifier of its own, buckets of distances, and fairseq's sinusoids.
#include <cmath>

#include "nn/models/relative_positions.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::distance;
using test::some_ids;

void scale_rows(const Tensor& matrix, int64_t rows, double factor) {
  const int64_t columns = matrix.numel() / matrix.shape()[0];
  for (int64_t i = 0; i < rows * columns; ++i) matrix.data<double>()[i] *= factor;
}

void copy_parameters(const ParamStore& from, const ParamStore& to) {
  for (const Parameter& p : to.parameters()) p.var.value().copy_from(from.at(p.name).var.value());
}

// Each step of decoding gives the logits of the whole target.
void expect_steps(const EncoderDecoder& model, const Tensor& source, const Tensor& target,
                  const Tensor& wanted) {
  const Tensor lengths = test::lengths_tensor({7, 4});
  EncoderDecoder::State state = test::started(model, source, lengths);
  for (int64_t t = 0; t < target.shape()[1]; ++t) {
    const Tensor logits = model.step(test::columns(target, t, t + 1).reshape({2}), state);
    EXPECT_LT(distance(logits, test::columns(wanted, t, t + 1).reshape(logits.shape())), 1e-12);
  }
}

Tensor logits_of(const EncoderDecoder& model, const Tensor& source, const Tensor& target) {
  const Tensor lengths = test::lengths_tensor({7, 4});
  return model.logits(model.decode(target, model.encode(source, lengths), lengths)).value();
}

// A factor of the scores is one of the queries.
TEST(AttentionScale, MultipliesTheScores) {
  ModelOptions options = test::post_norm_options();
  options.head_size = 6;  // the usual factor is 6^-0.5
  const test::SmallModel plain(options);
  options.attention_scale = 0.7;
  const test::SmallModel scaled(options);
  copy_parameters(plain.store, scaled.store);
  const int64_t queries = 4 * 6;
  for (const Parameter& p : plain.store.parameters()) {
    if (p.name.find("self_attention.qkv.") != std::string::npos ||
        p.name.find("cross_attention.q.") != std::string::npos) {
      scale_rows(p.var.value(), queries, 0.7 * std::sqrt(6));
    }
  }
  const Tensor source = some_ids(7, 2), target = some_ids(5, 3);
  const Tensor wanted = logits_of(plain.model, source, target);
  EXPECT_LT(distance(logits_of(scaled.model, source, target), wanted), 1e-12);
  expect_steps(scaled.model, source, target, wanted);
}

TEST(LogitScale, MultipliesTheLogitsOfATranslation) {
  ModelOptions options = test::post_norm_options();
  const test::SmallModel plain(options);
  options.logit_scale = 0.25;
  const test::SmallModel scaled(options);
  copy_parameters(plain.store, scaled.store);
  const Tensor source = some_ids(7, 2), target = some_ids(5, 3);
  const Tensor wanted = (0.25 * Var(logits_of(plain.model, source, target))).value();
  EXPECT_LT(distance(logits_of(scaled.model, source, target), wanted), 1e-12);
  expect_steps(scaled.model, source, target, wanted);
  const CrossEntropy loss =
      scaled.model.loss({source, test::lengths_tensor({7, 4}), target, target}, {});
  EXPECT_NEAR(loss.loss.value().item(),
              cross_entropy(wanted, target, {.ignore_index = 0}).loss.value().item(), 1e-12);
}

TEST(LogitScale, MultipliesTheLogitsOfACausalModel) {
  ModelOptions options = test::gpt2_options();
  const test::SmallLanguageModel plain(options, /*causal=*/true);
  options.logit_scale = 0.25;
  const test::SmallLanguageModel scaled(options, /*causal=*/true);
  copy_parameters(plain.store, scaled.store);
  const Tensor ids = some_ids(9, 1);
  const Tensor wanted = (0.25 * plain.model.logits(plain.model.hidden(ids))).value();
  EXPECT_LT(distance(scaled.model.logits(scaled.model.hidden(ids)).value(), wanted), 1e-12);
  LanguageModel::State state = test::started(scaled.model, ids, 8);
  const Tensor last = test::step_of(scaled.model, ids, 8, state);
  EXPECT_LT(distance(last, test::columns(wanted, 8, 9).reshape(last.shape())), 1e-12);
  const double loss = scaled.model.loss({.ids = ids, .targets = ids}, {}).loss.value().item();
  EXPECT_NEAR(loss, cross_entropy(wanted, ids).loss.value().item(), 1e-12);
}

TEST(LogitSoftcap, BoundsTheLogitsOfATranslation) {
  ModelOptions options = test::post_norm_options();
  options.logit_scale = 0.7;
  const test::SmallModel plain(options);
  options.logit_softcap = 0.5;
  const test::SmallModel capped(options);
  copy_parameters(plain.store, capped.store);
  const Tensor source = some_ids(7, 2), target = some_ids(5, 3);
  const Tensor wanted = softcap(Var(logits_of(plain.model, source, target)), 0.5).value();
  EXPECT_LT(distance(logits_of(capped.model, source, target), wanted), 1e-12);
  expect_steps(capped.model, source, target, wanted);
}

TEST(LogitSoftcap, BoundsTheLogitsOfACausalModel) {
  ModelOptions options = test::gpt2_options();
  const test::SmallLanguageModel plain(options, /*causal=*/true);
  options.logit_softcap = 0.5;
  const test::SmallLanguageModel capped(options, /*causal=*/true);
  copy_parameters(plain.store, capped.store);
  const Tensor ids = some_ids(9, 1);
  const Tensor wanted = softcap(plain.model.logits(plain.model.hidden(ids)), 0.5).value();
  EXPECT_LT(distance(capped.model.logits(capped.model.hidden(ids)).value(), wanted), 1e-12);
  LanguageModel::State state = test::started(capped.model, ids, 8);
  const Tensor last = test::step_of(capped.model, ids, 8, state);
  EXPECT_LT(distance(last, test::columns(wanted, 8, 9).reshape(last.shape())), 1e-12);
  const double loss = capped.model.loss({.ids = ids, .targets = ids}, {}).loss.value().item();
  EXPECT_NEAR(loss, cross_entropy(wanted, ids).loss.value().item(), 1e-12);
}

// Steps of decoding see the scores that a whole text has.
TEST(AttentionSoftcap, IsInEveryAttentionAndStep) {
  ModelOptions options = test::post_norm_options();
  options.attention_scale = 3;
  const test::SmallModel plain(options);
  options.attention_softcap = 0.3;
  const test::SmallModel capped(options);
  copy_parameters(plain.store, capped.store);
  const Tensor source = some_ids(7, 2), target = some_ids(5, 3);
  const Tensor wanted = logits_of(capped.model, source, target);
  EXPECT_GT(distance(logits_of(plain.model, source, target), wanted), 1e-3);
  expect_steps(capped.model, source, target, wanted);
  AttentionRecorder recorder(/*with_scores=*/true);
  logits_of(capped.model, source, target);
  ASSERT_FALSE(recorder.maps().empty());
  double largest = 0;
  for (const AttentionRecorder::Map& map : recorder.maps()) {
    for (const double score : map.scores.to_vector<double>()) {
      if (std::isfinite(score)) largest = std::max(largest, std::abs(score));
    }
  }
  EXPECT_LE(largest, 0.3);
  EXPECT_GT(largest, 0.1);
}

TEST(SharedEmbeddings, AreOneTableUnderAClassifierOfItsOwn) {
  ModelOptions options = test::post_norm_options();
  options.tie_word_embeddings = false;
  EXPECT_TRUE(test::SmallModel(options).store.contains("encoder.embedding.weight"));
  options.share_encoder_decoder_embeddings = true;
  const test::SmallModel shared(options);
  EXPECT_TRUE(shared.store.contains("embedding.weight"));
  EXPECT_TRUE(shared.store.contains("output.weight"));
  EXPECT_FALSE(shared.store.contains("encoder.embedding.weight"));
  EXPECT_FALSE(shared.store.contains("decoder.embedding.weight"));
}

TEST(RelativeBuckets, HaveANumberAndAFarthestDistance) {
  ModelOptions options = test::post_norm_options();
  options.position_embedding = PositionEmbedding::kRelative;
  options.relative_attention_num_buckets = 8;
  options.relative_attention_max_distance = 6;
  const test::SmallModel model(options);
  EXPECT_EQ(model.store.at("encoder.relative_positions.weight").var.shape(), (Shape{8, 4}));
  EXPECT_EQ(relative_bucket(-6, /*both_ways=*/true, 8, 6), 3);
  EXPECT_EQ(relative_bucket(5, /*both_ways=*/true, 8, 6), 7);
  EXPECT_EQ(relative_bucket(-5, /*both_ways=*/false, 8, 6), 6);
  options.relative_attention_max_distance = 4;
  EXPECT_THROW(test::SmallModel{options}, Error);
}

// Position 2 is the first: sines of 2 and of 2 / 10000, then cosines.
TEST(FairseqPositions, BeginAtTwoWithSinesInFront) {
  const auto values = fairseq_positions(3, 4, DType::kFloat64).to_vector<double>();
  EXPECT_DOUBLE_EQ(values[0], std::sin(2.0));
  EXPECT_DOUBLE_EQ(values[1], std::sin(2e-4));
  EXPECT_DOUBLE_EQ(values[2], std::cos(2.0));
  EXPECT_DOUBLE_EQ(values[8 + 1], std::sin(4e-4));
}

}  // namespace
}  // namespace tapestry
