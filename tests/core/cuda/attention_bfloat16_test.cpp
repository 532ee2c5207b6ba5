// Attention in bfloat16, which only the GPU has: on tensor cores where head size and alignment
// allow, by the general kernels elsewhere. The reference computes in double from the same rounded
// inputs.
#include <limits>

#include "tests/core/kernels/attention/attention_testing.h"

namespace tapestry {
namespace {

// Two units in the last place of bfloat16 (2^-7 each): the weights are rounded before the product
// with the values, and the output is rounded too. A gradient sums these errors over all rows, and
// delta has the error of the rounded output: twice that. The log-sum-exp is a float, from products
// of rounded inputs that are exact in float.
Tolerance bfloat16_tolerance() {
  const double units = 1.6e-2 / std::numeric_limits<float>::epsilon();
  return {units, 60, 2 * units};
}

// Rows are a multiple of 16 bytes apart, so that the tensor cores can take them.
constexpr int64_t kAligned = 8;

class AttentionTensorCoresTest : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(HeadSizes, AttentionTensorCoresTest, ::testing::Values(32, 64, 128));

TEST_P(AttentionTensorCoresTest, EqualTheDefinition) {
  const int64_t size = GetParam();
  const AttentionCase cases[] = {
      {"one of everything", 1, 1, 1, 1, 1, size, false, {}, 0},
      {"plain, tails", 2, 31, 37, 2, 2, size, false, {}, 0},
      {"whole tiles", 1, 64, 64, 1, 1, size, false, {}, 0},
      {"causal, many tiles", 1, 150, 150, 1, 1, size, true, {}, 0},
      {"causal, fewer queries than keys", 1, 65, 140, 1, 1, size, true, {}, 0},
      {"causal, more queries than keys: the first rows see nothing",
       1,
       140,
       70,
       1,
       1,
       size,
       true,
       {},
       0},
      {"key lengths, one of them 0", 4, 10, 130, 1, 1, size, false, {130, 1, 0, 64}, 0},
      {"grouped heads, causal with key lengths", 2, 70, 70, 4, 2, size, true, {70, 11}, 0},
      {"dropout, draws aligned", 1, 70, 72, 2, 1, size, false, {}, 0.25f},
      {"dropout, draws not aligned", 2, 33, 67, 2, 2, size, true, {67, 40}, 0.5f},
      {"one query: a decoding step", 2, 1, 200, 2, 1, size, true, {}, 0},
      {"one query, dropout", 2, 1, 200, 2, 1, size, true, {}, 0.2f},
      {"one query, key lengths", 4, 1, 70, 2, 2, size, false, {70, 1, 0, 33}, 0},
      {"no key", 2, 3, 0, 2, 2, size, false, {}, 0},
      {"window, causal", 1, 150, 150, 2, 1, size, true, {}, 0, {.window = 20}},
      {"window both ways, lengths", 2, 150, 190, 1, 1, size, false, {190, 70}, 0, {.window = 70}},
      {"window, dropout", 1, 140, 200, 1, 1, size, true, {}, 0.25f, {.window = 90}},
      {"general kernels: a mask", 1, 70, 90, 2, 1, size, true, {}, 0, {.mask = DenseMask::kAdded}},
  };
  for (const AttentionCase& c : cases) check<BFloat16>(c, bfloat16_tolerance(), kAligned);
}

TEST(AttentionBFloat16Test, GeneralKernelsEqualTheDefinition) {
  const AttentionCase cases[] = {
      {"head size without tensor-core kernel", 2, 33, 37, 4, 2, 48, true, {37, 11}, 0.5f},
      {"large heads", 1, 20, 70, 1, 1, 256, false, {}, 0},
      {"odd", 1, 70, 9, 3, 1, 5, true, {}, 0},
  };
  for (const int64_t padding : {int64_t{3}, kAligned}) {
    for (const AttentionCase& c : cases) check<BFloat16>(c, bfloat16_tolerance(), padding);
  }
  check<BFloat16>({"not aligned", 2, 33, 37, 2, 2, 64, true, {}, 0}, bfloat16_tolerance(), 3);
}

TEST(AttentionBFloat16Test, TensorCoresLeaveOutWhatIsNotAskedFor) {
  const Problem<BFloat16> p({"parts", 2, 33, 40, 4, 2, 32, true, {}, 0.1f}, kAligned);
  const Forward<BFloat16> f(p);
  const Naive naive(p);
  const double units = bfloat16_tolerance().gradients;
  for (int part = 0; part < 3; ++part) {
    Operand<BFloat16> dq = p.like_q(6), dk = p.like_k(7), dv = p.like_v(8);
    AttentionBackward<BFloat16> args = backward_args(p, f);
    if (part == 0) args.dq = dq.output();
    if (part == 1) args.dk = dk.output();
    if (part == 2) args.dv = dv.output();
    kernels::attention_backward(TestDevice{}, p.shape, args);
    if (part == 0) expect_operand(dq, naive.dq, p.like_q(6), Write::kSet, units);
    if (part == 1) expect_operand(dk, naive.dk, p.like_k(7), Write::kSet, units);
    if (part == 2) expect_operand(dv, naive.dv, p.like_v(8), Write::kSet, units);
  }
}

TEST(AttentionBFloat16Test, TensorCoresDoNotHideNan) {
  Problem<BFloat16> p({"nan", 1, 20, 90, 1, 1, 32, false, {}, 0}, kAligned);
  p.k.data[p.k.index(0, 71, 0, 2)] = BFloat16(std::numeric_limits<float>::quiet_NaN());
  const Forward<BFloat16> f(p);
  for (int64_t t = 0; t < 20; ++t) EXPECT_TRUE(std::isnan(f.out.at(0, t, 0, 0))) << t;
}

// Keys beyond a key length are never read.
TEST(AttentionBFloat16Test, PaddingMayHoldAnything) {
  const AttentionCase c = {"padding", 1, 20, 90, 1, 1, 32, false, {40}, 0};
  Problem<BFloat16> p(c, kAligned);
  const Forward<BFloat16> clean(p);
  for (int64_t j = 40; j < 90; ++j) {
    p.k.data[p.k.index(0, j, 0, 1)] = BFloat16(std::numeric_limits<float>::quiet_NaN());
    p.v.data[p.v.index(0, j, 0, 1)] = BFloat16(std::numeric_limits<float>::infinity());
  }
  const Forward<BFloat16> f(p);
  EXPECT_EQ(f.out.data, clean.out.data);
}

}  // namespace
}  // namespace tapestry
