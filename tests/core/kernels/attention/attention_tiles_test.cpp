// Attention whose products run on tiles, against the definition. TAPESTRY_BFLOAT16=amx_emulated
// runs it on processors without tiles.
#include "core/kernels/cpu/rounded_product.h"
#include "tests/core/kernels/attention/attention_testing.h"

namespace tapestry {
namespace {

class AttentionOnTilesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::runs_on_tiles(Precision::kBfloat16)) {
      GTEST_SKIP() << "this processor has no AMX-BF16; core.EmulatedTiles runs it anywhere";
    }
  }
};

// Each factor is rounded by at most 2^-9 of itself.
constexpr Tolerance kTolerance = {0x1p-6 / 0x1p-23, 0x1p-7 / 0x1p-23, 0x1p-5 / 0x1p-23};

std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all = {
      {"plain", 2, 64, 64, 2, 2, 32, false, {}, 0},
      {"edges of tiles", 2, 31, 33, 3, 3, 17, false, {}, 0},
      {"causal", 2, 65, 65, 2, 2, 16, true, {}, 0},
      {"a few queries, which run in float32", 2, 3, 40, 2, 1, 40, true, {}, 0},
      {"causal, fewer queries than keys", 1, 7, 40, 2, 2, 8, true, {}, 0},
      {"causal, more queries than keys: the first rows see nothing",
       1,
       70,
       9,
       2,
       2,
       8,
       true,
       {},
       0},
      {"key lengths, one of them 0", 4, 10, 70, 2, 2, 33, false, {70, 1, 0, 17}, 0},
      {"grouped heads, dropout", 2, 33, 37, 4, 2, 17, true, {37, 11}, 0.5f},
      {"many blocks", 1, 150, 300, 2, 1, 9, true, {280}, 0.2f},
      {"values of another size", 1, 40, 50, 2, 2, 24, false, {}, 0, {.value_size = 40}},
      {"window", 1, 90, 300, 1, 1, 8, true, {}, 0, {.window = 37}},
      {"prefix", 2, 50, 50, 1, 1, 8, true, {}, 0, {.prefix_lengths = {9, 40}}},
      {"added mask, relative bias",
       2,
       40,
       45,
       2,
       2,
       8,
       false,
       {},
       0,
       {.mask = DenseMask::kAdded, .mask_by_head = true, .reach = 5}},
  };
  for (AttentionCase& c : all) c.extras.precision = Precision::kBfloat16;
  return all;
}

TEST_F(AttentionOnTilesTest, EqualsTheDefinitionButForRounding) {
  for (const AttentionCase& c : cases()) check<float>(c, kTolerance);
}

TEST_F(AttentionOnTilesTest, BitsDoNotDependOnThreads) {
  const AttentionCase c = cases()[7];
  const Problem<float> p(c);
  expect_same_for_any_threads([&] { return Forward<float>(p).out.data; });
}

// Keys behind the length of a sequence may hold anything.
TEST_F(AttentionOnTilesTest, KeysThatNobodySeesAreNotRead) {
  AttentionCase c{"lengths", 1, 20, 70, 1, 1, 8, false, {33}, 0};
  c.extras.precision = Precision::kBfloat16;
  Problem<float> p(c);
  const Naive naive(p);
  for (int64_t j = 33; j < 70; ++j) {
    for (int64_t i = 0; i < 8; ++i) {
      p.k.data[static_cast<size_t>(p.k.index(0, j, 0, i))] = std::nanf("");
      p.v.data[static_cast<size_t>(p.v.index(0, j, 0, i))] = std::nanf("");
    }
  }
  const Forward<float> f(p);
  expect_operand(f.out, naive.out, p.like_out(5), Write::kSet, kTolerance.out);
  Operand<float> dq = p.like_q(6);
  AttentionBackward<float> args = backward_args(p, f);
  args.dq = dq.output();
  args.dq_write = Write::kSet;
  kernels::attention_backward(Cpu{}, p.shape, args);
  expect_operand(dq, naive.dq, p.like_q(6), Write::kSet, kTolerance.gradients);
}

}  // namespace
}  // namespace tapestry
