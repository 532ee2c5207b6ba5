// Attention whose products run on tiles, against the definition. TAPESTRY_BFLOAT16=amx_emulated
// runs it on processors without tiles.
#include "core/kernels/cpu/rounded_product.h"
#include "tests/core/kernels/attention/attention_testing.h"

namespace tapestry {
namespace {

class AttentionOnTilesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::bfloat16_runs_on_tiles()) {
      GTEST_SKIP() << "this processor multiplies no tiles; core.EmulatedTiles runs it anywhere";
    }
  }
};

// Each factor is rounded by at most 2^-9 of itself.
constexpr Tolerance kTolerance = {0x1p-6 / 0x1p-23, 0x1p-7 / 0x1p-23, 0x1p-5 / 0x1p-23};

std::vector<AttentionCase> cases() {
  return {
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
      {"many blocks, many heads", 4, 90, 300, 4, 2, 9, true, {280, 300, 0, 129}, 0.2f},
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
}

TEST_F(AttentionOnTilesTest, EqualsTheDefinitionButForRounding) {
  for (const AttentionCase& c : cases()) check<BFloat16>(c, kTolerance);
}

TEST_F(AttentionOnTilesTest, BitsDoNotDependOnThreads) {
  for (const AttentionCase& c : cases()) {
    const Problem<BFloat16> p(c);
    expect_same_for_any_threads([&] {
      const Forward<BFloat16> f(p);
      Operand<BFloat16> dq = p.like_q(6), dk = p.like_k(7), dv = p.like_v(8);
      AttentionBackward<BFloat16> args = backward_args(p, f);
      args.dq = dq.output();
      args.dk = dk.output();
      args.dv = dv.output();
      kernels::attention_backward(TestDevice{}, p.shape, args);
      finish_work();
      Values<BFloat16> all = f.out.data;
      for (const Values<BFloat16>* part : {&dq.data, &dk.data, &dv.data}) {
        all.insert(all.end(), part->begin(), part->end());
      }
      return all;
    });
  }
}

// Keys behind the length of a sequence may hold anything.
TEST_F(AttentionOnTilesTest, KeysThatNobodySeesAreNotRead) {
  const AttentionCase c{"lengths", 1, 20, 70, 1, 1, 8, false, {33}, 0};
  Problem<BFloat16> p(c);
  const Naive naive(p);
  for (int64_t j = 33; j < 70; ++j) {
    for (int64_t i = 0; i < 8; ++i) {
      p.k.data[static_cast<size_t>(p.k.index(0, j, 0, i))] = static_cast<BFloat16>(std::nanf(""));
      p.v.data[static_cast<size_t>(p.v.index(0, j, 0, i))] = static_cast<BFloat16>(std::nanf(""));
    }
  }
  const Forward<BFloat16> f(p);
  expect_operand(f.out, naive.out, p.like_out(5), Write::kSet, kTolerance.out);
  Operand<BFloat16> dq = p.like_q(6);
  AttentionBackward<BFloat16> args = backward_args(p, f);
  args.dq = dq.output();
  args.dq_write = Write::kSet;
  kernels::attention_backward(Cpu{}, p.shape, args);
  expect_operand(dq, naive.dq, p.like_q(6), Write::kSet, kTolerance.gradients);
}

}  // namespace
}  // namespace tapestry
