// Windows, values of another size, masks of the caller, prefixes and positions by distance, in
// layers and models.
#include "nn/models/relative_positions.h"
#include "tests/nn/models/models.h"
#include "tests/nn/pytorch_fixture.h"

namespace tapestry {
namespace {

using test::distance;

struct KindOfAttention {
  const char* name;
  ModelOptions options;
};

void PrintTo(const KindOfAttention& variant, std::ostream* out) { *out << variant.name; }

template <class F>
KindOfAttention variant(const char* name, F change) {
  ModelOptions options = test::llama_options();
  change(options);
  return {name, options};
}

class AttentionKinds : public ::testing::TestWithParam<KindOfAttention> {
 protected:
  const test::SmallLanguageModel built_{GetParam().options, /*causal=*/true};
  const LanguageModel& model_ = built_.model;
  const Tensor ids_ = test::uniform_ids({3, 20}, 4, 2, test::kVocabulary);

  Tensor whole(const AttentionContext& context = {}) const {
    return model_.logits(model_.hidden(ids_, {}, {}, context)).value();
  }
  Tensor at(const Tensor& logits, int64_t t) const {
    return test::columns(logits, t, t + 1).reshape({3, test::kVocabulary});
  }
};

TEST_P(AttentionKinds, StepsEqualTheWholeSequence) {
  const Tensor expected = whole();
  for (const int64_t first : {0, 1, 7}) {
    test::poison_free_memory();
    LanguageModel::State state = test::started(model_, ids_, first);
    for (int64_t t = first; t < 20; ++t) {
      const Tensor logits = test::step_of(model_, ids_, t, state);
      ASSERT_LT(distance(logits, at(expected, t)), 1e-10) << "token " << t;
    }
  }
}

// Rows of one batch that begin at different places, and one that joins later.
TEST_P(AttentionKinds, StepsOfRowsAtDifferentPlacesEqualTheWholeSequences) {
  const Tensor expected = whole();
  LanguageModel::State state;
  test::poison_free_memory();
  model_.add(test::columns(ids_.slice(0, 2), 0, 9), {9, 2}, false, state);
  std::vector<int64_t> places = {9, 2};
  const auto id = [&](size_t row) { return ids_.data<int32_t>()[20 * row + places[row]]; };
  for (int step = 0; step < 11; ++step) {
    if (step == 4) {
      model_.add(test::columns(ids_.slice(2, 3), 0, 5), {5}, false, state);
      places.push_back(5);
    }
    std::vector<int32_t> fed;
    for (size_t row = 0; row < places.size(); ++row) fed.push_back(id(row));
    const Tensor logits = model_.step(test::ints(fed, {std::ssize(fed)}), state);
    for (int64_t row = 0; row < std::ssize(places); ++row) {
      const Tensor wanted = at(expected, places[row]++).slice(row, row + 1);
      ASSERT_LT(distance(logits.slice(row, row + 1), wanted), 1e-10)
          << "step " << step << ", row " << row;
    }
  }
}

TEST_P(AttentionKinds, GenerationFollowsTheLikeliestTokens) {
  LanguageModelSteps steps(model_);
  std::vector<int32_t> tokens = {4, 9, 5}, fed = {5};
  steps.add({{0, tokens}});
  for (int i = 0; i < 12; ++i) {
    const auto logits = steps.step(fed).to_vector<double>();
    const auto likeliest = [](const std::vector<double>& x) {
      return static_cast<int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
    };
    const auto length = static_cast<int64_t>(tokens.size());
    const Tensor all = model_.logits(model_.hidden(test::ints(tokens, {1, length}))).value();
    const Tensor last = test::columns(all, length - 1, length);
    ASSERT_EQ(likeliest(logits), likeliest(last.to_vector<double>())) << "token " << i;
    fed = {likeliest(logits)};
    tokens.push_back(fed[0]);
  }
}

// A token sees the whole prefix, but none behind itself after it.
TEST_P(AttentionKinds, PrefixesAreSeenByAll) {
  const AttentionContext context{.prefix_lengths = test::ints({5, 0, 20}, {3})};
  const Tensor plain = whole(), prefixed = whole(context);
  const Tensor middle = prefixed.slice(1, 2);
  EXPECT_LT(distance(middle, plain.slice(1, 2)), 1e-12);
  EXPECT_GT(distance(prefixed.slice(0, 1), plain.slice(0, 1)), 1e-3);
  // The last token of the first row reaches no earlier one, the last but one of its prefix does.
  for (const int64_t changed : {19, 4}) {
    Tensor ids = ids_.clone();
    ids.data<int32_t>()[changed] = 2 + (ids.data<int32_t>()[changed] - 1) % 17;
    const Tensor other = model_.logits(model_.hidden(ids, {}, {}, context)).value();
    const double moved = distance(at(other, 2), at(prefixed, 2));
    if (changed == 4) {
      EXPECT_GT(moved, 1e-6);
    } else {
      EXPECT_EQ(moved, 0);
    }
  }
}

// The last token of a prefix is fed again.
TEST_P(AttentionKinds, PrefixedStepsEqualTheWholeSequence) {
  const std::vector<int32_t> lengths = {5, 1, 7};
  const Tensor expected = whole({.prefix_lengths = test::ints(lengths, {3})});
  LanguageModel::State state;
  model_.add(test::columns(ids_, 0, 7), lengths, true, state);
  for (int64_t step = 0; step < 13; ++step) {
    std::vector<int32_t> fed;
    for (int64_t row = 0; row < 3; ++row) {
      fed.push_back(ids_.data<int32_t>()[20 * row + lengths[row] - 1 + step]);
    }
    const Tensor logits = model_.step(test::ints(fed, {3}), state);
    for (int64_t row = 0; row < 3; ++row) {
      const Tensor wanted = at(expected, lengths[row] - 1 + step).slice(row, row + 1);
      ASSERT_LT(distance(logits.slice(row, row + 1), wanted), 1e-10)
          << "step " << step << ", row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, AttentionKinds,
    ::testing::Values(
        variant("window", [](ModelOptions& o) { o.attention_window = 5; }),
        variant("normed_heads",
                [](ModelOptions& o) {
                  o.qk_norm = QkNorm::kHead;
                  o.attention_bias = AttentionBias::kInputs;
                  o.position_embedding = PositionEmbedding::kRope;
                }),
        variant("normed_projections", [](ModelOptions& o) { o.qk_norm = QkNorm::kProjection; }),
        variant("wide_values", [](ModelOptions& o) { o.value_head_size = 7; }),
        variant("narrow_values_window",
                [](ModelOptions& o) { o.value_head_size = 1, o.attention_window = 6; }),
        variant("alibi", [](ModelOptions& o) { o.position_embedding = PositionEmbedding::kAlibi; }),
        variant("relative",
                [](ModelOptions& o) { o.position_embedding = PositionEmbedding::kRelative; }),
        variant("relative_window",
                [](ModelOptions& o) {
                  o.position_embedding = PositionEmbedding::kRelative;
                  o.attention_window = 4;
                }),
        variant("latent_window_alibi",
                [](ModelOptions& o) {
                  o.num_key_value_heads = 0;
                  o.kv_latent_size = 6;
                  o.value_head_size = 3;
                  o.attention_window = 7;
                  o.position_embedding = PositionEmbedding::kAlibi;
                }),
        variant("latent_relative",
                [](ModelOptions& o) {
                  o.num_key_value_heads = 0;
                  o.kv_latent_size = 6;
                  o.position_embedding = PositionEmbedding::kRelative;
                })),
    [](const auto& info) { return std::string(info.param.name); });

// x / sqrt(mean(x^2) + eps) * weight, over the numbers of a head, or over those of all heads.
TEST(QueryKeyNorms, DivideByTheRootMeanSquare) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, -5, 6}, {1, 1, 6});
  for (const QkNorm kind : {QkNorm::kHead, QkNorm::kProjection}) {
    ParamStore store(1, DType::kFloat64);
    const MultiHeadAttention::Options options{
        .hidden_size = 6, .heads = 3, .qk_norm = kind, .norm_eps = 1e-3};
    const QueryKeyNorm norms(options, store.root());
    const int64_t size = kind == QkNorm::kHead ? 2 : 6;
    ASSERT_EQ(norms.q->weight.shape(), Shape{size});
    for (int64_t i = 0; i < size; ++i) {
      norms.q->weight.value().data<double>()[i] = 1 + 0.5 * static_cast<double>(i);
    }
    const auto found = norms.queries(Var(x)).value().to_vector<double>();
    for (int64_t i = 0; i < 6; ++i) {
      const int64_t begin = i / size * size;
      double squares = 0;
      for (int64_t j = begin; j < begin + size; ++j) {
        squares += x.data<double>()[j] * x.data<double>()[j];
      }
      const double weight = 1 + 0.5 * static_cast<double>(i - begin);
      const double root = std::sqrt(squares / static_cast<double>(size) + 1e-3);
      EXPECT_NEAR(found[static_cast<size_t>(i)], x.data<double>()[i] / root * weight, 1e-12);
    }
  }
}

TEST(AttentionWindow, OfTheWholeSequenceChangesNothing) {
  ModelOptions options = test::llama_options();
  const Tensor ids = test::uniform_ids({2, 12}, 4, 2, test::kVocabulary);
  const test::SmallLanguageModel plain(options, true);
  for (const int64_t window : {12, 1 << 20}) {
    options.attention_window = window;
    const test::SmallLanguageModel windowed(options, true);
    EXPECT_TRUE(
        test::same_bits(plain.model.hidden(ids).value(), windowed.model.hidden(ids).value()));
  }
}

// Over two layers a token reaches 2 (window - 1) tokens back, and not one more.
TEST(AttentionWindow, ReachesAsFarAsLayersTimesWindow) {
  ModelOptions options = test::llama_options();
  options.attention_window = 3;
  const test::SmallLanguageModel built(options, true);
  const Tensor ids = test::uniform_ids({1, 12}, 4, 2, test::kVocabulary);
  const Tensor before = built.model.hidden(ids).value();
  Tensor changed = ids.clone();
  changed.data<int32_t>()[3] = 2 + (changed.data<int32_t>()[3] - 1) % 17;
  const Tensor after = built.model.hidden(changed).value();
  for (int64_t t = 0; t < 12; ++t) {
    const double moved = distance(test::columns(before, t, t + 1), test::columns(after, t, t + 1));
    EXPECT_EQ(moved > 0, 3 <= t && t <= 3 + 2 * (3 - 1)) << t << ": " << moved;
  }
}

TEST(AttentionLayerMasks, ACausalMaskAndLengthsMayBeWritten) {
  ParamStore store(3, DType::kFloat64);
  const MultiHeadAttention::Options options{.hidden_size = 8, .heads = 2, .value_head_size = 3};
  const SelfAttention self(options, store.root() / "self");
  const CrossAttention cross(options, store.root() / "cross");
  test::disturb(store);
  const Var x = test::uniform({2, 4, 8}, 3), memory = test::uniform({2, 5, 8}, 4);
  std::vector<int32_t> causal, lengths;
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t j = 0; j < 4; ++j) causal.push_back(j <= t);
  }
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t t = 0; t < 4; ++t) {
      for (int64_t j = 0; j < 5; ++j) lengths.push_back(b == 0 || j < 2);
    }
  }
  EXPECT_LT(distance(self(x, {}, false, {.mask = test::ints(causal, {4, 4})}).value(),
                     self(x, {}, true).value()),
            1e-14);
  EXPECT_LT(distance(cross(x, memory, {}, test::ints(lengths, {2, 4, 5})).value(),
                     cross(x, memory, test::lengths_tensor({5, 2})).value()),
            1e-14);
}

