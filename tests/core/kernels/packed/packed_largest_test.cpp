// The largest logit by way of a screen of integers: always the one that all logits in float32 give.
#include <limits>

#include "core/kernels/packed/packed_top_logits.h"
#include "core/kernels/top_logits.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Classifier {
  Classifier(int64_t rows, int64_t in, int64_t vocab)
      : rows(rows),
        in(in),
        vocab(vocab),
        x(random_values<float>(rows * in, 1)),
        w(random_values<float>(vocab * in, 2)),
        bias(random_values<float>(vocab, 3)),
        banned(random_ints((vocab + 31) / 32, 5, 1 << 30)) {}

  PackedLinear product(const PackedMatrix& matrix) const {
    return {.rows = rows, .x = x.data(), .weight = matrix, .bias = bias.data(), .softcap = softcap};
  }

  Values<int32_t> by_all_logits() const {
    const PackedMatrix matrix(WeightFormat::kFloat32, w.data(), vocab, in);
    Values<double> top(static_cast<size_t>(3 * rows));
    kernels::packed_top_logits(Cpu{}, product(matrix), 1, banned.data(), top.data());
    Values<int32_t> tokens;
    for (size_t r = 0; r < top.size(); r += 3) {
      tokens.push_back(std::isfinite(top[r]) ? static_cast<int32_t>(top[r + 1])
                                             : kernels::kNotFinite);
    }
    return tokens;
  }

  Values<int32_t> by_screen() const {
    const PackedMatrix matrix(WeightFormat::kFloat32, w.data(), vocab, in);
    const LogitScreen screen(matrix);
    Values<int32_t> tokens(static_cast<size_t>(rows + 1), -77);
    kernels::packed_largest(Cpu{}, product(matrix), screen, banned.data(), tokens.data());
    EXPECT_EQ(tokens.back(), -77);
    tokens.pop_back();
    return tokens;
  }

  void forbid(int64_t token) {
    int32_t& word = banned[static_cast<size_t>(token / 32)];
    word = static_cast<int32_t>(static_cast<uint32_t>(word) | uint32_t{1} << (token % 32));
  }

  int64_t rows, in, vocab;
  Values<float> x, w, bias;
  Values<int32_t> banned;
  double softcap = 0;
};

TEST(PackedLargestTest, IsTheLargestOfAllLogits) {
  for (const auto& [rows, vocab] : {std::pair{1, 1}, {3, 31}, {15, 257}, {113, 4}, {60, 20000}}) {
    for (const int64_t in : {1, 16, 33, 128}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << vocab << ", " << in << " columns");
      const Classifier c(rows, in, vocab);
      expect_same_for_any_threads([&] {
        const Values<int32_t> found = c.by_screen();
        EXPECT_EQ(found, c.by_all_logits());
        return found;
      });
    }
  }
}

// Logits that int8 cannot tell apart: the winner is one of many that are nearly equal.
TEST(PackedLargestTest, DecidesBetweenNearlyEqualLogits) {
  for (const int64_t alike : {2, 20, 300}) {  // the last is more than the screen lets through
    Classifier c(40, 64, 1000);
    for (int64_t v = 0; v < alike; ++v) {
      float* const row = c.w.data() + (3 * v + 7) % c.vocab * c.in;
      std::copy_n(c.w.data() + 500 * c.in, c.in, row);
      row[v % c.in] *= 1 + 1e-5F * static_cast<float>(v % 7);
      c.bias[static_cast<size_t>((3 * v + 7) % c.vocab)] = c.bias[500] = 20;
    }
    EXPECT_EQ(c.by_screen(), c.by_all_logits()) << alike;
  }
}

TEST(PackedLargestTest, OfEqualLogitsTheLowestTokenWins) {
  Classifier c(9, 32, 200);
  for (const int64_t v : {35, 36, 150, 199}) {
    std::copy_n(c.w.data() + 199 * c.in, c.in, c.w.data() + v * c.in);
    c.bias[static_cast<size_t>(v)] = 50;
  }
  std::fill(c.banned.begin(), c.banned.end(), 0);
  c.forbid(35);
  EXPECT_EQ(c.by_screen(), Values<int32_t>(9, 36));
}

// Behind a low cap many logits are equal, and the lowest token wins although another one had the
// largest number.
TEST(PackedLargestTest, CapsLogits) {
  size_t changed = 0;
  for (const double softcap : {0.05, 0.5, 2.0, 30.0, 1e6}) {
    SCOPED_TRACE(softcap);
    for (const auto& [rows, vocab] : {std::pair{3, 31}, {15, 257}, {60, 20000}}) {
      Classifier c(rows, 33, vocab);
      const Values<int32_t> uncapped = c.by_screen();
      c.softcap = softcap;
      const Values<int32_t> found = c.by_screen();
      EXPECT_EQ(found, c.by_all_logits());
      changed += found != uncapped;
    }
  }
  EXPECT_GT(changed, 0U);
}

