#include "core/kernels/packed/packed_linear.h"

#include "core/base/enumerators.h"
#include "core/base/error.h"
#include "core/kernels/packed/packed_tile.h"
#include "core/kernels/packed/packed_top_logits.h"
#include "core/kernels/packed/quantize.h"
#include "core/kernels/top_logits.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

struct Problem {
  Problem(int64_t rows, int64_t in, int64_t out)
      : rows(rows),
        in(in),
        out(out),
        x(random_values<float>(rows * in, 1)),
        w(random_values<float>(out * in, 2)),
        bias(random_values<float>(out, 3)) {}

  Values<float> run(WeightFormat format, bool with_bias = true,
                    Activation activation = Activation::kNone) const {
    const PackedMatrix packed(format, w.data(), out, in);
    // One element more, to see what is written behind the last row.
    Values<float> y(static_cast<size_t>(rows * out + 1), -77);
    kernels::packed_linear(Cpu{}, {.rows = rows,
                                   .x = x.data(),
                                   .weight = packed,
                                   .bias = with_bias ? bias.data() : nullptr,
                                   .activation = activation,
                                   .y = y.data()});
    EXPECT_EQ(y.back(), -77);
    y.pop_back();
    return y;
  }

  int64_t rows, in, out;
  Values<float> x, w, bias;
};

std::vector<double> exact(const Problem& p) {
  std::vector<double> y;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < p.out; ++c) {
      double sum = p.bias[static_cast<size_t>(c)];
      for (int64_t k = 0; k < p.in; ++k) {
        sum += double{p.x[static_cast<size_t>(r * p.in + k)]} *
               double{p.w[static_cast<size_t>(c * p.in + k)]};
      }
      y.push_back(sum);
    }
  }
  return y;
}

// What int8 promises, to the bit: rounded rows, exact sums.
Values<float> rounded_product(const Problem& p) {
  std::vector<uint8_t> q(static_cast<size_t>(p.in)), v(q);
  Values<float> y;
  for (int64_t r = 0; r < p.rows; ++r) {
    const float scale = kernels::quantize_row(p.x.data() + r * p.in, p.in, 0, q.data());
    for (int64_t c = 0; c < p.out; ++c) {
      const float w_scale = kernels::quantize_row(p.w.data() + c * p.in, p.in, 0, v.data());
      int64_t sum = 0;
      for (size_t k = 0; k < q.size(); ++k) {
        sum += static_cast<int8_t>(q[k]) * static_cast<int8_t>(v[k]);
      }
      y.push_back(static_cast<float>(sum) * scale * w_scale + p.bias[static_cast<size_t>(c)]);
    }
  }
  return y;
}

// What bfloat16 promises: float32's products with rounded weights.
Problem with_rounded_weights(Problem p) {
  for (float& w : p.w) w = static_cast<float>(BFloat16(w));
  return p;
}

// What int4 promises, but for the roundings of float32: rounded groups, exact sums of each, and
// weights as they come back.
std::vector<double> int4_product(const Problem& p, bool rounds_x = true) {
  constexpr int64_t kColumns = PackedMatrix::kInt4Columns;
  const PackedMatrix packed(WeightFormat::kInt4, p.w.data(), p.out, p.in);
  Problem rounded = p;
  for (int64_t c = 0; c < p.out; ++c) packed.read_row(c, rounded.w.data() + c * p.in);
  std::vector<uint8_t> q(kColumns);
  for (int64_t r = 0; rounds_x && r < p.rows; ++r) {
    for (int64_t begin = 0; begin < p.in; begin += kColumns) {
      float* const x = rounded.x.data() + r * p.in + begin;
      const int64_t count = std::min(kColumns, p.in - begin);
      const float scale = kernels::quantize_row(x, count, 0, q.data());
      for (int64_t k = 0; k < count; ++k) {
        x[k] = scale * static_cast<float>(static_cast<int8_t>(q[static_cast<size_t>(k)]));
      }
    }
  }
  return exact(rounded);
}

