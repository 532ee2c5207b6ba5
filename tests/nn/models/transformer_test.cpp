// Properties of the encoder-decoder that hold for any parameters.
#include "nn/models/transformer.h"

#include <map>

#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::batch_of;
using test::distance;
using test::Pass;
using test::post_norm_options;
using test::pre_norm_options;
using test::sentences;
using test::SmallModel;
using test::with_dropout;

std::map<std::string, std::string> shapes_of(const ParamStore& store) {
  std::map<std::string, std::string> shapes;
  for (const Parameter& p : store.parameters()) shapes[p.name] = p.var.shape().str();
  return shapes;
}

// ---- Parameters

TEST(Parameters, NamesAndShapesOfATiedPostNormModel) {
  ModelOptions options = post_norm_options();
  options.encoder_layers = 1;
  options.decoder_layers = 1;
  ParamStore store;
  const EncoderDecoder model(options, {.source_size = 19, .target_size = 19}, store.root());
  std::map<std::string, std::string> expected = {{"embedding.weight", "(19, 16)"}};
  for (const std::string side : {"encoder.layers.0.", "decoder.layers.0."}) {
    expected[side + "self_attention.qkv.weight"] = "(48, 16)";
    expected[side + "self_attention.qkv.bias"] = "(48)";
    expected[side + "self_attention.out.weight"] = "(16, 16)";
    expected[side + "self_attention.out.bias"] = "(16)";
    expected[side + "feed_forward.up.weight"] = "(24, 16)";
    expected[side + "feed_forward.up.bias"] = "(24)";
    expected[side + "feed_forward.down.weight"] = "(16, 24)";
    expected[side + "feed_forward.down.bias"] = "(16)";
    for (const std::string norm : {"self_attention_norm", "feed_forward_norm"}) {
      expected[side + norm + ".weight"] = "(16)";
      expected[side + norm + ".bias"] = "(16)";
    }
  }
  const std::string decoder = "decoder.layers.0.";
  expected[decoder + "cross_attention.q.weight"] = "(16, 16)";
  expected[decoder + "cross_attention.q.bias"] = "(16)";
  expected[decoder + "cross_attention.kv.weight"] = "(32, 16)";
  expected[decoder + "cross_attention.kv.bias"] = "(32)";
  expected[decoder + "cross_attention.out.weight"] = "(16, 16)";
  expected[decoder + "cross_attention.out.bias"] = "(16)";
  expected[decoder + "cross_attention_norm.weight"] = "(16)";
  expected[decoder + "cross_attention_norm.bias"] = "(16)";
  EXPECT_EQ(shapes_of(store), expected);
}

TEST(Parameters, ModernModel) {
  ParamStore store;
  const EncoderDecoder model(pre_norm_options(),
                             {.source_size = 19, .target_size = 23, .shared = false}, store.root());
  const auto shapes = shapes_of(store);
  EXPECT_EQ(shapes.at("encoder.embedding.weight"), "(19, 16)");
  EXPECT_EQ(shapes.at("decoder.embedding.weight"), "(23, 16)");
  EXPECT_EQ(shapes.at("output.weight"), "(23, 16)");
  EXPECT_EQ(shapes.at("encoder.positions.weight"), "(64, 16)");
  EXPECT_EQ(shapes.at("decoder.positions.weight"), "(64, 16)");
  EXPECT_EQ(shapes.at("encoder.norm.weight"), "(16)");
  EXPECT_EQ(shapes.at("decoder.norm.weight"), "(16)");
  // Two of four key/value heads of size 4: 16 + 2 * 8 and 2 * 8 rows.
  EXPECT_EQ(shapes.at("encoder.layers.1.self_attention.qkv.weight"), "(32, 16)");
  EXPECT_EQ(shapes.at("decoder.layers.1.cross_attention.kv.weight"), "(16, 16)");
  EXPECT_FALSE(shapes.contains("encoder.norm.bias")) << "RMS has no bias";
}

