// What a tape records, when it frees memory, and how it fails.
#include "autograd/tape.h"

#include <thread>

#include "core/allocator.h"
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::distance;
using test::doubles;
using test::error_of;
using test::ints;
using test::parameter;
using test::uniform;

// ---- What is recorded

TEST(Tape, ValueUsedSeveralTimesAddsUp) {
  const Var x = Var::parameter(doubles({2, -3}, {2}));
  Tape tape;
  const Var square = x * x;
  square.retain_grad();
  tape.backward(sum(square * square + 5.0 * x + square));  // x^4 + x^2 + 5x
  EXPECT_LT(distance(x.grad(), doubles({4 * 8 + 4 + 5, 4 * -27 - 6 + 5}, {2})), 1e-12);
  EXPECT_LT(distance(square.grad(), doubles({2 * 4 + 1, 2 * 9 + 1}, {2})), 1e-12);
}

TEST(Tape, FrozenInputGetsNothing) {
  const Var x = parameter({2, 3}, 1), w = parameter({4, 3}, 2);
  w.set_requires_grad(false);
  Tape tape;
  tape.backward(sum(linear(x, w)));
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(x.grad().defined());
}

TEST(Tape, NothingIsRecordedWhenEveryInputIsFrozenOrConstant) {
  const Var frozen = parameter({2, 3}, 1);
  frozen.set_requires_grad(false);
  const Var constant = uniform({2, 3}, 2);
  Tape tape;
  const Var y = frozen * constant + relu(constant);
  EXPECT_EQ(tape.size(), 0u);
  EXPECT_FALSE(y.needs_grad());
  frozen.set_requires_grad(true);
  const Var z = frozen * constant;
  EXPECT_EQ(tape.size(), 1u);
  EXPECT_TRUE(z.needs_grad());
}

TEST(Tape, ObserversWalkBackOverWhatIsRecordedOnly) {
  struct Names : TapeObserver {
    Names() : TapeObserver(/*backward=*/true) {}
    void computed(const TapeOperation&, std::span<const Var* const>, std::span<const Var* const>,
                  bool recorded) override {
      kept.push_back(recorded);
    }
    void walked_back(const TapeOperation& operation,
                     std::span<const std::shared_ptr<Gradient>>) override {
      back.push_back(operation.number);
    }
    std::vector<bool> kept;
    std::vector<int64_t> back;
  };
  const Var x = parameter({3}, 1), constant = uniform({3}, 2);
  Names names;
  relu(x);  // without a tape
  Tape tape;
  const Var y = sum(x * x);
  relu(constant);
  tape.backward(y);
  EXPECT_EQ(names.kept, (std::vector<bool>{false, true, true, false}));
  ASSERT_EQ(names.back.size(), 2u);
  EXPECT_EQ(names.back[0], names.back[1] + 1);
}

// The gradient table would not notice a wrong factor.
TEST(Tape, SumsAndMeansHaveTheirValues) {
  const Var x = Var(doubles({1, 2, 3, 5, 8, 13}, {2, 3}));
  EXPECT_EQ(sum(x).value().item(), 32);
  EXPECT_EQ(mean(x).value().item(), 32.0 / 6);
  EXPECT_EQ(sum(x, 0).value().to_vector<double>(), (std::vector<double>{6, 10, 16}));
  EXPECT_EQ(mean(x, 0).value().to_vector<double>(), (std::vector<double>{3, 5, 8}));
  EXPECT_EQ(sum(x, -1).value().to_vector<double>(), (std::vector<double>{6, 26}));
  EXPECT_LT(distance(mean(x, 1).value(), doubles({2, 26.0 / 3}, {2})), 1e-14);
}

TEST(Tape, AnOrderOfOneAxisChangesNothing) {
  const Var x = parameter({3}, 1), weights = uniform({3}, 2);
  Tape tape;
  const Var y = permute(x, {0});
  EXPECT_TRUE(test::same_bits(y.value(), x.value()));
  tape.backward(sum(y * weights));
  EXPECT_TRUE(test::same_bits(x.grad(), weights.value()));
}

TEST(Tape, WithoutOneNothingIsRecordedAndDropoutIsTheIdentity) {
  const Var x = parameter({50}, 1), gamma = parameter({50}, 2);
  EXPECT_EQ(Tape::current(), nullptr);
  EXPECT_FALSE((x * x).needs_grad());
  EXPECT_TRUE(test::same_bits(dropout(x, 0.9).value(), x.value()));
  EXPECT_TRUE(test::same_bits(residual_norm(x, x, gamma, {}, {.dropout = 0.9}).normed.value(),
                              residual_norm(x, x, gamma, {}, {}).normed.value()));
  const Var q = parameter({1, 4, 8}, 3);
  EXPECT_TRUE(test::same_bits(attention(q, q, q, {.dropout = 0.9}).value(),
                              attention(q, q, q, {}).value()));
  const Tensor ids = ints({1, 0}, {1, 2});
  const Var table = parameter({2, 8}, 4);
  EXPECT_TRUE(test::same_bits(embedding(ids, table, {}, {.dropout = 0.9}).value(),
                              embedding(ids, table).value()));
}

