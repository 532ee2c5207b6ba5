// Decoding with key/value caches against teacher forcing and against decoding without caches.
#include <set>

#include "core/cpu/portable_bits.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::distance;
using test::poison_free_memory;
using test::SmallModel;

struct CachedVariant {
  const char* name;
  ModelOptions options;
  DType dtype;
  double tolerance;
};

void PrintTo(const CachedVariant& variant, std::ostream* out) { *out << variant.name; }

class CachedDecoding : public ::testing::TestWithParam<CachedVariant> {
 protected:
  // Logits (B, T, V) of whole histories, by teacher forcing.
  Tensor teacher_forcing(const Tensor& source, const Tensor& lengths, const Tensor& target) const {
    const EncoderDecoder& m = built_.model;
    return m.logits(m.decode(target, m.encode(source, lengths), lengths)).value();
  }

  const SmallModel built_{GetParam().options, GetParam().dtype};
  const EncoderDecoder& model_ = built_.model;
  const std::vector<int32_t> lengths_ = {5, 3, 1};
  const Tensor source_ = test::sentences(lengths_, 5, 7);
  const Tensor source_lengths_ = test::lengths_tensor(lengths_);
};

// 40 steps: the cache grows past its first 64 rows.
TEST_P(CachedDecoding, StepsEqualTeacherForcing) {
  const int64_t steps = 40;
  const Tensor target = test::uniform_ids({3, steps}, 8, 2, test::kVocabulary);
  const Tensor expected = teacher_forcing(source_, source_lengths_, target);
  poison_free_memory();
  EncoderDecoder::State state = test::started(model_, source_, source_lengths_);
  for (int64_t t = 0; t < steps; ++t) {
    const Tensor logits = model_.step(test::columns(target, t, t + 1).reshape({3}), state);
    ASSERT_EQ(logits.shape(), (Shape{3, test::kVocabulary}));
    const Tensor wanted = slice(Var(expected), 1, t, t + 1).value().reshape(logits.shape());
    ASSERT_LT(distance(logits, wanted), GetParam().tolerance) << "step " << t;
  }
  EXPECT_EQ(state.tokens.length(2), steps);
}

// Sequences follow random parents, some leave, and new ones join while others are on their way.
TEST_P(CachedDecoding, SequencesFollowTheirParentsLeaveAndJoin) {
  struct Sequence {
    int32_t sentence;
    std::vector<int32_t> history;
  };
  std::vector<Sequence> live;
  const auto draw = [](uint64_t index, uint64_t bound) {
    return static_cast<int32_t>(philox_below({.seed = 4, .step = 1, .stream = 9}, index, bound));
  };
  poison_free_memory();
  EncoderDecoder::State state;
  const auto join = [&](int32_t first, int32_t last) {
    model_.add(source_.slice(first, last), source_lengths_.slice(first, last), state);
    for (int32_t s = first; s < last; ++s) live.push_back({s, {}});
  };
  join(0, 2);
  for (int step = 0; step < 14; ++step) {
    if (step % 4 == 3) join(step % 3, 3);
    std::vector<int32_t> tokens;
    for (size_t row = 0; row < live.size(); ++row) {
      tokens.push_back(2 + draw(1000 * step + row, test::kVocabulary - 2));
      live[row].history.push_back(tokens.back());
    }
    const auto rows = static_cast<int64_t>(tokens.size());
    const Tensor logits = model_.step(Tensor::from<int32_t>(tokens, {rows}), state);
    for (int64_t row = 0; row < rows; ++row) {
      const auto& [s, history] = live[row];
      const auto length = static_cast<int64_t>(history.size());
      const Tensor expected =
          teacher_forcing(source_.slice(s, s + 1), source_lengths_.slice(s, s + 1),
                          Tensor::from<int32_t>(history, {1, length}));
      ASSERT_LT(distance(logits.slice(row, row + 1),
                         expected.reshape({length, test::kVocabulary}).slice(length - 1, length)),
                GetParam().tolerance)
          << "step " << step << ", row " << row;
    }
    // All but one in seven of the rows are parents of the next ones, some of several.
    std::vector<int32_t> parents;
    std::vector<Sequence> next;
    for (size_t i = 0; i < live.size() + 1; ++i) {
      if (i > 0 && draw(700 * step + i, 7) == 0) continue;
      parents.push_back(draw(500 + 100 * step + i, live.size()));
      next.push_back(live[parents.back()]);
    }
    state.select(parents);
    live = std::move(next);
  }
  state.select({});
  live.clear();
  join(0, 3);
  EXPECT_EQ(model_.step(test::ints({4, 5, 6}, {3}), state).shape(), (Shape{3, test::kVocabulary}));
}