TEST(Parameters, TyingDependsOnTheVocabularies) {
  const auto names = [](bool tie, bool shared) {
    ModelOptions options = post_norm_options();
    options.tie_word_embeddings = tie;
    ParamStore store;
    const EncoderDecoder model(options, {.source_size = 19, .target_size = 19, .shared = shared},
                               store.root());
    std::string found;
    for (const char* name : {"embedding.weight", "encoder.embedding.weight",
                             "decoder.embedding.weight", "output.weight"}) {
      if (store.contains(name)) found += std::string(name) + ' ';
    }
    return found;
  };
  EXPECT_EQ(names(true, true), "embedding.weight ");
  EXPECT_EQ(names(true, false), "encoder.embedding.weight decoder.embedding.weight ");
  EXPECT_EQ(names(false, true), "encoder.embedding.weight decoder.embedding.weight output.weight ");
  EXPECT_EQ(names(false, false),
            "encoder.embedding.weight decoder.embedding.weight output.weight ");
}

TEST(Parameters, ElementsAreThoseOfAllTensors) {
  ParamStore store;
  const EncoderDecoder model(pre_norm_options(), {.source_size = 19, .target_size = 19},
                             store.root());
  int64_t elements = 0;
  for (const Parameter& p : store.parameters()) {
    elements += p.var.value().numel();
  }
  EXPECT_EQ(store.elements(), elements);
}

TEST(Parameters, XavierBoundAndEmbeddingDeviation) {
  ModelOptions options = post_norm_options();
  options.hidden_size = 64;
  options.intermediate_size = 256;
  ParamStore store(3, DType::kFloat64);
  const EncoderDecoder model(options, {.source_size = 500, .target_size = 500}, store.root());
  const auto stats = [&](const std::string& name) {
    double sum = 0, squares = 0, largest = 0;
    const auto values = store.at(name).var.value().to_vector<double>();
    for (const double v : values) {
      sum += v, squares += v * v, largest = std::max(largest, std::abs(v));
    }
    const auto n = static_cast<double>(values.size());
    return std::tuple(sum / n, std::sqrt(squares / n), largest, n);
  };
  {  // U(-bound, bound): deviation bound / sqrt(3)
    const auto [mean, deviation, largest, n] = stats("encoder.layers.0.feed_forward.up.weight");
    const double bound = std::sqrt(6.0 / (64 + 256));
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, 0.99 * bound);
    EXPECT_NEAR(mean, 0, 4 * bound / std::sqrt(3 * n));
    EXPECT_NEAR(deviation, bound / std::sqrt(3.0), 0.02 * bound);
  }
  {  // N(0, 1 / D): scaled by sqrt(D) in the embedding, variance 1
    const auto [mean, deviation, largest, n] = stats("embedding.weight");
    EXPECT_NEAR(mean, 0, 4 * 0.125 / std::sqrt(n));
    EXPECT_NEAR(deviation, 0.125, 0.002);
    EXPECT_GT(largest, 3 * 0.125);
  }
  for (const Parameter& p : store.parameters()) {
    if (p.var.shape().rank() != 1) continue;
    const double start = p.name.ends_with(".weight") ? 1 : 0;
    for (const double v : p.var.value().to_vector<double>()) EXPECT_EQ(v, start) << p.name;
  }
}

TEST(Parameters, StartDependsOnSeedAndPathAlone) {
  const auto build = [](uint64_t seed, DType dtype, int64_t layers) {
    ModelOptions options = post_norm_options();
    options.encoder_layers = layers;
    auto store = std::make_unique<ParamStore>(seed, dtype);
    const EncoderDecoder model(options, {.source_size = 19, .target_size = 19}, store->root());
    return store;
  };
  const auto base = build(1, DType::kFloat64, 2), deeper = build(1, DType::kFloat64, 3);
  const auto single = build(1, DType::kFloat32, 2), other = build(2, DType::kFloat64, 2);
  for (const Parameter& p : base->parameters()) {
    const Tensor& value = p.var.value();
    EXPECT_TRUE(test::same_bits(value, deeper->at(p.name).var.value())) << p.name;
    EXPECT_TRUE(test::same_bits(value.to(DType::kFloat32), single->at(p.name).var.value()))
        << p.name;
    if (value.shape().rank() == 2) {
      EXPECT_FALSE(test::same_bits(value, other->at(p.name).var.value())) << p.name;
    }
  }
  EXPECT_FALSE(test::same_bits(base->at("encoder.layers.0.feed_forward.up.weight").var.value(),
                               base->at("encoder.layers.1.feed_forward.up.weight").var.value()));
}