Values<float> run_tile(Int8Kernel kernel, const Problem& p) {
  const kernels::IntegerTiles tiles = kernels::packed_integer_tiles(kernel);
  const PackedMatrix packed(WeightFormat::kInt8, p.w.data(), p.out, p.in);
  const int64_t padded = kernels::padded_bytes(p.in), stride = padded + 7;
  std::vector<uint8_t> q(static_cast<size_t>(p.rows * stride), 0x33);
  Values<float> scales, y(static_cast<size_t>(p.rows * p.out));
  for (int64_t r = 0; r < p.rows; ++r) {
    scales.push_back(
        kernels::quantize_row(p.x.data() + r * p.in, p.in, tiles.flip, q.data() + r * stride));
    std::fill_n(q.data() + r * stride + p.in, padded - p.in, uint8_t{0});
  }
  kernels::PackedTile work{.weight = packed, .panels = {0, packed.panels()}};
  work.rows = p.rows;
  work.q = q.data(), work.scales = scales.data(), work.ldx = stride;
  work.bias = p.bias.data();
  work.y = y.data(), work.ldy = p.out;
  tiles.int8(work);
  return y;
}

Values<float> run_int4_tile(Int8Kernel kernel, const Problem& p) {
  constexpr int64_t kColumns = PackedMatrix::kInt4Columns;
  const PackedMatrix packed(WeightFormat::kInt4, p.w.data(), p.out, p.in);
  kernels::PackedTile work{.weight = packed, .panels = {0, packed.panels()}};
  const int64_t padded = kernels::padded_bytes(p.in), groups = work.groups();
  std::vector<uint8_t> q(static_cast<size_t>(p.rows * padded), 0);
  Values<float> scales, y(static_cast<size_t>(p.rows * p.out));
  Values<int32_t> starts;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = g * kColumns, count = std::min(kColumns, p.in - begin);
      uint8_t* const to = q.data() + r * padded + begin;
      scales.push_back(kernels::quantize_row(p.x.data() + r * p.in + begin, count, 0, to));
      starts.push_back(0);
      for (int64_t k = 0; k < count; ++k) starts.back() -= 8 * static_cast<int8_t>(to[k]);
    }
  }
  work.rows = p.rows, work.ldx = padded;
  work.q = q.data(), work.scales = scales.data(), work.starts = starts.data();
  work.bias = p.bias.data();
  work.y = y.data(), work.ldy = p.out;
  kernels::packed_integer_tiles(kernel).int4(work);
  return y;
}

constexpr int64_t kRows[] = {1, 2, 3, 14, 15, 29, 70};
constexpr int64_t kSizes[] = {1, 4, 31, 33, 257};

template <class F>
void for_each_problem(F body) {
  for (const int64_t rows : kRows) {
    for (const int64_t in : kSizes) {
      for (const int64_t out : {1, 31, 32, 33, 64, 129, 257}) {
        SCOPED_TRACE(testing::Message() << rows << " rows, W (" << out << ", " << in << ")");
        body(Problem(rows, in, out));
      }
    }
  }
}

TEST(PackedMatrixTest, RowsComeBack) {
  for (const int64_t in : kSizes) {
    for (const int64_t out : kSizes) {
      const auto w = random_values<float>(out * in, 2);
      const PackedMatrix plain(WeightFormat::kFloat32, w.data(), out, in);
      const PackedMatrix half(WeightFormat::kBFloat16, w.data(), out, in);
      const PackedMatrix rounded(WeightFormat::kInt8, w.data(), out, in);
      Values<float> row(static_cast<size_t>(in)), expected(row);
      std::vector<uint8_t> q(row.size());
      for (int64_t r = 0; r < out; ++r) {
        const float* const values = w.data() + r * in;
        plain.read_row(r, row.data());
        EXPECT_EQ(row, Values<float>(values, values + in));
        half.read_row(r, row.data());
        for (size_t k = 0; k < row.size(); ++k) {
          EXPECT_EQ(row[k], static_cast<float>(BFloat16(values[k])));
        }
        const float scale = kernels::quantize_row(values, in, 0, q.data());
        for (size_t k = 0; k < q.size(); ++k) expected[k] = scale * static_cast<int8_t>(q[k]);
        rounded.read_row(r, row.data());
        EXPECT_EQ(row, expected);
      }
    }
  }
}

