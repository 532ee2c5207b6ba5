// Tables of positions that grow, and models that read more than they were made for.
#include "nn/attention/position_table.h"

#include <thread>

#include "core/shapes_only.h"

#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::distance;
using test::same_bits;

TEST(PositionTable, RowsOfAFormulaGoOnWithTheSameBits) {
  ParamStore store(1, DType::kFloat32);
  const PositionTable sinusoidal(
      5, [](int64_t rows) { return sinusoidal_positions(rows, 6, DType::kFloat32); });
  const PositionTable rotary = rotary_positions(5, 6, 500, store.root());
  for (const PositionTable& table : {sinusoidal, rotary}) {
    const Tensor first = table.rows(1).value();
    EXPECT_EQ(first.shape(), (Shape{5, 6}));
    const Tensor more = table.rows(37).value();
    EXPECT_GE(more.shape()[0], 37);
    EXPECT_TRUE(same_bits(first, more.slice(0, 5)));
    EXPECT_EQ(table.rows(12).value().raw(), more.raw()) << "made once";
    const PositionTable copy = table;
    EXPECT_EQ(copy.rows(37).value().raw(), more.raw()) << "copies share it";
  }
  // Row 36 of both, from their definitions.
  for (int64_t i = 0; i < 3; ++i) {
    const double sine_angle = 36 * std::pow(10000.0, -2.0 * static_cast<double>(i) / 6);
    const double turn = 36 * std::pow(500.0, -2.0 * static_cast<double>(i) / 6);
    const float* const sine = sinusoidal.rows(37).value().data<float>() + 36 * 6;
    const float* const turned = rotary.rows(37).value().data<float>() + 36 * 6;
    EXPECT_NEAR(sine[2 * i], std::sin(sine_angle), 1e-6);
    EXPECT_NEAR(sine[2 * i + 1], std::cos(sine_angle), 1e-6);
    EXPECT_NEAR(turned[i], std::cos(turn), 1e-6);
    EXPECT_NEAR(turned[3 + i], std::sin(turn), 1e-6);
  }
}

TEST(PositionTable, GrowsOneTokenAtATimeInFewSteps) {
  int made = 0;
  const PositionTable table(1, [&](int64_t rows) {
    ++made;
    return Tensor::zeros({rows, 2});
  });
  for (int64_t count = 1; count <= 1000; ++count) table.rows(count);
  EXPECT_LE(made, 11);
}

// A plan asks for any size: 2^38 cosines would take an hour.
TEST(PositionTable, ShapesTakeNoTime) {
  const ShapesOnly dry;
  const int64_t length = 1 << 14, size = 1 << 24;
  EXPECT_EQ(sinusoidal_positions(length, size, DType::kFloat32).shape(), (Shape{length, size}));
  EXPECT_EQ(rope_table(length, size, 10000.0, DType::kFloat32).shape(), (Shape{length, size}));
}

TEST(PositionTable, LearnedRowsEnd) {
  const PositionTable table(Var(Tensor::zeros({5, 2})));
  EXPECT_EQ(table.rows(5).shape(), (Shape{5, 2}));
  EXPECT_EQ(test::error_of([&] { table.rows(6); }),
            "[positions] the model learned 5 positions, got a sequence of 6 tokens.");
  EXPECT_FALSE(PositionTable().rows(7).defined());
}

TEST(PositionTable, ThreadsMayAskAtOnce) {
  const Tensor wanted = sinusoidal_positions(400, 8, DType::kFloat64);
  const PositionTable table(
      1, [](int64_t rows) { return sinusoidal_positions(rows, 8, DType::kFloat64); });
  std::array<bool, 4> right{};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      bool all = true;
      for (int64_t count = 1 + static_cast<int64_t>(t); count <= 400; count += 7) {
        const Tensor rows = table.rows(count).value();
        all = all && same_bits(rows.slice(0, count), wanted.slice(0, count));
      }
      right[t] = all;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, (std::array<bool, 4>{true, true, true, true}));
}

struct TableVariant {
  const char* name;
  PositionEmbedding positions;
  int64_t kv_latent_size = 0;
};

void PrintTo(const TableVariant& variant, std::ostream* out) { *out << variant.name; }

class BeyondThePositions : public ::testing::TestWithParam<TableVariant> {
 protected:
  static ModelOptions options(int64_t positions) {
    ModelOptions options = test::post_norm_options();
    options.num_hidden_layers = 2;
    options.position_embedding = GetParam().positions;
    options.kv_latent_size = GetParam().kv_latent_size;
    options.max_position_embeddings = positions;
    return options;
  }
  const Tensor ids_ = test::uniform_ids({2, 23}, 3, 4, test::kVocabulary);
};

// 23 tokens in a model of 6 positions and in one of 64: the same, forwards and backwards.
TEST_P(BeyondThePositions, ALanguageModelIsThatOfMorePositions) {
  const auto pass = [&](int64_t positions) {
    const test::SmallLanguageModel built(options(positions), /*causal=*/true);
    return test::train_pass(
        built.store, [&] { return built.model.loss({.ids = ids_, .targets = ids_}, {}).loss; },
        {.seed = 1, .step = 0, .stream = 0});
  };
  EXPECT_TRUE(test::same_bits(pass(6), pass(64)));
}

TEST_P(BeyondThePositions, CachedStepsGoOn) {
  const test::SmallLanguageModel built(options(6), /*causal=*/true);
  const Tensor wanted = built.model.logits(built.model.hidden(ids_)).value();
  LanguageModelSteps steps(built.model);
  const std::vector<int32_t> first = {0};  // it is not read
  steps.add({{0, first}, {1, first}});
  for (int64_t t = 0; t < 23; ++t) {
    const Tensor logits = steps.step(test::columns(ids_, t, t + 1).to_vector<int32_t>());
    ASSERT_LT(distance(logits, test::columns(wanted, t, t + 1).reshape(logits.shape())), 1e-12)
        << "token " << t;
  }
}

TEST_P(BeyondThePositions, ATranslationIsThatOfMorePositions) {
  const auto found = [&](int64_t positions) {
    const test::SmallModel built(options(positions));
    return translate(
        {{&built.model}},
        {.source = test::sentences({15, 9}, 15, 1), .lengths = test::lengths_tensor({15, 9})},
        {.num_beams = 2, .min_new_tokens = 20});
  };
  const auto few = found(6), many = found(64);
  ASSERT_EQ(few.size(), 2u);
  for (size_t i = 0; i < few.size(); ++i) {
    EXPECT_GE(few[i].at(0).tokens.size(), 20u);
    EXPECT_EQ(few[i].at(0).tokens, many[i].at(0).tokens);
    EXPECT_EQ(few[i].at(0).log_probability, many[i].at(0).log_probability);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BeyondThePositions,
    ::testing::Values(TableVariant{"none", PositionEmbedding::kNone},
                      TableVariant{"sinusoidal", PositionEmbedding::kSinusoidal},
                      TableVariant{"rope", PositionEmbedding::kRope},
                      TableVariant{"latent_rope", PositionEmbedding::kRope, 6}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LearnedPositions, EndWithOneClearError) {
  ModelOptions options = test::gpt2_options();
  options.max_position_embeddings = 6;
  const test::SmallLanguageModel built(options, /*causal=*/true);
  EXPECT_EQ(test::error_of([&] {
              built.model.hidden(Tensor::full({1, 7}, 4, DType::kInt32));
            }),
            "[positions] the model learned 6 positions, got a sequence of 7 tokens.");
}

}  // namespace
}  // namespace tapestry