// The model without any cache: every step decodes the whole histories again.
class Uncached : public NextToken {
 public:
  Uncached(const EncoderDecoder& model, const Tensor& source, const Tensor& lengths)
      : model_(model), source_(source), lengths_(lengths) {}
  void add(const std::vector<NewSentence>& sentences) override {
    for (const NewSentence& s : sentences) rows_.push_back({s.index, {}});
  }
  Tensor step(const std::vector<int32_t>& tokens) override {
    Tensor logits = Tensor::empty({static_cast<int64_t>(tokens.size()), test::kVocabulary},
                                  model_.words.target.dtype());
    for (size_t row = 0; row < tokens.size(); ++row) {
      auto& [s, history] = rows_[row];
      history.push_back(tokens[row]);
      const Tensor lengths = lengths_.slice(s, s + 1);
      const auto length = static_cast<int64_t>(history.size());
      const Tensor all =
          model_
              .logits(model_.decode(Tensor::from<int32_t>(history, {1, length}),
                                    model_.encode(source_.slice(s, s + 1), lengths), lengths))
              .value()
              .reshape({length, test::kVocabulary});
      const auto r = static_cast<int64_t>(row);
      logits.slice(r, r + 1).copy_from(all.slice(length - 1, length));
    }
    return logits;
  }
  void select(const std::vector<int32_t>& rows) override {
    std::vector<Row> next;
    for (const int32_t row : rows) next.push_back(rows_.at(row));
    rows_ = std::move(next);
  }

 private:
  struct Row {
    int64_t sentence;
    std::vector<int32_t> history;
  };
  const EncoderDecoder& model_;
  Tensor source_, lengths_;
  std::vector<Row> rows_;
};

TEST_P(CachedDecoding, TranslateEqualsSearchWithoutCaches) {
  const SearchIds ids;
  for (const int64_t beams : {1, 4}) {
    const SearchOptions options{.num_beams = beams, .n_best = beams, .max_length_ratio = 0.5};
    const auto found = translate({{&model_}}, {source_, source_lengths_, ids}, options);
    Uncached uncached(model_, source_, source_lengths_);
    const SearchTask task{.sentences = 3,
                          .bos_id = ids.start,
                          .eos_id = ids.eos,
                          .banned = ids.banned,
                          .max_lengths = {13, 12, 11}};  // ceil(ratio * source) + 10
    const auto expected = search(uncached, task, options);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t s = 0; s < found.size(); ++s) {
      ASSERT_EQ(found[s].size(), expected[s].size());
      for (size_t i = 0; i < found[s].size(); ++i) {
        EXPECT_EQ(found[s][i].tokens, expected[s][i].tokens) << "sentence " << s << ", " << i;
        EXPECT_NEAR(found[s][i].score, expected[s][i].score, 100 * GetParam().tolerance);
      }
    }
  }
}

TEST_P(CachedDecoding, ASentenceDoesNotDependOnItsBatch) {
  const SearchOptions options{.num_beams = 3, .n_best = 2, .max_length_ratio = 0.5};
  const auto together = translate({{&model_}}, {source_, source_lengths_}, options);
  for (int64_t s = 0; s < 3; ++s) {
    const Tensor alone = test::columns(source_.slice(s, s + 1), 0, lengths_[s]);
    const auto found = translate({{&model_}}, {alone, source_lengths_.slice(s, s + 1)}, options);
    ASSERT_EQ(found.at(0).size(), together[s].size());
    for (size_t i = 0; i < found[0].size(); ++i) {
      EXPECT_EQ(found[0][i].tokens, together[s][i].tokens);
      EXPECT_NEAR(found[0][i].score, together[s][i].score, 100 * GetParam().tolerance);
    }
  }
}

ModelOptions multi_query_options() {
  ModelOptions options = test::post_norm_options();
  options.num_key_value_heads = 1;
  options.norm_position = NormPosition::kPre;
  return options;
}

ModelOptions cached_latent_options() {
  ModelOptions options = test::post_norm_options();
  options.kv_latent_size = 6;
  options.position_embedding = PositionEmbedding::kRope;
  return options;
}

