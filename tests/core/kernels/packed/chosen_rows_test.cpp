// Classifiers of which each row of x sees only some rows: gathered packs, and the top-k of choices.
#include "core/kernels/packed/packed_top_logits.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

using ChosenPlaces = std::vector<int32_t>;

// Ascending numbers below `count`, about one in `step`.
ChosenPlaces chosen_places(int64_t count, int32_t step, uint64_t seed) {
  ChosenPlaces places;
  for (int64_t i = 0; i < count; ++i) {
    if (philox_below({.seed = seed}, static_cast<uint64_t>(i), static_cast<uint64_t>(step)) == 0) {
      places.push_back(static_cast<int32_t>(i));
    }
  }
  if (places.empty()) places.push_back(static_cast<int32_t>(count - 1));
  return places;
}

ChosenPlaces all_places(int64_t count) { return chosen_places(count, 1, 0); }

struct ChosenClassifier {
  ChosenClassifier(WeightFormat format, int64_t rows, int64_t in, int64_t vocab)
      : rows(rows),
        x(random_values<float>(rows * in, 1)),
        w(random_values<float>(vocab * in, 2)),
        bias(random_values<float>(vocab, 3)),
        matrix(format, w.data(), vocab, in) {}

  Values<float> product(const PackedMatrix& part, const float* of_bias) const {
    Values<float> y(static_cast<size_t>(rows * part.rows()));
    kernels::packed_linear(Cpu{}, {rows, x.data(), part, of_bias, Activation::kNone, y.data()});
    return y;
  }
  PackedLinear logits(const PackedMatrix& part, const float* of_bias) const {
    return {.rows = rows, .x = x.data(), .weight = part, .bias = of_bias, .softcap = 30};
  }
  Values<double> top(int64_t count, ChosenRows chosen, const int32_t* banned = nullptr) const {
    Values<double> found(static_cast<size_t>(rows * (1 + 2 * count)));
    kernels::packed_top_logits(Cpu{}, logits(matrix, bias.data()), count, banned, found.data(),
                               chosen);
    return found;
  }

  int64_t rows;
  Values<float> x, w, bias;
  PackedMatrix matrix;
};

class ChosenRowsTest : public testing::TestWithParam<WeightFormat> {};

TEST_P(ChosenRowsTest, GatheredRowsHaveTheBitsOfTheWhole) {
  for (const auto& [in, vocab] : {std::pair{1, 1}, {31, 33}, {64, 257}, {100, 1000}}) {
    SCOPED_TRACE(testing::Message() << in << " columns, " << vocab << " rows");
    const ChosenClassifier c(GetParam(), 17, in, vocab);
    const ChosenPlaces places = chosen_places(vocab, 3, 5);
    const PackedMatrix part(c.matrix, places);
    ASSERT_EQ(part.rows(), std::ssize(places));
    EXPECT_EQ(part.format(), GetParam());
    Values<float> bias;
    for (const int32_t place : places) bias.push_back(c.bias[static_cast<size_t>(place)]);
    const Values<float> whole = c.product(c.matrix, c.bias.data()),
                        some = c.product(part, bias.data());
    Values<float> row(static_cast<size_t>(in)), other = row;
    for (size_t i = 0; i < places.size(); ++i) {
      c.matrix.read_row(places[i], row.data());
      part.read_row(static_cast<int64_t>(i), other.data());
      EXPECT_EQ(row, other) << places[i];
      for (int64_t r = 0; r < c.rows; ++r) {
        ASSERT_EQ(some[static_cast<size_t>(r) * places.size() + i],
                  whole[static_cast<size_t>(r * vocab + places[i])])
            << "row " << r << ", token " << places[i];
      }
    }
  }
}

TEST_P(ChosenRowsTest, ChoosingAllChangesNoBit) {
  const ChosenClassifier c(GetParam(), 70, 48, 333);
  const ChosenPlaces all = all_places(333);
  const std::vector<std::span<const int32_t>> chosen(70, all);
  EXPECT_EQ(c.top(5, chosen), c.top(5, {}));
}