TEST(AttentionLayerMasks, TheRecorderKnowsThem) {
  ParamStore store(3, DType::kFloat64);
  const SelfAttention layer({.hidden_size = 8, .heads = 2, .value_head_size = 3, .window = 2},
                            store.root());
  const AttentionRecorder recorder;
  layer(test::uniform({1, 5, 8}, 3), {}, true);
  ASSERT_EQ(recorder.maps().size(), 1u);
  const auto weights = recorder.maps()[0].weights.to_vector<double>();
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t j = 0; j < 5; ++j) EXPECT_EQ(weights[t * 5 + j] > 0, j == t || j == t - 1);
  }
}

// Values of PyTorch and transformers: tests/fixtures/distance_biases.py.
test::Json fixture() { return test::read_fixture("distance_biases"); }

TEST(DistanceBiases, SlopesArePublishedOnes) {
  const test::Json expected = fixture().at("slopes");
  for (int64_t heads = 1; heads <= 17; ++heads) {
    const auto slopes = expected.at(std::to_string(heads)).get<std::vector<double>>();
    const auto ours = alibi_slopes(heads);
    ASSERT_EQ(ours.size(), slopes.size());
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], slopes[i], 1e-7) << heads;
  }
}

TEST(DistanceBiases, BucketsArePublishedOnes) {
  const test::Json expected = fixture().at("buckets");
  for (const bool both_ways : {false, true}) {
    const auto buckets =
        expected.at(both_ways ? "bidirectional" : "causal").get<std::vector<int64_t>>();
    const auto farthest = static_cast<int64_t>(buckets.size() / 2);
    for (int64_t d = -farthest; d <= farthest; ++d) {
      EXPECT_EQ(relative_bucket(d, both_ways), buckets[static_cast<size_t>(d + farthest)]) << d;
    }
  }
}