// Heads that are wider together than the model, and values of another size.
ModelOptions sized_options() {
  ModelOptions options = test::pre_norm_options();
  options.head_size = 6;
  options.value_head_size = 5;
  return options;
}

// Normed queries and keys, of the memory too, and biases that the other layers do not have.
ModelOptions normed_options(QkNorm norm) {
  ModelOptions options = test::pre_norm_options();
  options.qk_norm = norm;
  options.value_head_size = 3;
  options.attention_bias = AttentionBias::kInputs;
  return options;
}

ModelOptions window_options() {
  ModelOptions options = test::pre_norm_options();
  options.attention_window = 4;
  options.value_head_size = 3;
  return options;
}

ModelOptions positions_options(PositionEmbedding positions) {
  ModelOptions options = test::post_norm_options();
  options.position_embedding = positions;
  return options;
}

ModelOptions recurrent_options(ModelOptions options) {
  options.decoder_self_attention = DecoderSelfAttention::kSsru;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Variants, CachedDecoding,
    ::testing::Values(
        CachedVariant{"post_norm_float64", test::post_norm_options(), DType::kFloat64, 1e-10},
        CachedVariant{"post_norm_float32", test::post_norm_options(), DType::kFloat32, 1e-5},
        CachedVariant{"pre_norm_grouped_float64", test::pre_norm_options(), DType::kFloat64, 1e-10},
        CachedVariant{"pre_norm_grouped_float32", test::pre_norm_options(), DType::kFloat32, 1e-5},
        CachedVariant{"window_narrow_values_float64", window_options(), DType::kFloat64, 1e-10},
        CachedVariant{"normed_heads_float64", normed_options(QkNorm::kHead), DType::kFloat64,
                      1e-10},
        CachedVariant{"normed_projections_float64", normed_options(QkNorm::kProjection),
                      DType::kFloat64, 1e-10},
        CachedVariant{"own_head_size_float64", sized_options(), DType::kFloat64, 1e-10},
        CachedVariant{"alibi_float64", positions_options(PositionEmbedding::kAlibi),
                      DType::kFloat64, 1e-10},
        CachedVariant{"relative_float32", positions_options(PositionEmbedding::kRelative),
                      DType::kFloat32, 1e-5},
        CachedVariant{"ssru_float64", recurrent_options(test::post_norm_options()), DType::kFloat64,
                      1e-10},
        CachedVariant{"ssru_pre_norm_float32", recurrent_options(test::pre_norm_options()),
                      DType::kFloat32, 1e-5},
        CachedVariant{"multi_query_float64", multi_query_options(), DType::kFloat64, 1e-10},
        CachedVariant{"latent_float64", cached_latent_options(), DType::kFloat64, 1e-10},
        CachedVariant{"latent_float32", cached_latent_options(), DType::kFloat32, 1e-5}),
    [](const auto& info) { return std::string(info.param.name); });

using NamedOptions = std::pair<const char*, ModelOptions>;
class PortableDecoding : public ::testing::TestWithParam<NamedOptions> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_portable_bits(); !why.empty()) GTEST_SKIP() << why;
    choose_portable_bits();
  }
  void TearDown() override { choose_machine_bits(); }
};

