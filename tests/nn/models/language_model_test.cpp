// Properties of language models and classifiers that hold for any parameters.
#include "nn/models/language_model.h"

#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::bert_options;
using test::columns;
using test::distance;
using test::gpt2_options;
using test::kVocabulary;
using test::llama_options;
using test::Pass;
using test::sentences;
using test::SmallLanguageModel;
using test::text_batch;
using test::with_dropout;

struct LanguageModelVariant {
  const char* name;
  ModelOptions options;
  bool causal;
};

void PrintTo(const LanguageModelVariant& variant, std::ostream* out) { *out << variant.name; }

std::string name_of_case(const ::testing::TestParamInfo<LanguageModelVariant>& info) {
  return info.param.name;
}

ModelOptions linear_head_options() {
  ModelOptions options = bert_options();
  options.transformed_head = false;
  return options;
}

class LanguageModels : public ::testing::TestWithParam<LanguageModelVariant> {
 protected:
  Pass pass_of(const LanguageModel::Batch& batch, double normalizer = 0) const {
    return test::train_pass(built_.store, [&] {
      return model_.loss(batch, {.label_smoothing = 0.1, .normalizer = normalizer}).loss;
    });
  }

  const bool causal_ = GetParam().causal;
  const SmallLanguageModel built_{GetParam().options, causal_};
  const LanguageModel& model_ = built_.model;
};

INSTANTIATE_TEST_SUITE_P(
    Variants, LanguageModels,
    ::testing::Values(LanguageModelVariant{"gpt2", gpt2_options(), true},
                      LanguageModelVariant{"llama", llama_options(), true},
                      LanguageModelVariant{"bert", bert_options(), false},
                      LanguageModelVariant{"linear_head", linear_head_options(), false},
                      LanguageModelVariant{"masked_llama", llama_options(), false}),
    name_of_case);

Tensor changed_at(const Tensor& ids, int64_t index) {
  const Tensor other = ids.clone();
  int32_t& token = other.data<int32_t>()[index];
  token = token == 4 ? 5 : 4;
  return other;
}

// ---- Masks

TEST_P(LanguageModels, PaddingChangesNeitherLossNorGradients) {
  LanguageModel::Batch batch = text_batch({6, 3}, 6, causal_);
  const Pass tight = pass_of(batch);
  batch.ids = test::widened(batch.ids, 9);
  batch.targets = test::widened(batch.targets, 9);
  EXPECT_LT(distance(tight, pass_of(batch)), 1e-12);
  if (!causal_) return;
  batch.lengths = {};
  EXPECT_LT(distance(tight, pass_of(batch)), 1e-12) << "no real token sees the padding";
}

TEST_P(LanguageModels, LossIsTheCrossEntropyOfAllLogits) {
  const LanguageModel::Batch batch = text_batch({6, 3}, 6, causal_);
  Pass full = test::train_pass(built_.store, [&] {
    const Var logits = model_.logits(model_.hidden(batch.ids, batch.lengths));
    return cross_entropy(logits, batch.targets, {.label_smoothing = 0.1, .ignore_index = 0}).loss;
  });
  EXPECT_LT(distance(full, pass_of(batch)), 1e-12);
  EXPECT_EQ(model_.loss(batch, {}).tokens, causal_ ? 9 : 3);
}

// A micro-batch may hold no masked token at all.
TEST_P(LanguageModels, ABatchWithoutTargetsGivesNothing) {
  LanguageModel::Batch batch = text_batch({6, 3}, 6, causal_);
  batch.targets = Tensor::zeros(batch.ids.shape(), DType::kInt32);
  const Pass pass = pass_of(batch, /*normalizer=*/7);
  EXPECT_EQ(pass.loss.item(), 0);
  for (const Tensor& gradient : pass.gradients) {
    EXPECT_EQ(distance(gradient, Tensor::zeros(gradient.shape(), DType::kFloat64)), 0);
  }
  EXPECT_EQ(model_.loss(batch, {}).tokens, 0);
}