TEST(Parameters, NamesAreUniqueAndKnown) {
  ParamStore store;
  const ParamScope scope = store.root() / "a" / 0;
  scope.create("weight", {2}, Init::zeros());
  EXPECT_EQ(test::error_of([&] { scope.create("weight", {2}, Init::zeros()); }),
            "[parameters] 'a.0.weight' is created twice.");
  EXPECT_EQ(test::error_of([&] { store.at("a.1.weight"); }),
            "[parameters] there is no parameter 'a.1.weight'.");
}

TEST(Parameters, HeadsMustFit) {
  ModelOptions options = post_norm_options();
  options.num_attention_heads = 3;
  ParamStore store;
  const auto build = [&] {
    ParamStore store;
    const EncoderDecoder model(options, {.source_size = 19, .target_size = 19}, store.root());
  };
  EXPECT_EQ(test::error_of(build),
            "[model] hidden_size must be a multiple of num_attention_heads without head_size, got "
            "16 and 3.");
  options.num_attention_heads = 4;
  options.num_key_value_heads = 3;
  EXPECT_EQ(test::error_of(build),
            "[model] num_key_value_heads must divide num_attention_heads, got 3 and 4.");
}

// ---- Masks

class Variants : public ::testing::TestWithParam<ModelOptions> {
 protected:
  const SmallModel built_{GetParam()};
  const EncoderDecoder& model_ = built_.model;
};

Tensor first_columns(const Tensor& x, int64_t count) { return test::columns(x, 0, count); }

TEST_P(Variants, PaddingTheSourceChangesNothingReal) {
  const std::vector<int32_t> lengths = {5, 2};
  const Tensor tight = sentences(lengths, 5, 3), wide = Tensor::zeros({2, 9}, DType::kInt32);
  for (int64_t b = 0; b < 2; ++b) {
    std::copy_n(tight.data<int32_t>() + 5 * b, lengths[b], wide.data<int32_t>() + 9 * b);
  }
  const Tensor source_lengths = test::lengths_tensor(lengths);
  const Var memory = model_.encode(tight, source_lengths);
  const Var padded = model_.encode(wide, source_lengths);
  for (int64_t b = 0; b < 2; ++b) {
    EXPECT_LT(distance(first_columns(memory.value().slice(b, b + 1), lengths[b]),
                       first_columns(padded.value().slice(b, b + 1), lengths[b])),
              1e-12);
  }
  const Tensor target = test::uniform_ids({2, 4}, 4, 2, test::kVocabulary);
  EXPECT_LT(distance(model_.decode(target, memory, source_lengths).value(),
                     model_.decode(target, padded, source_lengths).value()),
            1e-12);
}

TEST_P(Variants, PaddingABatchChangesNeitherLossNorGradients) {
  const auto run = [&](const EncoderDecoder::Batch& batch) {
    return test::train_pass(built_.store, [&] {
      const CrossEntropy loss = model_.loss(batch, {.label_smoothing = 0.1});
      EXPECT_EQ(loss.tokens, 8);
      return loss.loss;
    });
  };
  EncoderDecoder::Batch batch = batch_of({5, 3}, {4, 2}, 5, 5);
  const Pass tight = run(batch);
  batch.source = test::widened(batch.source, 8);
  batch.target_in = test::widened(batch.target_in, 9);
  batch.target_out = test::widened(batch.target_out, 9);
  EXPECT_LT(distance(tight, run(batch)), 1e-12);
}

