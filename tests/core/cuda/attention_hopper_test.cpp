// Attention on the tensor cores of compute capability 9.0, against the definition and against the
// kernels that it takes the place of: on such a GPU or in its emulation.
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/cuda/hopper.h"
#include "tests/core/cuda/need_gpu.h"
#include "tests/core/kernels/attention/attention_testing.h"

namespace tapestry {
namespace {

using cuda::HopperAttention;

constexpr int64_t kAligned = 8;
constexpr Tolerance kTolerance = tolerance<BFloat16>(60);

class AttentionHopperTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    NEED_GPU();
    if (!cuda::has_warpgroup_products()) {
      GTEST_SKIP() << "no compute capability 9.0, or a build without 90a-real";
    }
    cuda::choose_hopper_attention(HopperAttention::kTwoKernels);
  }
  void TearDown() override { cuda::choose_hopper_attention(HopperAttention::kNowhere); }
};
INSTANTIATE_TEST_SUITE_P(HeadSizes, AttentionHopperTest, testing::Values(64, 128));

std::vector<AttentionCase> cases(int64_t size) {
  return {
      {"one of everything but two queries", 1, 2, 1, 1, 1, size, false, {}, 0},
      {"plain, tails", 2, 31, 37, 2, 2, size, false, {}, 0},
      {"whole tiles", 1, 128, 256, 1, 1, size, false, {}, 0},
      {"four tiles of keys, a warpgroup without queries", 1, 60, 400, 1, 1, size, false, {}, 0},
      {"causal, many tiles", 1, 390, 390, 1, 1, size, true, {}, 0},
      {"causal, fewer queries than keys", 1, 135, 300, 1, 1, size, true, {}, 0},
      {"causal, the first rows see nothing", 1, 260, 130, 1, 1, size, true, {}, 0},
      {"key lengths, one of them 0", 4, 40, 300, 1, 1, size, false, {300, 1, 0, 264}, 0},
      {"grouped heads, causal with key lengths", 2, 140, 140, 4, 2, size, true, {140, 11}, 0},
      {"dropout, draws aligned", 1, 70, 272, 2, 1, size, false, {}, 0.25f},
      {"dropout, draws not aligned", 2, 133, 147, 2, 1, size, true, {147, 40}, 0.5f},
      {"no key", 2, 3, 0, 2, 2, size, false, {}, 0},
      {"window, causal", 1, 300, 300, 1, 1, size, true, {}, 0, {.window = 120}},
      {"window both ways, lengths", 2, 60, 390, 1, 1, size, false, {390, 170}, 0, {.window = 70}},
      {"window, dropout", 1, 140, 200, 1, 1, size, true, {}, 0.25f, {.window = 90}},
  };
}

TEST_P(AttentionHopperTest, EqualsTheDefinition) {
  for (const AttentionCase& c : cases(GetParam())) check<BFloat16>(c, kTolerance, kAligned);
}

// Backward with a block for each head, which size 128 does not have.
TEST_P(AttentionHopperTest, EqualsTheDefinitionWithABlockForEachHead) {
  if (GetParam() != 64) GTEST_SKIP() << "only size 64 has it";
  cuda::choose_hopper_attention(HopperAttention::kHeads);
  for (const AttentionCase& c : cases(64)) check<BFloat16>(c, kTolerance, kAligned);
}

// The norm of the difference.
double relative_error(const std::vector<double>& x, const std::vector<double>& y) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return norm == 0 ? difference : std::sqrt(difference / norm);
}

struct Results {
  std::vector<double> out, log_sum_exp, dq, dk, dv;
  auto all() const { return std::tie(out, log_sum_exp, dq, dk, dv); }
};

// Outputs hold NaN before.
Results compute(const Problem<BFloat16>& p, HopperAttention kernels) {
  cuda::choose_hopper_attention(kernels);
  const auto poisoned = [](Operand<BFloat16> x) {
    x.data.assign(x.data.size(), BFloat16(std::numeric_limits<float>::quiet_NaN()));
    return x;
  };
  Forward<BFloat16> f(p);
  f.out = poisoned(f.out);
  f.log_sum_exp.assign(f.log_sum_exp.size(), std::numeric_limits<float>::quiet_NaN());
  kernels::attention<BFloat16>(
      TestDevice{}, p.shape,
      {p.q.input(), p.k.input(), p.v.input(), f.out.output(), f.log_sum_exp.data()});
  Operand<BFloat16> dq = poisoned(p.like_q(6)), dk = poisoned(p.like_k(7)),
                    dv = poisoned(p.like_v(8));
  AttentionBackward<BFloat16> args = backward_args(p, f);
  args.dq = dq.output(), args.dk = dk.output(), args.dv = dv.output();
  kernels::attention_backward(TestDevice{}, p.shape, args);
  // What lies between rows stays NaN.
  const auto numbers = [](const Operand<BFloat16>& x, int64_t batch) {
    finish_work();
    std::vector<double> result;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < x.rows; ++t) {
        for (int64_t i = 0; i < x.heads * x.size; ++i) result.push_back(x.at(b, t, 0, i));
      }
    }
    return result;
  };
  const int64_t n = p.shape.batch;
  return {numbers(f.out, n), widen(f.log_sum_exp), numbers(dq, n), numbers(dk, n), numbers(dv, n)};
}