// Micro-batches of other widths, divided by the tokens of the whole update.
TEST_P(LanguageModels, AccumulatedGradientsEqualTheBigBatchs) {
  const LanguageModel::Batch batch = text_batch({6, 3, 4, 2}, 6, causal_);
  const auto tokens = static_cast<double>(model_.loss(batch, {}).tokens);
  const Pass whole = pass_of(batch);
  const auto part = [&](int64_t begin, int64_t end, int64_t width) {
    return LanguageModel::Batch{columns(batch.ids.slice(begin, end), 0, width),
                                columns(batch.targets.slice(begin, end), 0, width),
                                batch.lengths.slice(begin, end)};
  };
  const Pass first = pass_of(part(0, 1, 6), tokens), rest = pass_of(part(1, 4, 4), tokens);
  EXPECT_NEAR(first.loss.item() + rest.loss.item(), whole.loss.item(), 1e-12);
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    const Tensor sum = (Var(first.gradients[i]) + Var(rest.gradients[i])).value();
    EXPECT_LT(distance(sum, whole.gradients[i]), 1e-12) << built_.store.parameters()[i].name;
  }
}

TEST_P(LanguageModels, TokensSeeWhatTheMaskAllows) {
  const Tensor ids = test::uniform_ids({1, 6}, 4, 2, kVocabulary);
  const Tensor before = model_.hidden(ids).value();
  for (int64_t changed = 0; changed < 6; ++changed) {
    const Tensor after = model_.hidden(changed_at(ids, changed)).value();
    if (causal_) {
      EXPECT_TRUE(test::same_bits(columns(before, 0, changed), columns(after, 0, changed)));
    }
    for (int64_t t = causal_ ? changed : 0; t < 6; ++t) {
      EXPECT_GT(distance(columns(before, t, t + 1), columns(after, t, t + 1)), 1e-5)
          << "token " << changed << " must be felt at " << t;
    }
  }
}

// With the same parameters. In one layer the last token sees every key in both; a single token does
// so in any number of layers.
TEST_P(LanguageModels, CausalAndMaskedModelsShareTheTrunk) {
  ModelOptions options = GetParam().options;
  const Tensor ids = test::uniform_ids({2, 6}, 4, 2, kVocabulary);
  for (const int64_t layers : {1, 2}) {
    options.num_hidden_layers = layers;
    const SmallLanguageModel causal(options, true), masked(options, false);
    for (const Parameter& p : causal.store.parameters()) {
      p.var.value().copy_from(masked.store.at(p.name).var.value());
    }
    const Tensor fed = layers == 1 ? ids : columns(ids, 0, 1);
    const int64_t last = fed.shape()[1] - 1;
    const Tensor x = causal.model.trunk(fed).value(), y = masked.model.trunk(fed).value();
    EXPECT_LT(distance(columns(x, last, last + 1), columns(y, last, last + 1)), 1e-13);
    if (last > 0) {
      EXPECT_GT(distance(columns(x, 0, 1), columns(y, 0, 1)), 1e-3);
    }
  }
}

TEST_P(LanguageModels, WithoutPositionsAMaskedTrunkFollowsAPermutation) {
  const Tensor ids = test::ints({5, 9, 4, 17, 11, 8}, {1, 6});
  const std::vector<int64_t> order = {3, 0, 5, 1, 4, 2};
  const Tensor permuted = ids.clone();
  for (int64_t t = 0; t < 6; ++t) permuted.data<int32_t>()[t] = ids.data<int32_t>()[order[t]];
  // The largest distance between a token's states in both orders.
  const auto moved = [&](const ModelOptions& options) {
    const SmallLanguageModel built(options, /*causal=*/false);
    const Tensor x = built.model.trunk(ids).value(), y = built.model.trunk(permuted).value();
    double largest = 0;
    for (int64_t t = 0; t < 6; ++t) {
      largest =
          std::max(largest, distance(columns(y, t, t + 1), columns(x, order[t], order[t] + 1)));
    }
    return largest;
  };
  ModelOptions options = GetParam().options;
  EXPECT_GT(moved(options), 1e-3);
  options.position_embedding = PositionEmbedding::kNone;
  EXPECT_LT(moved(options), 1e-12);
}