TEST(Tape, DropoutRepeatsByItsKeyAndKeepsTheMean) {
  const int64_t n = 100000;
  const Var x = Tensor::full({n}, 1.0, DType::kFloat64);
  const auto draw = [&](PhiloxKey key) {
    Tape tape(key);
    return dropout(x, 0.25).value();
  };
  const Tensor first = draw({.seed = 1, .step = 7, .stream = 0});
  EXPECT_TRUE(test::same_bits(first, draw({.seed = 1, .step = 7, .stream = 0})));
  EXPECT_FALSE(test::same_bits(first, draw({.seed = 1, .step = 8, .stream = 0})));
  EXPECT_FALSE(test::same_bits(first, draw({.seed = 2, .step = 7, .stream = 0})));
  EXPECT_FALSE(test::same_bits(first, draw({.seed = 1, .step = 7, .stream = 1})));
  double kept = 0;
  for (const double value : first.to_vector<double>()) {
    if (value == 0) continue;
    EXPECT_DOUBLE_EQ(value, 1 / 0.75);
    ++kept;
  }
  EXPECT_NEAR(kept / n, 0.75, 4 * std::sqrt(0.25 * 0.75 / n));  // 4 standard deviations
}

TEST(Tape, EachRandomOperationOfAPassHasItsOwnDraws) {
  const Var x = Tensor::full({1000}, 1.0, DType::kFloat64);
  Tape tape({.seed = 1, .step = 7, .stream = 0});
  const Tensor first = dropout(x, 0.5).value();
  EXPECT_FALSE(test::same_bits(first, dropout(x, 0.5).value()));
}

TEST(Tape, InnermostTapeRecords) {
  const Var x = parameter({3}, 1);
  Tape outer;
  const Var y = x * x;
  EXPECT_EQ(Tape::current(), &outer);
  {
    Tape inner;
    EXPECT_EQ(Tape::current(), &inner);
    const Var z = exp(x);
    EXPECT_EQ(inner.size(), 1u);
    EXPECT_EQ(outer.size(), 1u);
    inner.backward(sum(z));
    EXPECT_LT(distance(x.grad(), exp(Var(x.value())).value()), 1e-15);
  }
  EXPECT_EQ(Tape::current(), &outer);
  x.zero_grad();
  outer.backward(sum(y));
  EXPECT_LT(distance(x.grad(), (2.0 * Var(x.value())).value()), 1e-15);
}

// As in checkpointing: the inner pass leaves a gradient in a value of the outer tape, which passes
// it on.
TEST(Tape, InnerTapeReachesValuesOfTheOuter) {
  const Var x = parameter({3}, 1);
  Tape outer;
  const Var y = x * x;
  const Var w = 3.0 * y;
  {
    Tape inner;
    inner.backward(sum(exp(y)));
  }
  outer.backward(sum(w));  // 3 x^2 + exp(x^2)
  const auto values = x.value().to_vector<double>(), gradient = x.grad().to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i];
    EXPECT_NEAR(gradient[i], 6 * v + std::exp(v * v) * 2 * v, 1e-13);
  }
}

TEST(Tape, BelongsToItsThread) {
  Tape tape;
  Tape* seen = &tape;
  std::thread([&] { seen = Tape::current(); }).join();
  EXPECT_EQ(seen, nullptr);
}

TEST(Tape, UnusedValuesGetNoGradient) {
  const Var x = parameter({3}, 1), y = parameter({3}, 2);
  Tape tape;
  const Var unused = exp(y);
  unused.retain_grad();
  tape.backward(sum(x * x));
  EXPECT_FALSE(unused.grad().defined());
  EXPECT_FALSE(y.grad().defined());
}

TEST(Tape, RetainedGradientStaysAndOthersGo) {
  const Var x = parameter({3}, 1);
  Tape tape;
  const Var kept = exp(x), gone = 2.0 * kept;
  kept.retain_grad();
  tape.backward(sum(gone));
  EXPECT_LT(distance(kept.grad(), Tensor::full({3}, 2, DType::kFloat64)), 1e-15);
  EXPECT_FALSE(gone.grad().defined());
}

TEST(Tape, SeedScalesTheGradient) {
  const Var x = parameter({3}, 1);
  Tape tape;
  tape.backward(sum(x), 2.5);
  EXPECT_LT(distance(x.grad(), Tensor::full({3}, 2.5, DType::kFloat64)), 1e-15);
}

