// Attention of bfloat16 tensors: on the CPU, and on a GPU by tensor cores where head size and
// alignment allow, by the general kernels elsewhere. The reference computes in double from the same
// rounded inputs.
#include <limits>

#include "core/cuda/hopper.h"
#include "core/kernels/cpu/rounded_product.h"
#include "tests/core/kernels/attention/attention_testing.h"

namespace tapestry {
namespace {

// Rows are a multiple of 16 bytes apart, so that the tensor cores can take them.
constexpr int64_t kAligned = 8;

constexpr Tolerance kRoundedTolerance = tolerance<BFloat16>(60);

// On a GPU, by the kernels for any of them; attention_hopper_test.cpp has the others.
struct KernelsForAnyGpu {
  KernelsForAnyGpu() {
#ifdef TAPESTRY_TEST_CUDA
    cuda::choose_hopper_attention(cuda::HopperAttention::kNowhere);
#endif
  }
};

class AttentionTensorCoresTest : public ::testing::TestWithParam<int64_t>, KernelsForAnyGpu {};
class AttentionBFloat16Test : public ::testing::Test, KernelsForAnyGpu {};
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
  on_every_target([&] {
    for (const AttentionCase& c : cases) check<BFloat16>(c, kRoundedTolerance, kAligned);
  });
}

TEST_F(AttentionBFloat16Test, GeneralKernelsEqualTheDefinition) {
  const AttentionCase cases[] = {
      {"head size without tensor-core kernel", 2, 33, 37, 4, 2, 48, true, {37, 11}, 0.5f},
      {"large heads", 1, 20, 70, 1, 1, 256, false, {}, 0},
      {"odd", 1, 70, 9, 3, 1, 5, true, {}, 0},
  };
  on_every_target([&] {
    for (const int64_t padding : {int64_t{3}, kAligned}) {
      for (const AttentionCase& c : cases) check<BFloat16>(c, kRoundedTolerance, padding);
    }
    check<BFloat16>({"not aligned", 2, 33, 37, 2, 2, 64, true, {}, 0}, kRoundedTolerance, 3);
  });
}

TEST_F(AttentionBFloat16Test, TensorCoresLeaveOutWhatIsNotAskedFor) {
  const Problem<BFloat16> p({"parts", 2, 33, 40, 4, 2, 32, true, {}, 0.1f}, kAligned);
  const Forward<BFloat16> f(p);
  const Naive naive(p);
  const double units = kRoundedTolerance.gradients;
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

TEST_F(AttentionBFloat16Test, TensorCoresDoNotHideNan) {
  Problem<BFloat16> p({"nan", 1, 20, 90, 1, 1, 32, false, {}, 0}, kAligned);
  p.k.data[p.k.index(0, 71, 0, 2)] = BFloat16(std::numeric_limits<float>::quiet_NaN());
  const Forward<BFloat16> f(p);
  for (int64_t t = 0; t < 20; ++t) EXPECT_TRUE(std::isnan(f.out.at(0, t, 0, 0))) << t;
}

// Keys beyond a key length are never read.
TEST_F(AttentionBFloat16Test, PaddingMayHoldAnything) {
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

#ifndef TAPESTRY_TEST_CUDA

// The same problem of floats, which hold the same numbers.
Problem<float> widened(const AttentionCase& c, const Problem<BFloat16>& p) {
  Problem<float> wide(c, p.padding);
  wide.q.data = wider(p.q.data);
  wide.k.data = wider(p.k.data);
  wide.v.data = wider(p.v.data);
  wide.d_out.data = wider(p.d_out.data);
  wide.added = wider(p.added);
  wide.relative = wider(p.relative);
  return wide;
}

Values<BFloat16> rounded(const Values<float>& values) {
  Values<BFloat16> result;
  for (const float value : values) result.push_back(BFloat16(value));
  return result;
}

// Sums of floats in another order, rounded to bfloat16.
void expect_rounded_once(const Values<BFloat16>& actual, const Values<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double e = as_double(expected[i]);
    ASSERT_NEAR(as_double(actual[i]), e, 0x1p-8 * std::abs(e) + 1e-5) << "element " << i;
  }
}

// On the CPU all in between are floats: what the kernels of floats compute from the same numbers,
// rounded once. Only dq is summed in another order over blocks of keys.
TEST_F(AttentionBFloat16Test, OnlyResultsAreRounded) {
  if (kernels::bfloat16_runs_on_tiles()) GTEST_SKIP() << "tiles round the weights";
  const AttentionCase cases[] = {
      {"a few queries", 2, 3, 200, 4, 2, 64, true, {200, 30}, 0.2f},
      {"one query, a mask", 2, 1, 90, 2, 2, 20, false, {}, 0, {.mask = DenseMask::kAdded}},
      {"a few heads, many blocks", 1, 200, 700, 2, 1, 64, false, {}, 0.1f},
      {"many heads, many blocks", 4, 150, 700, 4, 2, 32, false, {700, 1, 0, 300}, 0.1f},
      {"causal, window", 4, 300, 300, 2, 2, 40, true, {}, 0, {.window = 140}},
      {"more queries than keys", 4, 300, 150, 2, 2, 17, true, {}, 0},
      {"relative bias", 2, 150, 300, 2, 1, 16, false, {}, 0, {.reach = 200}},
      {"no key", 8, 20, 0, 1, 1, 8, false, {}, 0},
  };
  on_every_target([&] {
    for (const AttentionCase& c : cases) {
      SCOPED_TRACE(c.name);
      const Problem<BFloat16> p(c);
      const Problem<float> wide_p = widened(c, p);
      const Forward<BFloat16> f(p);
      Forward<float> wide_f(wide_p);
      // What lies between the rows of `out` differs.
      const Operand<BFloat16> unset = p.like_out(5);
      const Operand<float> wide_unset = wide_p.like_out(5);
      for (size_t i = 0; i < f.out.data.size(); ++i) {
        const bool written = wide_f.out.data[i] != wide_unset.data[i];
        ASSERT_EQ(f.out.data[i], written ? BFloat16(wide_f.out.data[i]) : unset.data[i]) << i;
      }
      EXPECT_EQ(f.log_sum_exp, wide_f.log_sum_exp);

      wide_f.out.data = wider(f.out.data);
      for (const Write write : kBothWrites) {
        Operand<BFloat16> dq = p.like_q(6), dk = p.like_k(7), dv = p.like_v(8);
        Operand<float> wide_dq = wide_p.like_q(6), wide_dk = wide_p.like_k(7),
                       wide_dv = wide_p.like_v(8);
        Values<BFloat16> d_relative = p.like_relative(9);
        Values<float> wide_d_relative = wider(d_relative);
        wide_dq.data = wider(dq.data);
        wide_dk.data = wider(dk.data);
        wide_dv.data = wider(dv.data);
        const auto compute = [&](const auto& problem, const auto& forward, auto& q, auto& k,
                                 auto& v, auto& relative) {
          auto args = backward_args(problem, forward);
          args.dq = q.output();
          args.dk = k.output();
          args.dv = v.output();
          args.dq_write = args.dk_write = args.dv_write = args.d_relative_write = write;
          if (problem.reach > 0) args.d_relative = relative.data();
          kernels::attention_backward(Cpu{}, problem.shape, args);
        };
        compute(p, f, dq, dk, dv, d_relative);
        compute(wide_p, wide_f, wide_dq, wide_dk, wide_dv, wide_d_relative);
        expect_rounded_once(dq.data, wide_dq.data);
        EXPECT_EQ(dk.data, rounded(wide_dk.data));
        EXPECT_EQ(dv.data, rounded(wide_dv.data));
        EXPECT_EQ(d_relative, rounded(wide_d_relative));
      }
    }
  });
}

#endif

}  // namespace
}  // namespace tapestry