TEST_P(Variants, LaterTargetTokensChangeNothingEarlier) {
  const Tensor lengths = test::lengths_tensor({5});
  const Var memory = model_.encode(sentences({5}, 5, 3), lengths);
  const Tensor target = test::uniform_ids({1, 6}, 4, 2, test::kVocabulary);
  const Tensor before = model_.decode(target, memory, lengths).value();
  for (int64_t changed = 1; changed < 6; ++changed) {
    const Tensor other = target.clone();
    int32_t& token = other.data<int32_t>()[changed];
    token = token == 4 ? 5 : 4;
    const Tensor after = model_.decode(other, memory, lengths).value();
    EXPECT_TRUE(test::same_bits(first_columns(before, changed), first_columns(after, changed)));
    EXPECT_GT(distance(before, after), 1e-3) << "the change must be felt at " << changed;
  }
}

TEST_P(Variants, EverySourceTokenIsFelt) {
  const Tensor lengths = test::lengths_tensor({5}), source = sentences({5}, 5, 3);
  const Tensor target = test::uniform_ids({1, 2}, 4, 2, test::kVocabulary);
  const auto states = [&](const Tensor& ids) {
    return model_.decode(target, model_.encode(ids, lengths), lengths).value();
  };
  const Tensor before = states(source);
  for (int64_t t = 0; t < 5; ++t) {
    const Tensor other = source.clone();
    int32_t& token = other.data<int32_t>()[t];
    token = token == 4 ? 5 : 4;
    EXPECT_GT(distance(before, states(other)), 1e-4) << "token " << t;
  }
}

TEST_P(Variants, EncoderWithoutPositionsFollowsAPermutation) {
  ModelOptions options = GetParam();
  options.position_embedding = PositionEmbedding::kNone;
  const SmallModel built(options);
  const Tensor lengths = test::lengths_tensor({6}), source = sentences({6}, 6, 3);
  const std::vector<int64_t> order = {3, 0, 5, 1, 4, 2};
  const Tensor permuted = source.clone();
  for (int64_t t = 0; t < 6; ++t) {
    permuted.data<int32_t>()[t] = source.data<int32_t>()[order[t]];
  }
  const Tensor x = built.model.encode(source, lengths).value().reshape({6, 16});
  const Tensor y = built.model.encode(permuted, lengths).value().reshape({6, 16});
  for (int64_t t = 0; t < 6; ++t) {
    EXPECT_LT(distance(y.slice(t, t + 1), x.slice(order[t], order[t] + 1)), 1e-12);
  }
  // With positions it does not.
  const Tensor p = model_.encode(source, lengths).value().reshape({6, 16});
  const Tensor q = model_.encode(permuted, lengths).value().reshape({6, 16});
  EXPECT_GT(distance(q.slice(0, 1), p.slice(3, 4)), 1e-3);
}

TEST_P(Variants, LossIsTheCrossEntropyOfTheLogits) {
  const EncoderDecoder::Batch batch = batch_of({5, 3}, {4, 2}, 5, 5);
  const CrossEntropyOptions options{.label_smoothing = 0.1};
  const CrossEntropy loss = model_.loss(batch, options);
  const Var memory = model_.encode(batch.source, batch.source_lengths);
  const Var logits = model_.logits(model_.decode(batch.target_in, memory, batch.source_lengths));
  const CrossEntropy expected =
      cross_entropy(logits, batch.target_out, {.label_smoothing = 0.1, .ignore_index = 0});
  EXPECT_NEAR(loss.loss.value().item(), expected.loss.value().item(), 1e-12);
  EXPECT_NEAR(loss.nll_sum(), expected.nll_sum(), 1e-12);
  EXPECT_EQ(loss.tokens, 8);
}

// ---- Dropout and determinism

Pass pass_of(const SmallModel& built, const EncoderDecoder::Batch& batch, int threads) {
  const test::WithThreads scope(threads);
  return test::train_pass(built.store,
                          [&] { return built.model.loss(batch, {.label_smoothing = 0.1}).loss; },
                          {.seed = 3, .step = 2, .stream = 0});
}

