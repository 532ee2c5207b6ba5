// Decoding with key/value caches against teacher forcing and against decoding without caches.
#include "tests/nn/models.h"

namespace tapestry {
namespace {

using test::distance;
using test::poison_free_memory;
using test::SmallModel;

struct Variant {
  const char* name;
  ModelOptions options;
  DType dtype;
  double tolerance;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class CachedDecoding : public ::testing::TestWithParam<Variant> {
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

// 20 steps: the cache grows past its first 16 tokens.
TEST_P(CachedDecoding, StepsEqualTeacherForcing) {
  const int64_t steps = 20;
  const Tensor target = test::uniform_ids({3, steps}, 8, 2, test::kVocabulary);
  const Tensor expected = teacher_forcing(source_, source_lengths_, target);
  poison_free_memory();
  EncoderDecoder::State state = model_.start(source_, source_lengths_);
  for (int64_t t = 0; t < steps; ++t) {
    const Tensor logits = model_.step(test::columns(target, t, t + 1).reshape({3}), state);
    ASSERT_EQ(logits.shape(), (Shape{3, test::kVocabulary}));
    const Tensor wanted = slice(Var(expected), 1, t, t + 1).value().reshape(logits.shape());
    ASSERT_LT(distance(logits, wanted), GetParam().tolerance) << "step " << t;
  }
  EXPECT_EQ(state.position, steps);
}

// Beams follow random parents, and sentences leave one after the other.
TEST_P(CachedDecoding, RowsFollowTheirParents) {
  const int64_t beams = 3;
  std::vector<int32_t> alive = {0, 1, 2};
  std::vector<std::vector<int32_t>> histories(alive.size() * beams);
  poison_free_memory();
  EncoderDecoder::State state = model_.start(source_, source_lengths_);
  const auto draw = [](uint64_t index, uint64_t bound) {
    return static_cast<int32_t>(philox_below({.seed = 4, .step = 1, .stream = 9}, index, bound));
  };
  for (int step = 0; step < 9; ++step) {
    std::vector<int32_t> tokens;
    for (size_t row = 0; row < histories.size(); ++row) {
      tokens.push_back(2 + draw(1000 * step + row, test::kVocabulary - 2));
      histories[row].push_back(tokens.back());
    }
    const auto rows = static_cast<int64_t>(tokens.size());
    const Tensor logits = model_.step(Tensor::from<int32_t>(tokens, {rows}), state);
    for (int64_t row = 0; row < rows; ++row) {
      const int32_t s = alive[row / beams];
      const Tensor expected = teacher_forcing(
          source_.slice(s, s + 1), source_lengths_.slice(s, s + 1),
          Tensor::from<int32_t>(histories[row], {1, static_cast<int64_t>(histories[row].size())}));
      ASSERT_LT(distance(logits.slice(row, row + 1),
                         expected.reshape({step + 1, test::kVocabulary}).slice(step, step + 1)),
                GetParam().tolerance)
          << "step " << step << ", row " << row;
    }
    // After steps 2, 5 and so on one sentence leaves; in every step parents are drawn.
    std::vector<int32_t> kept;
    for (size_t i = 0; i < alive.size(); ++i) kept.push_back(static_cast<int32_t>(i));
    const bool one_leaves = step % 3 == 2 && alive.size() > 1;
    if (one_leaves) kept.erase(kept.begin() + draw(step, alive.size()));
    std::vector<int32_t> parents, still_alive;
    std::vector<std::vector<int32_t>> next;
    for (const int32_t i : kept) {
      still_alive.push_back(alive[i]);
      for (int64_t b = 0; b < beams; ++b) {
        parents.push_back(static_cast<int32_t>(i * beams) +
                          draw(500 + 100 * step + parents.size(), beams));
        next.push_back(histories[parents.back()]);
      }
    }
    const Tensor rows_tensor = test::lengths_tensor(parents);
    if (one_leaves) {
      state.select(test::lengths_tensor(kept), rows_tensor);
    } else {
      state.select_rows(rows_tensor);
    }
    alive = std::move(still_alive);
    histories = std::move(next);
  }
  EXPECT_EQ(alive.size(), 1u);
}

// The model without any cache: every step decodes the whole histories again.
class Uncached : public NextToken {
 public:
  Uncached(const EncoderDecoder& model, const Tensor& source, const Tensor& lengths, int64_t beams)
      : model_(model), source_(source), lengths_(lengths), beams_(beams) {
    for (int32_t s = 0; s < lengths.numel(); ++s) alive_.push_back(s);
    histories_.resize(alive_.size() * beams);
  }
  Tensor step(const std::vector<int32_t>& tokens) override {
    Tensor logits = Tensor::empty({static_cast<int64_t>(tokens.size()), test::kVocabulary},
                                  model_.words.target.dtype());
    for (size_t row = 0; row < tokens.size(); ++row) {
      auto& history = histories_[row];
      history.push_back(tokens[row]);
      const int32_t s = alive_[row / beams_];
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
  void select(const std::vector<int32_t>& sentences, const std::vector<int32_t>& rows) override {
    std::vector<int32_t> alive;
    std::vector<std::vector<int32_t>> histories;
    for (const int32_t s : sentences) alive.push_back(alive_.at(s));
    for (const int32_t row : rows) histories.push_back(histories_.at(row));
    alive_ = std::move(alive);
    histories_ = std::move(histories);
  }

 private:
  const EncoderDecoder& model_;
  Tensor source_, lengths_;
  size_t beams_;
  std::vector<int32_t> alive_;
  std::vector<std::vector<int32_t>> histories_;
};

TEST_P(CachedDecoding, TranslateEqualsSearchWithoutCaches) {
  const SearchIds ids;
  for (const int64_t beams : {1, 4}) {
    const SearchOptions options{.num_beams = beams, .n_best = beams, .max_length_ratio = 0.5};
    const auto found = translate({{&model_}}, {source_, source_lengths_, ids}, options);
    Uncached uncached(model_, source_, source_lengths_, beams);
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

ModelOptions latent_options() {
  ModelOptions options = test::post_norm_options();
  options.kv_latent_size = 6;
  options.position_embedding = PositionEmbedding::kRope;
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

INSTANTIATE_TEST_SUITE_P(
    Variants, CachedDecoding,
    ::testing::Values(
        Variant{"post_norm_float64", test::post_norm_options(), DType::kFloat64, 1e-10},
        Variant{"post_norm_float32", test::post_norm_options(), DType::kFloat32, 1e-5},
        Variant{"pre_norm_grouped_float64", test::pre_norm_options(), DType::kFloat64, 1e-10},
        Variant{"pre_norm_grouped_float32", test::pre_norm_options(), DType::kFloat32, 1e-5},
        Variant{"window_narrow_values_float64", window_options(), DType::kFloat64, 1e-10},
        Variant{"alibi_float64", positions_options(PositionEmbedding::kAlibi), DType::kFloat64,
                1e-10},
        Variant{"relative_float32", positions_options(PositionEmbedding::kRelative),
                DType::kFloat32, 1e-5},
        Variant{"multi_query_float64", multi_query_options(), DType::kFloat64, 1e-10},
        Variant{"latent_float64", latent_options(), DType::kFloat64, 1e-10},
        Variant{"latent_float32", latent_options(), DType::kFloat32, 1e-5}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(KeyValueCache, RefusesTokensOfAnotherShape) {
  KeyValueCache cache;
  cache.append(Tensor::zeros({2, 1, 6}));
  EXPECT_EQ(test::error_of([&] {
              cache.append(Tensor::zeros({3, 1, 6}));
            }),
            "[cache] the cache is (2, 16, 6), the tokens (3, 1, 6).");
  EXPECT_EQ(cache.length, 1);
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