// With portable bits a step with caches has the bits of a whole text, and a search finds the
// likelihood of training's loss.
TEST_P(PortableDecoding, StepsAndScoresHaveTheBitsOfTraining) {
  const SmallModel built(GetParam().second, DType::kFloat32);
  const std::vector<int32_t> lengths = {5, 3, 1};
  const Tensor source = test::sentences(lengths, 5, 7), sizes = test::lengths_tensor(lengths);
  const int64_t steps = 40;
  const Tensor target = test::uniform_ids({3, steps}, 8, 2, test::kVocabulary);
  const EncoderDecoder& model = built.model;
  const Tensor expected =
      model.logits(model.decode(target, model.encode(source, sizes), sizes)).value();
  EncoderDecoder::State state = test::started(model, source, sizes);
  for (int64_t t = 0; t < steps; ++t) {
    const Tensor logits = model.step(test::columns(target, t, t + 1).reshape({3}), state);
    const Tensor wanted = slice(Var(expected), 1, t, t + 1).value().reshape(logits.shape());
    ASSERT_EQ(distance(logits, wanted), 0) << "step " << t;
  }

  const SearchIds ids;
  const SearchOptions options{.num_beams = 2, .n_best = 2, .max_length_ratio = 2};
  const auto found = translate({{&model}}, {source, sizes, ids}, options);
  for (int64_t s = 0; s < 3; ++s) {
    for (const Hypothesis& one : found[static_cast<size_t>(s)]) {
      std::vector<int32_t> in = {ids.start}, out = one.tokens;
      in.insert(in.end(), out.begin(), out.end());
      one.has_eos ? out.push_back(ids.eos) : in.pop_back();
      const auto length = std::ssize(out);
      const Tensor alone = test::columns(source.slice(s, s + 1), 0, lengths[s]);
      const CrossEntropy loss =
          model.loss({alone, sizes.slice(s, s + 1), Tensor::from(in, {1, length}),
                      Tensor::from(out, {1, length})},
                     {});
      EXPECT_EQ(-loss.sums.data<double>()[1], one.log_probability) << "sentence " << s;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, PortableDecoding,
    ::testing::Values(NamedOptions{"post_norm", test::post_norm_options()},
                      NamedOptions{"pre_norm_grouped", test::pre_norm_options()},
                      NamedOptions{"window", window_options()},
                      NamedOptions{"normed_heads", normed_options(QkNorm::kHead)},
                      NamedOptions{"own_head_size", sized_options()},
                      NamedOptions{"alibi", positions_options(PositionEmbedding::kAlibi)},
                      NamedOptions{"relative", positions_options(PositionEmbedding::kRelative)},
                      NamedOptions{"ssru", recurrent_options(test::pre_norm_options())},
                      NamedOptions{"latent", cached_latent_options()}),
    [](const auto& info) { return std::string(info.param.first); });

// Rows are used again once nobody points to them, and what sequences share is held once.
TEST(CacheRows, AreSharedAndUsedAgain) {
  CacheRows rows;
  rows.add(std::vector<int32_t>{20, 0}, 20, {});
  for (int step = 0; step < 500; ++step) {
    const DecodingStep next = rows.next({});
    EXPECT_LE(next.capacity, 256) << "step " << step;  // far fewer than 1,000 tokens
    if (step == 0) {
      EXPECT_EQ(next.positions.firsts.to_vector<int32_t>(), (std::vector<int32_t>{20, 0}));
    }
    std::vector<int32_t> keys = next.key_rows.to_vector<int32_t>();
    const auto width = static_cast<size_t>(next.key_rows.shape()[1]);
    const auto lengths = next.lengths.to_vector<int32_t>();
    std::set<int32_t> first(keys.begin(), keys.begin() + lengths[0]);
    EXPECT_EQ(std::ssize(first), lengths[0]);
    for (int32_t j = 0; j < lengths[1]; ++j) {
      const bool shared = first.count(keys[width + static_cast<size_t>(j)]) > 0;
      EXPECT_EQ(shared, step > 0 && j < lengths[1] - 1) << "step " << step << ", token " << j;
    }
    // Both go on from the second one, which is forgotten now and then.
    rows.select(std::vector<int32_t>{1, 1});
    if (step % 50 == 49) {
      rows.select({});
      rows.add(std::vector<int32_t>{3}, 3, {});
      rows.select(std::vector<int32_t>{0, 0});
    }
  }
}

TEST(KeyValueCache, RefusesTokensOfAnotherShape) {
  KeyValueCache cache;
  CacheRows rows;
  const DecodingStep step = rows.add(std::vector<int32_t>{2, 2}, 2, {});
  cache.write(Tensor::zeros({2, 2, 8}), 2, 6, step);
  EXPECT_EQ(cache.kv.shape(), (Shape{1, 64, 6}));
  EXPECT_EQ(
      test::error_of([&] {
        cache.write(Tensor::zeros({3, 2, 6}), 0, 6, step);
      }),
      "[cache] the cache is (1, 64, 6), the tokens (3, 2, 6) with 6 columns from 0 on for (4) "
      "rows.");
}

TEST(Translate, LimitStopsAtTheLastPosition) {
  ModelOptions options = test::post_norm_options();
  options.position_embedding = PositionEmbedding::kLearned;
  options.max_position_embeddings = 6;
  const SmallModel built(options);
  const Tensor source = test::sentences({5}, 5, 1);
  const auto found =
      translate({{&built.model}}, {source, test::lengths_tensor({5})}, {.max_length_ratio = 100});
  EXPECT_LE(found.at(0).at(0).tokens.size(), 5u);
}

}  // namespace
}  // namespace tapestry