// Two logits far beyond the cap: the integers tell them apart, their capped values are one number.
TEST(PackedLargestTest, OfEqualCappedLogitsTheLowestTokenWins) {
  Classifier c(1, 32, 200);
  std::fill(c.banned.begin(), c.banned.end(), 0);
  std::fill(c.bias.begin(), c.bias.end(), 0.0F);
  double square = 0;
  for (const float x : c.x) square += double{x} * x;
  for (float& w : c.w) w *= 1e-3F;
  for (const auto& [token, logit] : {std::pair{35, 10.0}, {150, 12.0}}) {
    for (int64_t i = 0; i < c.in; ++i) {
      c.w[static_cast<size_t>(token * c.in + i)] =
          static_cast<float>(logit / square * c.x[static_cast<size_t>(i)]);
    }
  }
  EXPECT_EQ(c.by_screen(), Values<int32_t>(1, 150));
  c.softcap = 0.5;
  EXPECT_EQ(c.by_screen(), Values<int32_t>(1, 35));
  EXPECT_EQ(c.by_all_logits(), c.by_screen());
}

// A scale of int8 that one outlier takes for itself rounds the rest of its row to nothing.
TEST(PackedLargestTest, OutliersDoNotMislead) {
  Classifier c(30, 48, 500);
  for (int64_t r = 0; r < c.rows; ++r) c.x[static_cast<size_t>(r * c.in + r % c.in)] *= 3000;
  for (int64_t v = 0; v < c.vocab; v += 3) c.w[static_cast<size_t>(v * c.in + v % 7)] *= 1000;
  EXPECT_EQ(c.by_screen(), c.by_all_logits());
}

TEST(PackedLargestTest, NothingLeftAndNothingFinite) {
  Classifier none(3, 20, 70);
  for (int64_t v = 0; v < none.vocab; ++v) none.forbid(v);
  EXPECT_EQ(none.by_screen(), Values<int32_t>(3, kernels::kNoToken));
  EXPECT_EQ(none.by_all_logits(), none.by_screen());

  // A row of x, a row of W, a product, or a bias. -inf is no answer, but no fault either.
  const auto with = [](auto change) {
    Classifier c(3, 20, 70);
    change(c);
    EXPECT_EQ(c.by_screen(), c.by_all_logits());
    return c.by_screen();
  };
  constexpr int32_t kBad = kernels::kNotFinite;
  EXPECT_EQ(with([](Classifier& c) { c.x[20 + 5] = std::nanf(""); })[1], kBad);
  EXPECT_EQ(with([](Classifier& c) { c.x[20 + 5] = -kInfinity; })[1], kBad);
  EXPECT_EQ(with([](Classifier& c) { c.w[20 * 69 + 3] = std::nanf(""); })[0], kBad);
  EXPECT_EQ(with([](Classifier& c) { c.bias[69] = kInfinity; })[2], kBad);
  EXPECT_EQ(with([](Classifier& c) {
              std::fill_n(c.x.begin(), 20, 1e30F);
              std::fill_n(c.w.begin() + 20 * 69, 20, 1e30F);
            })[0],
            kBad);
  EXPECT_GE(with([](Classifier& c) { c.bias[0] = -kInfinity; })[0], 0);
  with([](Classifier& c) { std::fill(c.x.begin(), c.x.end(), 0.0F); });
}

// What makes it fast: of rows that have a clear winner few candidates are left.
TEST(LogitScreenTest, FewAreLeft) {
  const Classifier c(20, 128, 5000);
  const PackedMatrix matrix(WeightFormat::kFloat32, c.w.data(), c.vocab, c.in);
  const LogitScreen screen(matrix);
  Values<float> z(static_cast<size_t>(c.rows * c.vocab));
  PackedLinear product = c.product(screen.rounded());
  product.y = z.data();
  kernels::packed_linear(Cpu{}, product);
  size_t left = 0;
  for (int64_t r = 0; r < c.rows; ++r) {
    const auto found = screen.candidates(c.x.data() + r * c.in, z.data() + r * c.vocab,
                                         {.most = c.vocab, .softcap = r % 2 == 0 ? 0.0 : 60.0});
    EXPECT_FALSE(found.empty());
    EXPECT_TRUE(std::ranges::is_sorted(found));
    left += found.size();
  }
  EXPECT_LT(left, 20U * 20);
}

}  // namespace
}  // namespace tapestry
