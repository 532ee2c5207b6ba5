// Activation recomputation: the same bits as a plain run, for any function, in less memory.
#include "autograd/recompute.h"

#include <functional>

#include "core/allocator.h"
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::parameter;
using test::same_bits;
using test::uniform;

// The values that the functions below work on.
struct BlockLeaves {
  Var x = parameter({4, 6}, 1), w = parameter({6, 6}, 2), b = parameter({6}, 3);
  Var gamma = parameter({6}, 4), beta = parameter({6}, 5);

  std::vector<Var> all() const { return {x, w, b, gamma, beta}; }
};

struct BackwardPass {
  Tensor value;
  std::vector<Tensor> gradients;
};

// f(leaves, how) calls how(g) for each function g that may be recomputed.
using Recomputed = std::function<Var(std::function<Var()>)>;
using Computed = std::function<Var(const BlockLeaves&, const Recomputed&)>;

BackwardPass pass(const BlockLeaves& leaves, const Computed& f, const Recomputed& how) {
  for (const Var& leaf : leaves.all()) leaf.zero_grad();
  Tape tape({.seed = 3, .step = 4, .stream = 5});
  const Var y = f(leaves, how);
  tape.backward(y, uniform(y.shape(), 9));
  EXPECT_EQ(tape.size(), 0u);
  BackwardPass result{y.value(), {}};
  for (const Var& leaf : leaves.all()) {
    result.gradients.push_back(leaf.grad().defined() ? leaf.grad().clone() : Tensor());
  }
  return result;
}

Var plain(const std::function<Var()>& f) { return f(); }
Var recomputed(const std::function<Var()>& f) { return recompute(f); }

void expect_same_bits(const BlockLeaves& leaves, const Computed& f) {
  const BackwardPass kept = pass(leaves, f, plain), again = pass(leaves, f, recomputed);
  EXPECT_TRUE(same_bits(kept.value, again.value));
  for (size_t i = 0; i < kept.gradients.size(); ++i) {
    ASSERT_EQ(kept.gradients[i].defined(), again.gradients[i].defined()) << "leaf " << i;
    if (!kept.gradients[i].defined()) continue;
    EXPECT_TRUE(same_bits(kept.gradients[i], again.gradients[i])) << "leaf " << i;
  }
}

// A residual block: x is used twice inside, there are three random draws.
Var block(const BlockLeaves& l, const Var& x) {
  const Var h = dropout(linear(x, l.w, l.b, {.activation = Activation::kGelu}), 0.3);
  return residual_norm(dropout(h, 0.2), x, l.gamma, l.beta, {.dropout = 0.25}).normed;
}

TEST(Recompute, GivesTheBitsOfAPlainRun) {
  const BlockLeaves leaves;
  expect_same_bits(leaves, [](const BlockLeaves& l, const Recomputed& how) {
    return how([&l] { return block(l, l.x); });
  });
}

TEST(Recompute, SharedParametersAndDrawsBeforeBetweenAndAfter) {
  const BlockLeaves leaves;
  expect_same_bits(leaves, [](const BlockLeaves& l, const Recomputed& how) {
    Var x = dropout(linear(l.x, l.w), 0.1);
    for (int i = 0; i < 3; ++i) {
      x = how([&l, x] { return block(l, x); });
      x = dropout(x, 0.1);
    }
    return linear(x, l.w, l.b);
  });
}

TEST(Recompute, InputsThatOthersUseToo) {
  const BlockLeaves leaves;
  expect_same_bits(leaves, [](const BlockLeaves& l, const Recomputed& how) {
    const Var h = gelu(l.x);
    const Var first = how([&l, h] { return block(l, h) * h; });
    const Var second = how([&l, h, first] { return block(l, first) * h * l.x; });
    return first * second + h * h;
  });
}