TEST_P(LanguageModels, NoMorePositionsThanTheModelHasLearned) {
  const Tensor ids = test::uniform_ids({1, 49}, 4, 2, kVocabulary);
  EXPECT_EQ(test::error_of([&] { model_.hidden(columns(ids, 0, 48)); }), "");
  const std::string error = test::error_of([&] { model_.hidden(ids); });
  const bool learned = GetParam().options.position_embedding == PositionEmbedding::kLearned;
  EXPECT_THAT(error, ::testing::HasSubstr(learned ? "learned 48 positions" : ""));
  EXPECT_EQ(error.empty(), !learned);
}

TEST(Segments, AreAllZeroUnlessGiven) {
  const SmallLanguageModel built(bert_options(), /*causal=*/false);
  LanguageModel::Batch batch = text_batch({6, 3}, 6, /*causal=*/false);
  const auto pass = [&] {
    return test::train_pass(built.store, [&] { return built.model.loss(batch, {}).loss; });
  };
  const Pass plain = pass();
  batch.segments = Tensor::zeros({2, 6}, DType::kInt32);
  EXPECT_LT(distance(plain, pass()), 1e-13);
  batch.segments.data<int32_t>()[2] = 1;
  EXPECT_GT(distance(plain, pass()), 1e-3);
}

// ---- Dropout and determinism

TEST_P(LanguageModels, DropoutIsAtEveryPlace) {
  const SmallLanguageModel built(with_dropout(GetParam().options), causal_);
  Tape tape({.seed = 1, .step = 1, .stream = 0});
  built.model.loss(text_batch({6, 3}, 6, causal_), {});
  // The embedding; weights and output of attention; inside and behind the feed-forward network.
  EXPECT_EQ(tape.next_random().stream, 1 + built.model.options.num_hidden_layers * (2 + 2));
}

TEST_P(LanguageModels, DropoutIsOnUnderATapeAndRepeatsByKey) {
  const SmallLanguageModel built(with_dropout(GetParam().options), causal_);
  const LanguageModel::Batch batch = text_batch({6, 3}, 6, causal_);
  const Tensor quiet = model_.loss(batch, {}).loss.value();
  EXPECT_TRUE(test::same_bits(quiet, built.model.loss(batch, {}).loss.value()));
  const auto drawn = [&](uint32_t step) {
    Tape tape({.seed = 1, .step = step, .stream = 0});
    return built.model.loss(batch, {}).loss.value();
  };
  EXPECT_FALSE(test::same_bits(quiet, drawn(4)));
  EXPECT_TRUE(test::same_bits(drawn(4), drawn(4)));
  EXPECT_FALSE(test::same_bits(drawn(4), drawn(5)));
}

// The second model is large enough for products and attention to be cut into many tiles.
TEST_P(LanguageModels, SameBitsForAnyNumberOfThreads) {
  ModelOptions large = with_dropout(GetParam().options);
  large.hidden_size = 128;
  large.intermediate_size = 256;
  large.num_hidden_layers = 1;
  large.max_position_embeddings = 128;
  const auto expect_same = [&](const ModelOptions& options, DType dtype,
                               const LanguageModel::Batch& batch) {
    const SmallLanguageModel built(options, causal_, dtype);
    const auto run = [&](int threads) {
      const test::WithThreads scope(threads);
      return test::train_pass(
          built.store, [&] { return built.model.loss(batch, {.label_smoothing = 0.1}).loss; },
          {.seed = 3, .step = 2, .stream = 0});
    };
    const Pass one = run(1);
    EXPECT_TRUE(std::isfinite(one.loss.item()));
    for (const int threads : {1, 2, 3}) EXPECT_TRUE(same_bits(one, run(threads))) << threads;
  };
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    expect_same(with_dropout(GetParam().options), dtype, text_batch({9, 4, 7}, 9, causal_));
  }
  expect_same(large, DType::kFloat32, text_batch({70, 65, 33, 1}, 70, causal_));
}

