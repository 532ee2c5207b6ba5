// Attention over sequences end to end against the composed one, and positions that begin again.
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::distance;
using test::parameter;
using test::uniform;

constexpr int32_t kOfSequences[] = {5, 1, 9, 3};
constexpr int64_t kTokens = 18;

struct SequenceSetting {
  const char* name;
  AttentionOptions options = {};
  bool prefix = false;
  int64_t reach = 0;
};
void PrintTo(const SequenceSetting& setting, std::ostream* out) { *out << setting.name; }

class AttentionOfSequences : public ::testing::TestWithParam<SequenceSetting> {};

TEST_P(AttentionOfSequences, EqualsTheComposedOne) {
  AttentionOptions options = GetParam().options;
  options.heads = 4;
  options.sequences = Sequences::of_lengths(kOfSequences);
  if (GetParam().prefix) options.prefix_lengths = test::ints({2, 1, 0, 3}, {4});
  const Var q = parameter({1, kTokens, 16}, 1, -2, 2), k = parameter({1, kTokens, 16}, 2, -2, 2);
  const Var v = parameter({1, kTokens, 16}, 3), relative = parameter({4, 7}, 4);
  if (GetParam().reach > 0) options.relative_bias = relative;
  const Tensor dy = uniform({1, kTokens, 16}, 5);
  const auto by_tape = [&](auto attend) {
    const std::vector<Var> inputs{q, k, v, relative};
    for (const Var& x : inputs) x.zero_grad();
    Tape tape({.seed = 9, .step = 2, .stream = 0});
    const Var y = attend();
    tape.backward(y, dy);
    std::vector<Tensor> results{y.value()};
    for (size_t i = 0; i < (GetParam().reach > 0 ? 4 : 3); ++i) {
      results.push_back(inputs[i].grad().clone());
    }
    return results;
  };
  const auto fused = by_tape([&] { return attention(q, k, v, options); });
  const auto composed = by_tape([&] { return attention_reference(q, k, v, options).out; });
  ASSERT_EQ(fused.size(), composed.size());
  for (size_t i = 0; i < fused.size(); ++i) {
    EXPECT_LT(distance(fused[i], composed[i]), 1e-10) << "result " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, AttentionOfSequences,
    ::testing::Values(SequenceSetting{.name = "plain"},
                      SequenceSetting{.name = "causal", .options = {.causal = true}},
                      SequenceSetting{.name = "window", .options = {.window = 2}},
                      SequenceSetting{
                          .name = "prefix", .options = {.causal = true}, .prefix = true},
                      SequenceSetting{.name = "softcap", .options = {.softcap = 0.7}},
                      SequenceSetting{.name = "relative", .reach = 4}),
    [](const auto& info) { return std::string(info.param.name); });

// No sequence sees another one: the others may be anything.
TEST(AttentionOfSequences, SeeOnlyThemselves) {
  const AttentionOptions options{.heads = 2, .sequences = Sequences::of_lengths(kOfSequences)};
  Tensor qkv = uniform({1, kTokens, 24}, 6);
  const Tensor before = attention(Var(qkv), options).value().clone();
  for (int64_t row = 0; row < 6; ++row) {
    for (int64_t i = 0; i < 24; ++i) qkv.data<double>()[row * 24 + i] = 100;
  }
  const Tensor after = attention(Var(qkv), options).value();
  EXPECT_EQ(distance(test::columns(before, 6, kTokens), test::columns(after, 6, kTokens)), 0);
  EXPECT_GT(distance(test::columns(before, 0, 6), test::columns(after, 0, 6)), 1);
}

// Rotations and rows of a table of positions begin again with each sequence; the table's gradient
// sums them.
TEST(PositionsOfSequences, BeginAgain) {
  const Sequences sequences = Sequences::of_lengths(kOfSequences);
  const Tensor angles = uniform({9, 4}, 7);
  const Var x = parameter({1, kTokens, 8}, 8), table = parameter({6, 3}, 9),
            positions = parameter({9, 3}, 10);
  const Tensor ids = test::uniform_ids({1, kTokens}, 11, 0, 6);
  Tape tape;
  const Var turned = rope(x, angles, {.heads = 2, .positions = sequences.positions});
  const Var looked_up = embedding(ids, table, positions, {.positions = sequences.positions});
  const Tensor dy = uniform({1, kTokens, 3}, 12);
  tape.backward(looked_up, dy);
  Tensor expected = Tensor::zeros({9, 3}, DType::kFloat64);
  int64_t row = 0;
  for (const int32_t length : kOfSequences) {
    const Var own = slice(x, 1, row, row + length);
    EXPECT_EQ(distance(rope(own, angles, {.heads = 2}).value(),
                       test::columns(turned.value(), row, row + length)),
              0);
    EXPECT_EQ(distance(embedding(test::columns(ids, row, row + length), table, positions).value(),
                       test::columns(looked_up.value(), row, row + length)),
              0);
    for (int64_t i = 0; i < length * 3; ++i) {
      expected.data<double>()[i] += dy.data<double>()[row * 3 + i];
    }
    row += length;
  }
  EXPECT_LT(distance(positions.grad(), expected), 1e-14);
}

TEST(PositionsOfSequences, MustBeRowsOfTheTable) {
  const Sequences sequences = Sequences::of_lengths(kOfSequences);
  const Tensor ids = test::uniform_ids({1, kTokens}, 11, 0, 6);
  const Var table = parameter({6, 4}, 9);
  EXPECT_THROW(embedding(ids, table, parameter({8, 4}, 10), {.positions = sequences.positions}),
               Error);
  EXPECT_THROW(rope(parameter({1, kTokens, 8}, 8), uniform({8, 4}, 7),
                    {.heads = 2, .positions = sequences.positions}),
               Error);
  EXPECT_THROW(rope(parameter({1, 17, 8}, 8), uniform({9, 4}, 7),
                    {.heads = 2, .positions = sequences.positions}),
               Error);
}

TEST(AttentionOfSequences, RefusesWhatDoesNotFit) {
  const Sequences sequences = Sequences::of_lengths(kOfSequences);
  const Var qkv = parameter({1, kTokens, 24}, 6);
  EXPECT_THROW(attention(parameter({1, 17, 24}, 6), {.heads = 2, .sequences = sequences}), Error);
  EXPECT_THROW(attention(parameter({2, 9, 24}, 6), {.heads = 2, .sequences = sequences}), Error);
  EXPECT_THROW(
      attention(qkv,
                {.heads = 2, .key_lengths = test::ints({kTokens}, {1}), .sequences = sequences}),
      Error);
  EXPECT_THROW(attention(qkv, {.heads = 2,
                               .mask = Tensor::zeros({kTokens, kTokens}, DType::kInt32),
                               .sequences = sequences}),
               Error);
  EXPECT_THROW(Sequences::of_lengths(std::vector<int32_t>{3, 0}), Error);
  EXPECT_THROW(Sequences::of_lengths({}), Error);
}

}  // namespace
}  // namespace tapestry