TEST_P(AttentionHopperTest, ComesCloseToTheOtherKernelsAndToItself) {
  const int64_t size = GetParam();
  const AttentionCase some[] = {
      {"causal, many tiles", 1, 390, 390, 1, 1, size, true, {}, 0},
      {"a row sees nothing, grouped heads", 2, 140, 135, 2, 1, size, true, {135, 0}, 0},
      {"dropout, lengths", 2, 70, 270, 1, 1, size, false, {270, 135}, 0.2f},
  };
  for (const AttentionCase& c : some) {
    SCOPED_TRACE(c.name);
    const Problem<BFloat16> p(c, kAligned);
    const Results other = compute(p, HopperAttention::kNowhere),
                  hopper = compute(p, HopperAttention::kTwoKernels),
                  again = compute(p, HopperAttention::kTwoKernels);
    EXPECT_TRUE(hopper.all() == again.all()) << "not the same bits each time";
    if (size == 64) {
      const Results heads = compute(p, HopperAttention::kHeads),
                    heads_again = compute(p, HopperAttention::kHeads);
      EXPECT_TRUE(heads.all() == heads_again.all()) << "not the same bits each time";
      EXPECT_LT(relative_error(heads.dq, other.dq), 1e-2);
      EXPECT_LT(relative_error(heads.dk, other.dk), 1e-2);
      EXPECT_LT(relative_error(heads.dv, other.dv), 1e-2);
    }
    EXPECT_LT(relative_error(hopper.out, other.out), 1e-2);
    for (size_t i = 0; i < other.log_sum_exp.size(); ++i) {
      if (std::isinf(other.log_sum_exp[i])) {
        ASSERT_EQ(hopper.log_sum_exp[i], other.log_sum_exp[i]) << i;
      } else {
        ASSERT_NEAR(hopper.log_sum_exp[i], other.log_sum_exp[i], 1e-3) << i;
      }
    }
    EXPECT_LT(relative_error(hopper.dq, other.dq), 1e-2);
    EXPECT_LT(relative_error(hopper.dk, other.dk), 1e-2);
    EXPECT_LT(relative_error(hopper.dv, other.dv), 1e-2);
  }
}

// Keys beyond a key length are never seen, whatever they hold.
TEST_P(AttentionHopperTest, PaddingMayHoldAnything) {
  const AttentionCase c = {"padding", 1, 140, 290, 1, 1, GetParam(), false, {170}, 0};
  Problem<BFloat16> p(c, kAligned);
  const Results clean = compute(p, HopperAttention::kTwoKernels),
                clean_heads = compute(p, HopperAttention::kHeads);
  for (int64_t j = 170; j < 290; ++j) {
    p.k.data[p.k.index(0, j, 0, 1)] = BFloat16(std::numeric_limits<float>::quiet_NaN());
    p.v.data[p.v.index(0, j, 0, 1)] = BFloat16(std::numeric_limits<float>::infinity());
  }
  const Results padded = compute(p, HopperAttention::kTwoKernels);
  EXPECT_TRUE(padded.out == clean.out);
  EXPECT_TRUE(padded.dq == clean.dq);
  EXPECT_TRUE(padded.dk == clean.dk);
  EXPECT_TRUE(padded.dv == clean.dv);
  const Results padded_heads = compute(p, HopperAttention::kHeads);
  EXPECT_TRUE(padded_heads.dq == clean_heads.dq);
  EXPECT_TRUE(padded_heads.dk == clean_heads.dk);
  EXPECT_TRUE(padded_heads.dv == clean_heads.dv);
}

TEST_P(AttentionHopperTest, DoesNotHideNan) {
  Problem<BFloat16> p({"nan", 1, 20, 90, 1, 1, GetParam(), false, {}, 0}, kAligned);
  p.k.data[p.k.index(0, 71, 0, 2)] = BFloat16(std::numeric_limits<float>::quiet_NaN());
  const Forward<BFloat16> f(p);
  for (int64_t t = 0; t < 20; ++t) EXPECT_TRUE(std::isnan(f.out.at(0, t, 0, 0))) << t;
}

TEST_P(AttentionHopperTest, LeavesOutWhatIsNotAskedFor) {
  const Problem<BFloat16> p({"parts", 2, 133, 140, 4, 2, GetParam(), true, {}, 0.1f}, kAligned);
  const Forward<BFloat16> f(p);
  const Naive naive(p);
  const double units = kTolerance.gradients;
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

}  // namespace
}  // namespace tapestry