// The others count neither in the sum nor among the best, whatever the other rows may choose.
TEST_P(ChosenRowsTest, ARowSeesItsOwnTokens) {
  const int64_t vocab = 300, count = 4;
  const ChosenClassifier c(GetParam(), 30, 40, vocab);
  std::vector<ChosenPlaces> lists;
  for (uint64_t r = 0; r < 30; ++r) lists.push_back(chosen_places(vocab, r % 2 == 0 ? 9 : 200, r));
  std::vector<std::span<const int32_t>> chosen(lists.begin(), lists.end());
  Values<int32_t> banned((vocab + 31) / 32, 0);
  banned[2] = 0x0ff0;  // 68 to 75
  const auto is_banned = [](int32_t token) { return token >= 68 && token <= 75; };
  const Values<double> found = c.top(count, chosen, banned.data());
  Values<float> z(static_cast<size_t>(30 * vocab));
  PackedLinear all = c.logits(c.matrix, c.bias.data());
  all.y = z.data();
  kernels::packed_linear(Cpu{}, all);
  for (size_t r = 0; r < 30; ++r) {
    double sum = 0;
    std::vector<std::pair<double, int32_t>> best;
    for (const int32_t token : lists[r]) {
      const double logit = 30 * std::tanh(z[r * vocab + static_cast<size_t>(token)] / 30);
      sum += std::exp(logit);
      if (!is_banned(token)) best.emplace_back(-logit, token);
    }
    std::ranges::sort(best);
    const double* const top = found.data() + r * (1 + 2 * count);
    EXPECT_NEAR(top[0], std::log(sum), 1e-4);
    for (size_t k = 0; k < count; ++k) {
      const int32_t token = k < best.size() ? best[k].second : -1;
      EXPECT_EQ(top[1 + 2 * k], token) << "row " << r << ", rank " << k;
    }
  }
}

TEST_P(ChosenRowsTest, TheLargestIsTheBestOne) {
  if (rounds_rows(GetParam())) GTEST_SKIP() << "without a screen";
  for (const int32_t step : {1, 7, 150}) {
    const ChosenClassifier c(GetParam(), 40, 64, 700);
    std::vector<ChosenPlaces> lists;
    for (uint64_t r = 0; r < 40; ++r) lists.push_back(chosen_places(700, step, r));
    std::vector<std::span<const int32_t>> chosen(lists.begin(), lists.end());
    const LogitScreen screen(c.matrix);
    Values<int32_t> largest(40);
    kernels::packed_largest(Cpu{}, c.logits(c.matrix, c.bias.data()), screen, nullptr,
                            largest.data(), chosen);
    const Values<double> top = c.top(1, chosen);
    for (size_t r = 0; r < 40; ++r) EXPECT_EQ(largest[r], top[3 * r + 1]) << "row " << r;
  }
}

TEST_P(ChosenRowsTest, AScreenOfSomeRowsIsThatOfTheirs) {
  if (rounds_rows(GetParam())) GTEST_SKIP() << "without a screen";
  const ChosenClassifier c(GetParam(), 40, 64, 700);
  const ChosenPlaces places = chosen_places(700, 4, 3);
  const PackedMatrix part(c.matrix, places);
  const LogitScreen gathered(LogitScreen(c.matrix), places), own(part);
  Values<int32_t> a(40), b(40);
  kernels::packed_largest(Cpu{}, c.logits(part, nullptr), gathered, nullptr, a.data());
  kernels::packed_largest(Cpu{}, c.logits(part, nullptr), own, nullptr, b.data());
  EXPECT_EQ(a, b);
}

INSTANTIATE_TEST_SUITE_P(Formats, ChosenRowsTest, testing::ValuesIn(kWeightFormats),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace tapestry