// ---- Classifiers

struct SmallClassifier {
  explicit SmallClassifier(const ModelOptions& options)
      : model(options, {.size = kVocabulary}, /*classes=*/3, store.root()) {
    test::disturb(store);
  }
  ParamStore store{5, DType::kFloat64};
  SequenceClassifier model;
};

TEST(SequenceClassifierTest, ReadsTheFirstTokenAtTheTop) {
  const SmallClassifier built(bert_options());
  const std::vector<int32_t> lengths = {6, 3};
  const Tensor ids = sentences(lengths, 6, 1), sizes = test::lengths_tensor(lengths);
  const Tensor logits = built.model(ids, sizes).value();
  const auto value = [&](const char* name) { return built.store.at(name).var.value(); };
  const Var first = columns(built.model.trunk(ids, sizes).value(), 0, 1).reshape({2, 16});
  const Var pooled =
      tanh(matmul(first, value("pooler.weight"), {.trans_b = true}) + value("pooler.bias"));
  const Var expected =
      matmul(pooled, value("classifier.weight"), {.trans_b = true}) + value("classifier.bias");
  EXPECT_LT(distance(logits, expected.value()), 1e-13);
  EXPECT_LT(distance(logits, built.model(test::widened(ids, 9), sizes).value()), 1e-13);
  // The first token has seen all real ones; without layers it has seen none.
  ModelOptions flat = bert_options();
  flat.num_hidden_layers = 0;
  const SmallClassifier bag(flat);
  const Tensor alone = bag.model(ids, sizes).value();
  for (int64_t t = 0; t < 6; ++t) {
    const Tensor other = changed_at(ids, t);
    EXPECT_GT(distance(logits.slice(0, 1), built.model(other, sizes).value().slice(0, 1)), 1e-6);
    EXPECT_EQ(test::same_bits(alone, bag.model(other, sizes).value()), t > 0) << t;
  }
}

// ModernBERT's way: what is behind the end of a row does not count.
TEST(SequenceClassifierTest, ReadsTheMeanOfAllTokens) {
  ModelOptions options = bert_options();
  options.class_pooling = TextPooling::kMean;
  const SmallClassifier built(options);
  const std::vector<int32_t> lengths = {6, 3};
  const Tensor ids = sentences(lengths, 6, 1), sizes = test::lengths_tensor(lengths);
  const Tensor logits = built.model(ids, sizes).value();
  const auto value = [&](const char* name) { return built.store.at(name).var.value(); };
  const Tensor hidden = built.model.trunk(ids, sizes).value();
  for (int64_t row = 0; row < 2; ++row) {
    const auto length = lengths[static_cast<size_t>(row)];
    const Tensor own = hidden.slice(row, row + 1).reshape({6, 16}).slice(0, length);
    const Tensor ones = Tensor::full({1, length}, 1.0 / length, DType::kFloat64);
    const Var pooled =
        tanh(matmul(matmul(Var(ones), Var(own)), value("pooler.weight"), {.trans_b = true}) +
             value("pooler.bias"));
    const Var expected =
        matmul(pooled, value("classifier.weight"), {.trans_b = true}) + value("classifier.bias");
    EXPECT_LT(distance(logits.slice(row, row + 1), expected.value()), 1e-13) << row;
  }
  EXPECT_LT(distance(logits, built.model(test::widened(ids, 9), sizes).value()), 1e-13);
}

TEST(SequenceClassifierTest, DropoutIsAtEveryPlace) {
  const SmallClassifier built(with_dropout(bert_options()));
  Tape tape({.seed = 1, .step = 1, .stream = 0});
  built.model(sentences({6, 3}, 6, 1), test::lengths_tensor({6, 3}));
  EXPECT_EQ(tape.next_random().stream, 1 + 2 * (2 + 2) + 1) << "a model's places and the pooler's";
}

}  // namespace
}  // namespace tapestry