TEST(Recompute, NestsInItself) {
  const BlockLeaves leaves;
  expect_same_bits(leaves, [](const BlockLeaves& l, const Recomputed& how) {
    return how([&l, &how] {
      const Var inner = how([&l] { return block(l, l.x); });
      return dropout(how([&l, inner] { return block(l, inner); }), 0.5);
    });
  });
}

TEST(Recompute, WhatAskedForNoGradientGetsNone) {
  const BlockLeaves leaves;
  leaves.w.set_requires_grad(false);
  leaves.x.set_requires_grad(false);  // then only parameters inside need one
  expect_same_bits(leaves, [](const BlockLeaves& l, const Recomputed& how) {
    return how([&l] { return block(l, l.x); });
  });
  EXPECT_FALSE(leaves.x.grad().defined());
  EXPECT_FALSE(leaves.w.grad().defined());
  for (const Var& leaf : leaves.all()) leaf.set_requires_grad(false);
  const Tape tape;
  EXPECT_FALSE(recompute([&] { return block(leaves, leaves.x); }).needs_grad());
  EXPECT_EQ(tape.size(), 0u);
}

TEST(Recompute, AFunctionMayReturnItsInput) {
  const BlockLeaves leaves;
  expect_same_bits(leaves, [](const BlockLeaves& l, const Recomputed& how) {
    const Var same = how([&l] { return l.x; });
    const Var with_another = how([&l] {
      gelu(l.b);  // unused
      return l.x;
    });
    return same * with_another;
  });
}

TEST(Recompute, WithoutATapeItIsThePlainCall) {
  const BlockLeaves leaves;
  const Var y = recompute([&] { return block(leaves, leaves.x); });
  EXPECT_TRUE(same_bits(y.value(), block(leaves, leaves.x).value()));
  EXPECT_FALSE(y.needs_grad());
}

TEST(Recompute, AThrowingFunctionLeavesTheTapeRecording) {
  const BlockLeaves leaves;
  Tape tape;
  EXPECT_NE(test::error_of([&] { recompute([&] { return leaves.x + leaves.w; }); }), "");
  tape.backward(sum(leaves.x));
  EXPECT_TRUE(leaves.x.grad().defined());
}

TEST(Recompute, RunningStatisticsMoveOnce) {
  const BlockLeaves leaves;
  const auto after = [&](const Recomputed& how) {
    const Tensor mean = Tensor::zeros({6}, DType::kFloat64);
    const Tensor variance = Tensor::full({6}, 1, DType::kFloat64);
    pass(
        leaves,
        [&](const BlockLeaves& l, const Recomputed& f) {
          return f([&] { return batch_norm(l.x, l.gamma, l.beta, mean, variance); });
        },
        how);
    return std::pair(mean, variance);
  };
  const auto [mean, variance] = after(plain);
  const auto [mean_again, variance_again] = after(recomputed);
  EXPECT_TRUE(same_bits(mean, mean_again));
  EXPECT_TRUE(same_bits(variance, variance_again));
}

// n blocks of m activations each: n + m of them are alive at once, not n * m.
TEST(Recompute, KeepsTheInputsOfBlocksAndTheActivationsOfOne) {
  constexpr int64_t kElements = 1 << 15, kBytes = kElements * 8;
  constexpr int kBlocks = 16, kDepth = 8;
  const Var x = parameter({kElements}, 1);
  const auto peak = [&](const Recomputed& how) {
    x.zero_grad();
    const int64_t before = host_memory().bytes_in_use;
    reset_peak_bytes();
    Tape tape;
    Var y = x;
    for (int i = 0; i < kBlocks; ++i) {
      y = how([y] {
        Var h = y;
        for (int j = 0; j < kDepth; ++j) h = tanh(h);
        return h;
      });
    }
    const Var loss = sum(y);
    y = {};
    tape.backward(loss);
    return host_memory().peak_bytes - before;
  };
  EXPECT_GE(peak(plain), kBlocks * kDepth * kBytes);
  EXPECT_LT(peak(recomputed), (kBlocks + kDepth + 4) * kBytes);
}

}  // namespace
}  // namespace tapestry