// Each number of a group is off by at most half a step, and one step where the largest has the
// other sign; what is 0 stays 0.
TEST(PackedMatrixTest, Int4RoundsGroupsApart) {
  constexpr int64_t kIn = 70, kOut = 33, kColumns = PackedMatrix::kInt4Columns;
  auto w = random_values<float>(kOut * kIn, 2);
  std::fill_n(w.begin(), kColumns, 0.0F);
  for (size_t i = kIn; i < 2 * kIn; ++i) w[i] *= 1000;
  w[2 * kIn] = 100;  // the rest of its group falls below half a step
  const PackedMatrix rounded(WeightFormat::kInt4, w.data(), kOut, kIn);
  Values<float> row(kIn);
  for (int64_t r = 0; r < kOut; ++r) {
    rounded.read_row(r, row.data());
    const float* const values = w.data() + r * kIn;
    for (int64_t begin = 0; begin < kIn; begin += kColumns) {
      const int64_t end = std::min(begin + kColumns, kIn);
      float most = 0;
      for (int64_t k = begin; k < end; ++k) most = std::max(most, std::abs(values[k]));
      int64_t exact_ones = 0;
      for (int64_t k = begin; k < end; ++k) {
        EXPECT_LE(std::abs(row[static_cast<size_t>(k)] - values[k]), most / 8 * 1.1F)
            << r << ' ' << k;
        exact_ones += row[static_cast<size_t>(k)] == values[k] ? 1 : 0;
      }
      EXPECT_EQ(exact_ones == end - begin, most == 0) << "nothing was rounded";
    }
  }
  rounded.read_row(2, row.data());
  EXPECT_NEAR(row[0], 100, 0.5);
  EXPECT_EQ(row[1], 0);
}

TEST(PackedMatrixTest, FormatsTakeTheirShareOfTheMemory) {
  constexpr int64_t kSize = 256;
  const auto w = random_values<float>(kSize * kSize, 2);
  const auto bytes = [&](WeightFormat format) {
    return PackedMatrix(format, w.data(), kSize, kSize).bytes();
  };
  EXPECT_EQ(bytes(WeightFormat::kFloat32), 4 * kSize * kSize);
  EXPECT_EQ(bytes(WeightFormat::kBFloat16), 2 * kSize * kSize);
  EXPECT_EQ(bytes(WeightFormat::kInt8), kSize * kSize + 8 * kSize);
  EXPECT_EQ(bytes(WeightFormat::kInt4), kSize * kSize / 2 + kSize * kSize / 32 * 2);
}

TEST(PackedMatrixTest, SumsThatCouldOverflowAreRefused) {
  constexpr int64_t kCols = PackedMatrix::kMostInt8Columns + 1;
  const Values<float> w(kCols);
  try {
    const PackedMatrix packed(WeightFormat::kInt8, w.data(), 1, kCols);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[weights] int8 needs matrices of at most 65536 columns, got (1, 65537).");
  }
}

TEST(PackedLinearTest, Float32EqualsDoubles) {
  on_every_target([] {
    for_each_problem([](const Problem& p) {
      expect_close(p.run(WeightFormat::kFloat32), exact(p), 4.0 + static_cast<double>(p.in));
    });
  });
}

TEST(PackedLinearTest, BFloat16HasTheBitsOfFloat32) {
  on_every_target([] {
    for_each_problem([](const Problem& p) {
      EXPECT_EQ(p.run(WeightFormat::kBFloat16),
                with_rounded_weights(p).run(WeightFormat::kFloat32));
    });
  });
}

TEST(PackedLinearTest, Int4RoundsGroupsOfBothSides) {
  on_every_target([] {
    for_each_problem([](const Problem& p) {
      expect_close(p.run(WeightFormat::kInt4), int4_product(p), 4.0 + static_cast<double>(p.in));
    });
  });
}

TEST(PackedLinearTest, Int4KernelsHaveTheSameBits) {
  for (const auto kernel : enumerators<Int8Kernel>()) {
    if (!can_run(kernel)) continue;
    SCOPED_TRACE(name_of(kernel));
    for_each_problem(
        [&](const Problem& p) { EXPECT_EQ(run_int4_tile(kernel, p), p.run(WeightFormat::kInt4)); });
  }
}

TEST(PackedLinearTest, Int8HasExactSums) {
  for_each_problem(
      [](const Problem& p) { EXPECT_EQ(p.run(WeightFormat::kInt8), rounded_product(p)); });
}

TEST(PackedLinearTest, PlainInt8HasExactSums) {
  on_every_target([] {
    for_each_problem(
        [](const Problem& p) { EXPECT_EQ(run_tile(Int8Kernel::kPlain, p), rounded_product(p)); });
  });
}