// Attention with these biases, as PyTorch composes it from the formulas.
TEST(DistanceBiases, AttentionEqualsPyTorch) {
  const test::Json all = fixture();
  const auto tensor = [](const test::Json& value) {
    return test::doubles(value.at("data").get<std::vector<double>>(),
                         Shape(value.at("shape").get<std::vector<int64_t>>().data(),
                               static_cast<int>(value.at("shape").size())));
  };
  for (const char* kind : {"alibi", "relative"}) {
    ModelOptions options;
    options.num_attention_heads = 3;
    options.max_position_embeddings = 8;
    options.position_embedding =
        kind == std::string("alibi") ? PositionEmbedding::kAlibi : PositionEmbedding::kRelative;
    for (const bool causal : {false, true}) {
      const test::Json& row = all.at("attention").at(kind).at(causal ? "causal" : "encoder");
      ParamStore store(3, DType::kFloat64);
      const RelativePositions positions(options, causal, store.root());
      if (positions.weight.defined()) positions.weight.value().copy_from(tensor(row.at("table")));
      const Var q = tensor(row.at("q")), k = tensor(row.at("k")), v = tensor(row.at("v"));
      // Longer than the positions of the options.
      const Var bias = positions.bias(k.shape()[1]);
      EXPECT_LT(
          distance(
              attention(q, k, v, {.heads = 3, .causal = causal, .relative_bias = bias}).value(),
              tensor(row.at("out"))),
          1e-6)
          << kind << ' ' << causal;
    }
  }
}

