// The Simpler Simple Recurrent Unit against its definition in other operations.
#include "autograd/ops.h"
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::distance;
using test::error_of;
using test::parameter;
using test::same_bits;
using test::uniform;

// x (B, T, 2D), bias (D), step by step.
Var composed_ssru(const Var& x, const Var& bias) {
  const int64_t rows = x.shape()[0], steps = x.shape()[1], size = bias.shape()[0];
  Var c = Var(Tensor::zeros({rows, 1, size}, x.dtype()));
  std::vector<Var> all;
  for (int64_t t = 0; t < steps; ++t) {
    const Var now = slice(x, 1, t, t + 1);
    const Var f = sigmoid(slice(now, 2, 0, size) + bias);
    c = f * c + (-f + 1.) * slice(now, 2, size, 2 * size);
    all.push_back(relu(c));
  }
  return concat(all, 1);
}

TEST(Ssru, EqualsItsDefinition) {
  const Var x = parameter({3, 5, 14}, 1), bias = parameter({7}, 2);
  const Tensor dy = uniform({3, 5, 7}, 3);
  const auto run = [&](auto forward) {
    Tape tape;
    const Var y = forward();
    std::vector<Tensor> results = {y.value().clone()};
    tape.backward(y, dy);
    for (const Var& v : {x, bias}) {
      results.push_back(v.grad().clone());
      v.zero_grad();
    }
    return results;
  };
  const auto fused = run([&] { return ssru(x, bias).out; });
  const auto expected = run([&] { return composed_ssru(x, bias); });
  for (size_t i = 0; i < fused.size(); ++i) EXPECT_LT(distance(fused[i], expected[i]), 1e-13) << i;
}

// Sequences end to end are like batch elements by themselves.
TEST(Ssru, SequencesDoNotSeeEachOther) {
  const Tensor x = uniform({1, 7, 6}, 1), bias = uniform({3}, 2);
  const auto sequences = Sequences::of_lengths(std::vector<int32_t>{2, 1, 4});
  const SsruResult together = ssru(x, bias, {.sequences = sequences, .keeps_states = true});
  for (const auto& [first, last] : {std::pair{0, 2}, std::pair{2, 3}, std::pair{3, 7}}) {
    const Tensor one = slice(Var(x), 1, first, last).value();
    EXPECT_TRUE(
        same_bits(slice(together.out, 1, first, last).value(), ssru(one, bias).out.value()));
  }
}

// Token by token, by the states of earlier ones: the same bits.
TEST(Ssru, StepsEqualTheWhole) {
  const Tensor x = uniform({2, 4, 6}, 1), bias = uniform({3}, 2);
  const Tensor whole = ssru(x, bias).out.value();
  Tensor states;
  for (int32_t t = 0; t < 4; ++t) {
    SsruOptions options{.keeps_states = true};
    if (t > 0) {
      options.states = states.reshape({1, 2, 3});
      options.key_rows = test::ints({9, 9, 9, 9, 9, 9, 9, 9}, {2, 4});
      options.key_rows.data<int32_t>()[t - 1] = 0;
      options.key_rows.data<int32_t>()[4 + t - 1] = 1;
      options.key_lengths = test::ints({t + 1, t + 1}, {2});
    }
    const SsruResult step = ssru(slice(Var(x), 1, t, t + 1), bias, options);
    EXPECT_TRUE(same_bits(step.out.value(), slice(Var(whole), 1, t, t + 1).value())) << t;
    states = step.states;
  }
}

TEST(Ssru, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_of([] {
              ssru(uniform({2, 3, 7}, 1));
            }),
            "[ssru] expected x (B, T, 2D) and a bias (D), got (2, 3, 7) and ().");
  EXPECT_EQ(error_of([] {
              ssru(uniform({2, 3, 8}, 1), uniform({3}, 2));
            }),
            "[ssru] expected x (B, T, 2D) and a bias (D), got (2, 3, 8) and (3).");
  EXPECT_EQ(error_of([] {
              const auto ends = Sequences::of_lengths(std::vector<int32_t>{2, 2});
              ssru(uniform({1, 3, 8}, 1), {}, {.sequences = ends});
            }),
            "[ssru] expected x (1, 4, 2D) for its sequences, got (1, 3, 8).");
  EXPECT_EQ(error_of([] {
              ssru(uniform({2, 1, 8}, 1), {}, {.states = uniform({1, 9, 4}, 2)});
            }),
            "[ssru] expected states (1, N, 4) of the type of x, with key_rows (2, S) and "
            "key_lengths (2), got (1, 9, 4).");
}

TEST(Ssru, OfNothingIsNothing) {
  const Var x = Var::parameter(Tensor::zeros({2, 0, 6}, DType::kFloat64));
  const Var bias = parameter({3}, 2);
  Tape tape;
  const Var y = ssru(x, bias).out;
  ASSERT_EQ(y.shape(), (Shape{2, 0, 3}));
  tape.backward(y, Tensor::zeros(y.shape(), DType::kFloat64));
  EXPECT_EQ(bias.grad().to_vector<double>(), (std::vector<double>{0, 0, 0}));
}

}  // namespace
}  // namespace tapestry