// Otherwise the caller's tensor would become the leaf's gradient, and the next pass would add to
// it.
TEST(Tape, LeavesTheGivenGradientAsItIs) {
  const Var x = parameter({3}, 1), y = parameter({3}, 2);
  const Tensor given = uniform({3}, 3), copy = given.clone();
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape;
    tape.backward(x + y, given);
  }
  EXPECT_TRUE(test::same_bits(given, copy));
  EXPECT_LT(distance(x.grad(), (2.0 * Var(copy)).value()), 1e-15);
  EXPECT_LT(distance(y.grad(), (2.0 * Var(copy)).value()), 1e-15);
}

TEST(Tape, ZeroGradForgets) {
  const Var x = parameter({3}, 1);
  for (int pass = 0; pass < 3; ++pass) {
    x.zero_grad();
    EXPECT_FALSE(x.grad().defined());
    Tape tape;
    tape.backward(sum(x * x));
    EXPECT_LT(distance(x.grad(), (2.0 * Var(x.value())).value()), 1e-15);
  }
}

// ---- Memory

constexpr int64_t kElements = 1 << 15;
constexpr int64_t kBytes = kElements * 8;

TEST(TapeMemory, BackwardFreesActivationsAndGradientsOnTheWay) {
  constexpr int kLayers = 32;
  const Var x = parameter({kElements}, 1);
  const int64_t before = host_memory().bytes_in_use;
  int64_t near_the_start = 0;
  {
    Tape tape;
    Var y = 0.5 * x;
    Tape::record({&y}, y, [&, dy = y.gradient()](Tensor d) {
      near_the_start = host_memory().bytes_in_use;
      dy->accept(std::move(d));
    });
    for (int i = 0; i < kLayers; ++i) y = tanh(y);
    const int64_t forward = host_memory().bytes_in_use - before;
    EXPECT_GE(forward, kLayers * kBytes);
    const Var loss = sum(y);
    y = {};
    reset_peak_bytes();
    tape.backward(loss);
    EXPECT_EQ(tape.size(), 0u);
    // Two gradients at a time, not one for each of the 32 layers.
    EXPECT_LT(host_memory().peak_bytes - before - forward, 3 * kBytes);
    // At the first operation the activations of the 32 layers after it are gone.
    EXPECT_LT(near_the_start - before, 4 * kBytes);
    // The tape is still alive: only x's gradient is left.
    EXPECT_LT(host_memory().bytes_in_use - before, 2 * kBytes);
  }
  x.zero_grad();
}

TEST(TapeMemory, ForgottenTapeFreesWhatItHeld) {
  const Var x = parameter({kElements}, 1);
  const int64_t before = host_memory().bytes_in_use;
  {
    Tape tape;
    Var y = x;
    for (int i = 0; i < 8; ++i) y = sigmoid(y);
  }
  EXPECT_EQ(host_memory().bytes_in_use, before);
}

TEST(TapeMemory, NothingIsSavedWithoutATape) {
  const Var x = parameter({kElements}, 1);
  const int64_t before = host_memory().bytes_in_use;
  Var y = x;
  for (int i = 0; i < 8; ++i) y = sigmoid(y);
  EXPECT_LT(host_memory().bytes_in_use - before, 2 * kBytes);
}

// One thread: with several, chance decides which one needs scratch memory first.
TEST(TapeMemory, WarmStepTakesNothingFromTheSystem) {
  const test::WithThreads one(1);
  const Var table = parameter({40, 32}, 1), w = parameter({96, 32}, 2), b = parameter({96}, 3);
  const Var gamma = parameter({32}, 4), beta = parameter({32}, 5);
  const Tensor ids = test::uniform_ids({4, 10}, 6, 0, 40);
  const auto step = [&](uint32_t number) {
    for (const Var& x : {table, w, b, gamma, beta}) x.zero_grad();
    Tape tape({.seed = 1, .step = number, .stream = 0});
    const Var x = embedding(ids, table, {}, {.dropout = 0.1});
    const Var mixed = attention(linear(x, w, b), {.heads = 4, .causal = true, .dropout = 0.1});
    const Var y = residual_norm(gelu(mixed), x, gamma, beta, {.dropout = 0.1}).normed;
    const Var z = concat({slice(y, 2, 16, 32), slice(y, 2, 0, 16)}, 2);
    tape.backward(linear_cross_entropy(z, table, {}, ids).loss);
  };
  for (uint32_t i = 0; i < 3; ++i) step(i);
  const MemoryStats warm = host_memory();
  for (uint32_t i = 3; i < 6; ++i) step(i);
  EXPECT_EQ(host_memory().system_calls, warm.system_calls);
  EXPECT_EQ(host_memory().bytes_in_use, warm.bytes_in_use);
}

}  // namespace
}  // namespace tapestry