TEST(PackedLinearTest, Int8KernelsHaveTheSameBits) {
  for (const auto kernel : enumerators<Int8Kernel>()) {
    if (!can_run(kernel)) continue;
    SCOPED_TRACE(name_of(kernel));
    for_each_problem([&](const Problem& p) { EXPECT_EQ(run_tile(kernel, p), rounded_product(p)); });
  }
}

// The largest products there are, in rows as long as there may be.
TEST(PackedLinearTest, TheLargestSumsDoNotOverflow) {
  Problem p(2, PackedMatrix::kMostInt8Columns, 33);
  std::fill_n(p.x.begin(), p.in, 1.0F);
  std::fill_n(p.x.begin() + p.in, p.in, -1.0F);
  std::fill(p.w.begin(), p.w.end(), 1.0F);
  const float most = 127.0F * 127 * static_cast<float>(p.in), scale = 1.0F / 127;
  const Values<float> y = p.run(WeightFormat::kInt8, /*with_bias=*/false);
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i], (i < 33 ? most : -most) * scale * scale) << i;
  }
  EXPECT_EQ(run_tile(Int8Kernel::kPlain, p), p.run(WeightFormat::kInt8));
}

TEST(PackedLinearTest, NothingHidesANan) {
  Problem p(3, 33, 40);
  p.x[33 + 5] = std::nanf("");
  for (const WeightFormat format : kWeightFormats) {
    const Values<float> y = p.run(format);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 40 == 1) << i;
  }
}

// Sizes at which rows are moved apart, are cut into several tiles, and go to several threads.
TEST(PackedLinearTest, ARowDoesNotDependOnTheOthers) {
  for (const WeightFormat format : kWeightFormats) {
    for (const int64_t in : {33, 128, 1024}) {
      SCOPED_TRACE(testing::Message() << name_of(format) << ", in " << in);
      const Problem all(150, in, 321);
      const Values<float> together = all.run(format);
      for (const int64_t row : {0, 1, 77, 149}) {
        Problem one(1, in, 321);
        std::copy_n(all.x.begin() + row * in, in, one.x.begin());
        const auto begin = together.begin() + row * 321;
        EXPECT_EQ(one.run(format), Values<float>(begin, begin + 321)) << row;
      }
    }
  }
}

TEST(PackedLinearTest, BitsDoNotDependOnThreads) {
  const Problem p(70, 512, 1300);
  for (const WeightFormat format : kWeightFormats) {
    expect_same_for_any_threads([&] { return p.run(format); });
  }
}

TEST(PackedLinearTest, BiasAndActivation) {
  const Problem p(15, 33, 70);
  for (const WeightFormat format : kWeightFormats) {
    const Values<float> with = p.run(format), without = p.run(format, /*with_bias=*/false);
    Values<float> positive = with;
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_EQ(with[i], without[i] + p.bias[i % 70]);
      positive[i] = std::max(0.0F, with[i]);
    }
    EXPECT_EQ(p.run(format, /*with_bias=*/true, Activation::kRelu), positive);
  }
}

// Vocabularies whose logits are few at a time, and many.
TEST(PackedLinearTest, TopLogitsAreThoseOfAllLogits) {
  constexpr int64_t kCount = 5, kWidth = 1 + 2 * kCount;
  for (const auto& [rows, vocab] :
       {std::pair{1, 257}, {14, 33}, {15, 257}, {113, 4}, {57, 257}, {60, 20000}}) {
    const Problem p(rows, 16, vocab);
    const Values<int32_t> banned = random_ints((vocab + 31) / 32, 5, 1 << 30);
    for (const WeightFormat format : kWeightFormats) {
      SCOPED_TRACE(testing::Message() << name_of(format) << ' ' << rows << " rows of " << vocab);
      Values<double> expected(static_cast<size_t>(rows * kWidth));
      kernels::top_logits(Cpu{}, {rows, vocab, kCount}, p.run(format).data(), banned.data(),
                          expected.data());
      const PackedMatrix packed(format, p.w.data(), p.out, p.in);
      expect_same_for_any_threads([&] {
        Values<double> top(expected.size() + 1, -77);
        kernels::packed_top_logits(
            Cpu{}, {.rows = rows, .x = p.x.data(), .weight = packed, .bias = p.bias.data()}, kCount,
            banned.data(), top.data());
        EXPECT_EQ(top.back(), -77);
        top.pop_back();
        EXPECT_EQ(top, expected);
        return top;
      });
    }
  }
}

}  // namespace
}  // namespace tapestry