// Three heads of four numbers, values of five, in a model of ten: against the composed operation on
// the columns of the packed projection.
TEST(HeadsOfTheirOwnSize, EqualTheReference) {
  ParamStore store(1, DType::kFloat64);
  const SelfAttention layer(
      {.hidden_size = 10, .heads = 3, .own_head_size = 4, .value_head_size = 5}, store.root());
  const Var x = test::uniform({2, 6, 10}, 3);
  const Var packed = layer.qkv(x);
  ASSERT_EQ(packed.shape(), (Shape{2, 6, 3 * (4 + 4 + 5)}));
  const Var wanted =
      layer.out(attention_reference(slice(packed, 2, 0, 12), slice(packed, 2, 12, 24),
                                    slice(packed, 2, 24, 39), {.heads = 3, .causal = true})
                    .out);
  EXPECT_LT(test::distance(layer(x, {}, true).value(), wanted.value()), 1e-12);
  const CrossAttention cross(
      {.hidden_size = 10, .heads = 3, .own_head_size = 4, .value_head_size = 5},
      store.root() / "cross");
  EXPECT_EQ(cross.q(x).shape(), (Shape{2, 6, 12}));
  EXPECT_EQ(cross(x, x, {}).shape(), (Shape{2, 6, 10}));
}

}  // namespace
}  // namespace tapestry