TEST_P(Variants, DropoutIsOnUnderATapeAndRepeatsByKey) {
  const SmallModel built(with_dropout(GetParam()));
  const EncoderDecoder::Batch batch = batch_of({5, 3}, {4, 2}, 5, 5);
  const Tensor quiet = built.model.loss(batch, {}).loss.value();
  EXPECT_TRUE(test::same_bits(quiet, built.model.loss(batch, {}).loss.value()));
  EXPECT_TRUE(test::same_bits(quiet, model_.loss(batch, {}).loss.value()))
      << "without a tape there is no dropout";
  const auto under_tape = [&](PhiloxKey key) {
    Tape tape(key);
    return built.model.loss(batch, {}).loss.value();
  };
  const Tensor drawn = under_tape({.seed = 1, .step = 4, .stream = 0});
  EXPECT_FALSE(test::same_bits(drawn, quiet));
  EXPECT_TRUE(test::same_bits(drawn, under_tape({.seed = 1, .step = 4, .stream = 0})));
  EXPECT_FALSE(test::same_bits(drawn, under_tape({.seed = 1, .step = 5, .stream = 0})));
  EXPECT_FALSE(test::same_bits(drawn, under_tape({.seed = 2, .step = 4, .stream = 0})));
}

// Each place of dropout obeys its own option.
TEST_P(Variants, EachDropoutOptionIsFelt) {
  for (double ModelOptions::*option : {&ModelOptions::dropout, &ModelOptions::attention_dropout,
                                       &ModelOptions::activation_dropout}) {
    ModelOptions options = GetParam();
    options.*option = 0.5;
    const SmallModel built(options);
    const EncoderDecoder::Batch batch = batch_of({5, 3}, {4, 2}, 5, 5);
    const Tensor quiet = built.model.loss(batch, {}).loss.value();
    Tape tape;
    EXPECT_FALSE(test::same_bits(quiet, built.model.loss(batch, {}).loss.value()));
  }
}

TEST_P(Variants, DropoutIsAtEveryPlace) {
  const SmallModel built(with_dropout(GetParam()));
  Tape tape({.seed = 1, .step = 1, .stream = 0});
  built.model.loss(batch_of({5, 3}, {4, 2}, 5, 5), {});
  const ModelOptions& options = built.model.options;
  // Both embeddings; the weights and the output of each attention; inside and behind each
  // feed-forward network.
  const int64_t places =
      2 + options.encoder_layers * (2 + 2) + options.decoder_layers * (2 + 2 + 2);
  EXPECT_EQ(tape.next_random().stream, places);
}

TEST_P(Variants, SameBitsForAnyNumberOfThreads) {
  const EncoderDecoder::Batch batch = batch_of({9, 4, 7}, {6, 8, 2}, 9, 9);
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const SmallModel built(with_dropout(GetParam()), dtype);
    const Pass one = pass_of(built, batch, 1);
    for (const int threads : {1, 2, 3}) {
      EXPECT_TRUE(same_bits(one, pass_of(built, batch, threads))) << threads << " threads";
    }
  }
}

// Large enough for products and attention to be cut into many tiles.
TEST(LargerModel, SameBitsForAnyNumberOfThreads) {
  ModelOptions options = with_dropout(post_norm_options());
  options.hidden_size = 128;
  options.intermediate_size = 256;
  options.encoder_layers = 1;
  options.decoder_layers = 1;
  options.max_position_embeddings = 128;
  const SmallModel built(options, DType::kFloat32);
  const EncoderDecoder::Batch batch = batch_of({70, 65, 33, 1}, {69, 40, 10, 70}, 70, 71);
  const Pass one = pass_of(built, batch, 1);
  EXPECT_TRUE(std::isfinite(one.loss.item()));
  EXPECT_TRUE(same_bits(one, pass_of(built, batch, 2)));
  EXPECT_TRUE(same_bits(one, pass_of(built, batch, 3)));
}

ModelOptions latent_variant() {
  ModelOptions options = post_norm_options();
  options.kv_latent_size = 6;
  options.q_latent_size = 10;
  options.position_embedding = PositionEmbedding::kRope;
  return options;
}

INSTANTIATE_TEST_SUITE_P(Kinds, Variants,
                         ::testing::Values(post_norm_options(), pre_norm_options(),
                                           latent_variant()),
                         [](const auto& info) {
                           if (info.param.kv_latent_size > 0) return std::string("latent");
                           return info.param.norm_position == NormPosition::kPost
                                      ? std::string("post")
                                      : std::string("pre");
                         });

}  // namespace
}  // namespace tapestry
