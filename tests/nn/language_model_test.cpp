// Properties of language models and classifiers that hold for any parameters.
#include "nn/language_model.h"

#include <gmock/gmock.h>

#include <map>

#include "tests/nn/models.h"

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

ModelOptions interleaved_options() {
  ModelOptions options = llama_options();
  options.rope_layout = RopeLayout::kInterleaved;
  return options;
}

struct Variant {
  const char* name;
  ModelOptions options;
  bool causal;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

std::string name_of_case(const ::testing::TestParamInfo<Variant>& info) { return info.param.name; }

class LanguageModels : public ::testing::TestWithParam<Variant> {
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

INSTANTIATE_TEST_SUITE_P(Variants, LanguageModels,
                         ::testing::Values(Variant{"gpt2", gpt2_options(), true},
                                           Variant{"llama", llama_options(), true},
                                           Variant{"bert", bert_options(), false},
                                           Variant{"masked_llama", llama_options(), false}),
                         name_of_case);

Tensor changed_at(const Tensor& ids, int64_t index) {
  const Tensor other = ids.clone();
  int32_t& token = other.data<int32_t>()[index];
  token = token == 4 ? 5 : 4;
  return other;
}

// ---- Parameters

using Shapes = std::map<std::string, std::string>;

Shapes shapes_of(const ParamStore& store) {
  Shapes shapes;
  for (const Parameter& p : store.parameters()) shapes[p.name] = p.var.shape().str();
  return shapes;
}

// The layers of a trunk with D = 16: `qkv` and `up` rows.
Shapes layer_shapes(const ModelOptions& o, const std::string& qkv, const std::string& up) {
  Shapes shapes;
  for (int64_t i = 0; i < o.num_hidden_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + '.';
    const std::pair<const char*, std::pair<std::string, std::string>> matrices[] = {
        {"self_attention.qkv", {qkv, "16"}},
        {"self_attention.out", {"16", "16"}},
        {"feed_forward.up", {up, "16"}},
        {"feed_forward.down", {"16", "24"}}};
    for (const auto& [name, sizes] : matrices) {
      shapes[layer + name + ".weight"] = '(' + sizes.first + ", " + sizes.second + ')';
      if (o.bias) shapes[layer + name + ".bias"] = '(' + sizes.first + ')';
    }
    for (const std::string norm : {"self_attention_norm", "feed_forward_norm"}) {
      shapes[layer + norm + ".weight"] = "(16)";
      if (o.bias) shapes[layer + norm + ".bias"] = "(16)";
    }
  }
  return shapes;
}

// These names are the keys of checkpoints.
TEST(LanguageModelParameters, Gpt2) {
  Shapes expected = layer_shapes(gpt2_options(), "48", "24");
  expected["embedding.weight"] = "(19, 16)";
  expected["positions.weight"] = "(48, 16)";
  expected["norm.weight"] = expected["norm.bias"] = "(16)";
  EXPECT_EQ(shapes_of(SmallLanguageModel(gpt2_options(), /*causal=*/true).store), expected);
}

TEST(LanguageModelParameters, Llama) {
  Shapes expected = layer_shapes(llama_options(), "32", "48");
  expected["embedding.weight"] = expected["output.weight"] = "(19, 16)";
  expected["norm.weight"] = "(16)";
  EXPECT_EQ(shapes_of(SmallLanguageModel(llama_options(), /*causal=*/true).store), expected);
}

TEST(LanguageModelParameters, Bert) {
  Shapes expected = layer_shapes(bert_options(), "48", "24");
  expected["embedding.weight"] = "(19, 16)";
  expected["positions.weight"] = "(48, 16)";
  expected["segments.weight"] = "(2, 16)";
  for (const std::string norm : {"embedding_norm", "head.norm"}) {
    expected[norm + ".weight"] = expected[norm + ".bias"] = "(16)";
  }
  expected["head.dense.weight"] = "(16, 16)";
  expected["head.dense.bias"] = "(16)";
  expected["head.bias"] = "(19)";
  EXPECT_EQ(shapes_of(SmallLanguageModel(bert_options(), /*causal=*/false).store), expected);

  for (const std::string name : {"head.dense.weight", "head.dense.bias", "head.norm.weight",
                                 "head.norm.bias", "head.bias"}) {
    expected.erase(name);
  }
  for (const std::string name : {"pooler", "classifier"}) {
    expected[name + ".weight"] = name == "pooler" ? "(16, 16)" : "(3, 16)";
    expected[name + ".bias"] = name == "pooler" ? "(16)" : "(3)";
  }
  ParamStore store;
  const SequenceClassifier classifier(bert_options(), {.size = kVocabulary}, 3, store.root());
  EXPECT_EQ(shapes_of(store), expected);
}

// A masked model keeps only the classifier's own bias.
TEST(LanguageModelParameters, WithoutBiases) {
  const auto biases = [](ModelOptions options, bool causal) {
    options.bias = false;
    std::vector<std::string> names;
    const SmallLanguageModel built(options, causal);
    for (const Parameter& p : built.store.parameters()) {
      if (p.name.ends_with("bias")) names.push_back(p.name);
    }
    return names;
  };
  EXPECT_EQ(biases(gpt2_options(), true), std::vector<std::string>());
  EXPECT_EQ(biases(bert_options(), false), std::vector<std::string>{"head.bias"});
  ModelOptions options = test::post_norm_options();
  options.bias = false;
  const test::SmallModel encoder_decoder(options);
  for (const Parameter& p : encoder_decoder.store.parameters()) {
    EXPECT_FALSE(p.name.ends_with("bias")) << p.name;
  }
}

double deviation_of(const Tensor& x) {
  double squares = 0;
  for (const double v : x.to_vector<double>()) squares += v * v;
  return std::sqrt(squares / static_cast<double>(x.numel()));
}

bool ends_a_branch(const std::string& name) {
  return name.ends_with("attention.out.weight") || name.ends_with("feed_forward.down.weight");
}

TEST(LanguageModelParameters, InitializerRange) {
  for (ModelOptions options : {gpt2_options(), llama_options(), bert_options()}) {
    options.hidden_size = 64;
    options.intermediate_size = 128;
    options.num_hidden_layers = 3;
    options.initializer_range = 0.03;
    const bool pre = options.norm_position == NormPosition::kPre;
    ParamStore store(7, DType::kFloat64);
    const LanguageModel model(options, {.size = 300}, /*causal=*/pre, store.root());
    for (const Parameter& p : store.parameters()) {
      if (p.var.shape().rank() == 1) {
        const double start = p.name.ends_with("bias") ? 0 : 1;
        for (const double v : p.var.value().to_vector<double>()) ASSERT_EQ(v, start) << p.name;
        continue;
      }
      // Three layers add two branches each to the residual stream of a pre-norm model.
      const double wanted = pre && ends_a_branch(p.name) ? 0.03 / std::sqrt(6.0) : 0.03;
      const auto n = static_cast<double>(p.var.value().numel());
      EXPECT_NEAR(deviation_of(p.var.value()) / wanted, 1, 4 / std::sqrt(2 * n)) << p.name;
    }
  }
}

// A decoder layer of an encoder-decoder has three branches.
TEST(LanguageModelParameters, InitializerRangeOfAnEncoderDecoder) {
  ModelOptions options = test::pre_norm_options();
  options.hidden_size = 64;
  options.intermediate_size = 128;
  options.encoder_layers = 1;
  options.decoder_layers = 3;
  options.initializer_range = 0.03;
  ParamStore store(7, DType::kFloat64);
  const EncoderDecoder model(options, {.source_size = 300, .target_size = 300}, store.root());
  for (const Parameter& p : store.parameters()) {
    if (p.var.shape().rank() == 1) continue;
    const double branches = !ends_a_branch(p.name) ? 1 : p.name.starts_with("encoder") ? 2 : 9;
    const auto n = static_cast<double>(p.var.value().numel());
    EXPECT_NEAR(deviation_of(p.var.value()) / (0.03 / std::sqrt(branches)), 1, 4 / std::sqrt(2 * n))
        << p.name;
  }
}

TEST(LanguageModelParameters, RotaryPositionsNeedHeadsOfEvenSize) {
  ModelOptions options = llama_options();
  options.hidden_size = 12;
  ParamStore store;
  EXPECT_EQ(
      test::error_of([&] { LanguageModel(options, {.size = 9}, true, store.root()); }),
      "[model] hidden_size must give heads of even size for rotary positions, got 12 and 4 heads.");
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

// ---- Cached steps

class CachedSteps : public ::testing::TestWithParam<std::tuple<Variant, DType>> {
 protected:
  const ModelOptions options_ = std::get<Variant>(GetParam()).options;
  const DType dtype_ = std::get<DType>(GetParam());
  const double tolerance_ = dtype_ == DType::kFloat64 ? 1e-12 : 1e-5;
};

INSTANTIATE_TEST_SUITE_P(
    Variants, CachedSteps,
    ::testing::Combine(::testing::Values(Variant{"gpt2", gpt2_options(), true},
                                         Variant{"llama", llama_options(), true},
                                         Variant{"interleaved", interleaved_options(), true}),
                       ::testing::Values(DType::kFloat64, DType::kFloat32)),
    [](const auto& info) {
      return std::string(std::get<Variant>(info.param).name) + '_' +
             std::string(name_of(std::get<DType>(info.param)));
    });

// 40 tokens: the cache grows past its first 64 rows.
TEST_P(CachedSteps, EqualTheUncachedModel) {
  const SmallLanguageModel built(options_, /*causal=*/true, dtype_);
  const int64_t length = 40;
  const Tensor ids = test::uniform_ids({3, length}, 8, 2, kVocabulary);
  const Tensor wanted = built.model.logits(built.model.hidden(ids)).value();
  for (const int64_t first : {1, 2, 7, 16, 17, 39, 40}) {
    test::poison_free_memory();
    LanguageModel::State state = test::started(built.model, ids, first - 1);
    for (int64_t t = first - 1; t < length; ++t) {
      const Tensor logits = test::step_of(built.model, ids, t, state);
      ASSERT_LT(distance(logits, columns(wanted, t, t + 1).reshape({3, kVocabulary})), tolerance_)
          << "token " << t << " after a prompt of " << first;
    }
  }
}

// All tokens of a prompt see each other.
TEST(LanguageModelSteps, ReadThePromptAsAPrefix) {
  ModelOptions options = test::gpt2_options();
  options.prefix_lm = true;
  const test::SmallLanguageModel built(options, /*causal=*/true);
  const Tensor ids = test::ints({4, 5, 6, 7, 8, 9, 9, 8, 7, 6, 5, 4}, {2, 6});
  const auto logits_of = [&](const AttentionContext& context) {
    return built.model.logits(built.model.hidden(ids, {}, {}, context)).value();
  };
  const Tensor expected = logits_of({.prefix_lengths = test::ints({4, 4}, {2})});
  EXPECT_GT(test::distance(test::columns(expected, 5, 6), test::columns(logits_of({}), 5, 6)),
            1e-3);
  LanguageModelSteps steps(built.model);
  const std::vector<int32_t> one = {4, 5, 6, 7}, other = {9, 8, 7, 6};
  steps.add({{0, one}, {1, other}});
  for (int64_t t = 3; t < 6; ++t) {
    const Tensor logits = steps.step(test::columns(ids, t, t + 1).to_vector<int32_t>());
    const Tensor wanted = test::columns(expected, t, t + 1);
    EXPECT_LT(test::distance(logits.reshape(wanted.shape()), wanted), 1e-10) << t;
  }
}

// The model without caches, with its histories cut as LanguageModelSteps does it.
class Uncached {
 public:
  Uncached(const LanguageModel& model, int64_t rows) : model_(model), histories_(rows) {}

  Tensor step(const std::vector<int32_t>& tokens) {
    const size_t count = tokens.size() / histories_.size();
    std::vector<int32_t> ids;
    for (size_t row = 0; row < histories_.size(); ++row) {
      auto& history = histories_[row];
      history.insert(history.end(), &tokens[row * count], &tokens[row * count] + count);
      const auto positions = static_cast<size_t>(model_.options.longest_sequence());
      if (history.size() > positions) {
        history = {history.end() - std::max<int64_t>(1, positions / 2), history.end()};
      }
      ids.insert(ids.end(), history.begin(), history.end());
    }
    const auto rows = static_cast<int64_t>(histories_.size());
    const auto length = static_cast<int64_t>(histories_[0].size());
    const Tensor all = model_.logits(model_.hidden(Tensor::from(ids, {rows, length}))).value();
    return columns(all, length - 1, length).reshape({rows, kVocabulary});
  }
  void select(const std::vector<int32_t>& rows) {
    std::vector<std::vector<int32_t>> kept;
    for (const int32_t row : rows) kept.push_back(histories_.at(row));
    histories_ = std::move(kept);
  }

 private:
  const LanguageModel& model_;
  std::vector<std::vector<int32_t>> histories_;
};

// Rows are chosen, repeated and dropped on the way; the last prompt is longer than the model.
TEST_P(CachedSteps, OfASearchEqualTheUncachedModel) {
  for (const int64_t positions : {1, 2, 7, 48}) {
    ModelOptions options = options_;
    options.max_position_embeddings = positions;
    const SmallLanguageModel built(options, /*causal=*/true, dtype_);
    for (const int64_t prompt : {1, 5, 60}) {
      LanguageModelSteps steps(built.model);
      Uncached uncached(built.model, 2);
      test::poison_free_memory();
      size_t rows = 2;
      for (int64_t step = 0; step < 20; ++step) {
        const int64_t count = step == 0 ? prompt : 1;
        const auto fed = test::uniform_ids({static_cast<int64_t>(rows), count},
                                           static_cast<uint32_t>(100 + step), 2, kVocabulary)
                             .to_vector<int32_t>();
        const Tensor wanted = uncached.step(fed);
        std::vector<int32_t> last;
        for (size_t row = 0; row < rows; ++row) {
          const std::span tokens(&fed[row * static_cast<size_t>(count)],
                                 static_cast<size_t>(count));
          if (step == 0) steps.add({{static_cast<int64_t>(row), tokens}});
          last.push_back(tokens.back());
        }
        ASSERT_LT(distance(steps.step(last), wanted), tolerance_)
            << positions << " positions, prompt of " << prompt << ", step " << step;
        if (step % 3 != 1) continue;
        const std::vector<int32_t> kept =
            rows == 2 ? std::vector<int32_t>{1, 0, 1} : std::vector<int32_t>{2, 0};
        steps.select(kept);
        uncached.select(kept);
        rows = kept.size();
      }
    }
  }
}

TEST_P(CachedSteps, RefuseAnotherNumberOfTokens) {
  const SmallLanguageModel built(options_, /*causal=*/true, dtype_);
  LanguageModelSteps steps(built.model);
  const std::vector<int32_t> prompt = {4, 5};
  steps.add({{0, prompt}, {1, prompt}});
  EXPECT_EQ(test::error_of([&] {
              steps.step({4, 5, 6});
            }),
            "[decoding] expected a token for each of 2 rows, got 3.");
}

// ---- Rotary positions

constexpr RopeLayout kLayouts[] = {RopeLayout::kHalf, RopeLayout::kInterleaved};

TEST(RotaryPositions, TableIsTheDefinition) {
  const Tensor table = rope_table(5, 6, /*theta=*/7, DType::kFloat64);
  ASSERT_EQ(table.shape(), (Shape{5, 6}));
  for (int64_t p = 0; p < 5; ++p) {
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(p) / std::pow(7.0, 2.0 * i / 6);
      EXPECT_NEAR(table.data<double>()[p * 6 + i], std::cos(angle), 1e-15);
      EXPECT_NEAR(table.data<double>()[p * 6 + 3 + i], std::sin(angle), 1e-15);
    }
  }
}

// |rot(x)| = |x|, at any position and in any head.
TEST(RotaryPositions, KeepTheNorm) {
  const int64_t heads = 3, size = 10, length = 490;
  const Tensor x = test::uniform({1, length, heads * size}, 3);
  for (const RopeLayout layout : kLayouts) {
    const Tensor y = rope(x, rope_table(length, size, 10000, DType::kFloat64),
                          {.heads = heads, .layout = layout})
                         .value();
    for (int64_t head = 0; head < length * heads; ++head) {
      double before = 0, after = 0;
      for (int64_t i = head * size; i < (head + 1) * size; ++i) {
        before += x.data<double>()[i] * x.data<double>()[i];
        after += y.data<double>()[i] * y.data<double>()[i];
      }
      ASSERT_NEAR(after, before, 1e-13) << "head " << head;
    }
    EXPECT_GT(distance(x, y), 0.1);
  }
}

// q . k of a query at m and a key at n.
TEST(RotaryPositions, ScoresDependOnTheDistanceAlone) {
  const int64_t length = 7, size = 10;
  const Tensor table = rope_table(length, size, 10000, DType::kFloat64);
  const Tensor q = test::uniform({1, size}, 1), k = test::uniform({1, size}, 2);
  for (const RopeLayout layout : kLayouts) {
    // The same vector at every position.
    const auto turned = [&](const Tensor& x) {
      Tensor rows = Tensor::empty({1, length, size}, DType::kFloat64);
      for (int64_t p = 0; p < length; ++p) {
        rows.reshape({length, size}).slice(p, p + 1).copy_from(x);
      }
      return rope(rows, table, {.heads = 1, .layout = layout});
    };
    const Tensor scores = matmul(turned(q), turned(k), {.trans_b = true}).value();
    const auto score = [&](int64_t m, int64_t n) { return scores.data<double>()[m * length + n]; };
    EXPECT_NEAR(score(0, 0), matmul(q, k, {.trans_b = true}).value().item(), 1e-14);
    for (int64_t m = 0; m < length; ++m) {
      for (int64_t n = 0; n < length; ++n) {
        EXPECT_NEAR(score(m, n), m >= n ? score(m - n, 0) : score(0, n - m), 1e-14);
      }
    }
    EXPECT_GT(std::abs(score(3, 0) - score(0, 3)), 1e-3) << "and on its direction";
    EXPECT_GT(std::abs(score(3, 0) - score(2, 0)), 1e-3);
  }
}

struct SmallAttention {
  explicit SmallAttention(RopeLayout layout, int64_t positions = 32)
      : layer({.hidden_size = 24,
               .heads = 4,
               .kv_heads = 2,
               .rope_positions = positions,
               .rope_layout = layout},
              store.root()) {
    test::disturb(store);
  }
  ParamStore store{5, DType::kFloat64};
  SelfAttention layer;
};

// The layer's own parts, with all positions shifted.
Var shifted(const SelfAttention& layer, const Var& x, int64_t offset, bool causal) {
  const Var packed =
      rope(layer.qkv(x), layer.rope_angles.rows(offset + x.shape()[1]).value(),
           {.heads = 4 + 2, .position_offset = offset, .layout = layer.options.rope_layout});
  return layer.out(attention(packed, {.heads = 4, .kv_heads = 2, .causal = causal}));
}

TEST(RotaryPositions, ShiftingAllPositionsChangesNothing) {
  const Tensor x = test::uniform({2, 5, 24}, 1);
  for (const RopeLayout layout : kLayouts) {
    const SmallAttention built(layout), still(layout, /*positions=*/0);
    for (const bool causal : {false, true}) {
      const Tensor y = built.layer(x, {}, causal).value();
      for (const int64_t offset : {0, 1, 19, 27, 5000}) {
        EXPECT_LT(distance(y, shifted(built.layer, x, offset, causal).value()), 1e-13) << offset;
      }
      EXPECT_GT(distance(y, still.layer(x, {}, causal).value()), 1e-3) << "positions are felt";
    }
  }
}

TEST(RotaryPositions, LayoutsAreAPermutationOfTheColumns) {
  const SmallAttention half(RopeLayout::kHalf), interleaved(RopeLayout::kInterleaved);
  // Elements i and i + K/2 of a head of queries or keys become 2i and 2i + 1; values stay.
  const int64_t size = 6, turned = (4 + 2) * size;
  for (const std::string name : {"qkv.weight", "qkv.bias"}) {
    const Tensor& from = half.store.at(name).var.value();
    const Tensor& to = interleaved.store.at(name).var.value();
    for (int64_t row = 0; row < turned; ++row) {
      const int64_t i = row % size, first = row - i;
      const int64_t other = first + (i < size / 2 ? 2 * i : 2 * (i - size / 2) + 1);
      to.slice(other, other + 1).copy_from(from.slice(row, row + 1));
    }
  }
  const Tensor x = test::uniform({2, 5, 24}, 1);
  for (const bool causal : {false, true}) {
    EXPECT_LT(distance(half.layer(x, {}, causal).value(), interleaved.layer(x, {}, causal).value()),
              1e-13);
  }
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

TEST(SequenceClassifierTest, DropoutIsAtEveryPlace) {
  const SmallClassifier built(with_dropout(bert_options()));
  Tape tape({.seed = 1, .step = 1, .stream = 0});
  built.model(sentences({6, 3}, 6, 1), test::lengths_tensor({6, 3}));
  EXPECT_EQ(tape.next_random().stream, 1 + 2 * (2 + 2) + 1) << "a model's places and the pooler's";
}

}  // namespace
}  // namespace tapestry
