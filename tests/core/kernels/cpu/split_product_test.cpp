// Products of float32 as three of bfloat16 on tiles (kBf16x3): the loops on the emulated unit
// everywhere; the public kernels, named ...OnTiles, where the process has tiles or emulates them.
#include <bit>

#include "core/kernels/cpu/rounded_product.h"
#include "core/kernels/cpu/tile_product-inl.h"
#include "core/kernels/cpu/tile_units.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/matmul/gemm.h"
#include "core/kernels/matmul/linear.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry::kernels {
namespace {

using SplitSide = TileOperand::Side;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

struct SplitSizes {
  int64_t m, n, k;
};

Values<float> normal_values(int64_t n, uint64_t seed) {
  Values<float> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    values[static_cast<size_t>(i)] =
        static_cast<float>(philox_normal({seed, 79, 5}, static_cast<uint64_t>(i)));
  }
  return values;
}

struct SplitOperand {
  SplitOperand(SplitSide side, int64_t length, int64_t k, bool along_k, uint64_t seed,
               TileForm form = TileForm::kSplit)
      : SplitOperand(side, length, k, along_k,
                     normal_values((along_k ? length : k) * ((along_k ? k : length) + 3), seed),
                     form) {}
  SplitOperand(SplitSide side, int64_t length, int64_t k, bool along_k, Values<float> given,
               TileForm form)
      : values(std::move(given)),
        source{values.data(), (along_k ? k : length) + 3, along_k},
        packed(side, length, k, form) {
    packed.pack(source);
  }
  double operator()(int64_t i, int64_t k) const { return source.wide[source.index(i, k)]; }

  Values<float> values;
  Factor source;
  TileOperand packed;
};

// Of a product: each factor is right to 2^-17, and low low would add up to 2^-16. Then there are
// the roundings of sums.
constexpr double kMostError = 1.1 * 0x1p-15;
constexpr int64_t kBeside = 5;  // elements of C that are not of the product, in each row

// In the pieces of so many threads.
template <class Unit = EmulatedTiles>
Values<float> multiply_split(const SplitOperand& a, const SplitOperand& b, bool add,
                             int64_t threads = 1) {
  const int64_t m = a.packed.length(), n = b.packed.length(), ldc = n + kBeside;
  Values<float> c = normal_values(m * ldc, 3);
  const TileProduct product{
      .a = a.packed.view(), .b = b.packed.view(), .c = c.data(), .ldc = ldc, .add = add};
  const TilePieces pieces(m, n, product.a.stored_depth(), threads);
  for (int64_t i = 0; i < pieces.count(); ++i) {
    const auto [rows, cols] = pieces[i];
    multiply_piece<Unit>(product, rows, cols);
  }
  return c;
}

double rms(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// The error of all elements as a share of the result's size.
double share_of_error(TileForm form, int64_t k) {
  const SplitOperand a(SplitSide::kLeft, 48, k, true, 1, form),
      b(SplitSide::kRight, 48, k, false, 2, form);
  const Values<float> c = multiply_split(a, b, false);
  std::vector<double> exact, error;
  for (int64_t i = 0; i < 48; ++i) {
    for (int64_t j = 0; j < 48; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += a(i, p) * b(j, p);
      exact.push_back(sum);
      error.push_back(c[static_cast<size_t>(i * (48 + kBeside) + j)] - sum);
    }
  }
  return rms(error) / rms(exact);
}

TEST(SplitProduct, HasSixteenBits) {
  const double split = share_of_error(TileForm::kSplit, 768);
  const double rounded = share_of_error(TileForm::kRounded, 768);
  EXPECT_LT(split, 6e-6);
  EXPECT_GT(rounded, 1e-3);
}

// Edges of tiles, blocks and pieces, which are 512 deep, once across them.
constexpr SplitSizes kSplitSizes[] = {{1, 1, 1},     {16, 16, 32}, {17, 15, 33}, {32, 32, 64},
                                      {33, 70, 31},  {5, 600, 40}, {70, 3, 96},  {64, 96, 65},
                                      {31, 33, 600}, {20, 40, 0}};

template <class Unit>
void expect_split_product() {
  for (const SplitSizes& s : kSplitSizes) {
    for (const int way : {0, 1, 2, 3}) {
      for (const bool add : {false, true}) {
        SCOPED_TRACE(concat(s.m, 'x', s.n, 'x', s.k, " way ", way, add ? ", added" : ""));
        const SplitOperand a(SplitSide::kLeft, s.m, s.k, way % 2 == 0, 1);
        const SplitOperand b(SplitSide::kRight, s.n, s.k, way / 2 == 0, 2);
        const Values<float> c = multiply_split<Unit>(a, b, add);
        const Values<float> before = normal_values(s.m * (s.n + kBeside), 3);
        for (int64_t i = 0; i < s.m; ++i) {
          for (int64_t j = 0; j < s.n + kBeside; ++j) {
            const auto at = static_cast<size_t>(i * (s.n + kBeside) + j);
            if (j >= s.n) {
              ASSERT_EQ(c[at], before[at]) << "beside C";
              continue;
            }
            double sum = add ? before[at] : 0, size = std::abs(sum);
            for (int64_t p = 0; p < s.k; ++p) {
              sum += a(i, p) * b(j, p);
              size += std::abs(a(i, p) * b(j, p));
            }
            ASSERT_LE(std::abs(c[at] - sum), kMostError * size) << "row " << i << ", col " << j;
          }
        }
      }
    }
  }
}

TEST(SplitProduct, EqualsThreeLoops) {
  expect_split_product<EmulatedTiles>();
  expect_split_product<EmulatedSquares>();
  if (cpu_traits().avx512_bf16) expect_split_product<PairProducts>();
  if (cpu_traits().arm_bf16) expect_split_product<SquareProducts>();
}

TEST(SplitProduct, BitsDoNotDependOnTheCut) {
  const SplitOperand a(SplitSide::kLeft, 70, 600, true, 1), b(SplitSide::kRight, 430, 600, true, 2);
  const Values<float> alone = multiply_split(a, b, false);
  for (const int64_t threads : {2, 3, 16}) {
    EXPECT_EQ(multiply_split(a, b, false, threads), alone) << threads;
  }
}

// Each against the product of floats. Where that is too large for a float, its parts may differ in
// their signs, so that all that is known is that it is not finite.
TEST(SplitProduct, SpecialValuesAreThoseOfFloat) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {0,         1,    -1,      1.005F,   -1.003F,   0x1p-60F,   300.7F,
                          -0x1p100F, 3e38, 3.4e38F, -3.4e38F, kInfinity, -kInfinity, nan};
  for (const float x : values) {
    for (const float y : values) {
      SCOPED_TRACE(concat(x, " times ", y));
      const SplitOperand a(SplitSide::kLeft, 1, 1, true, Values<float>(4, x), TileForm::kSplit);
      const SplitOperand b(SplitSide::kRight, 1, 1, true, Values<float>(4, y), TileForm::kSplit);
      const float expected = x * y, got = multiply_split(a, b, false)[0];
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(got)) << got;
      } else if (std::isinf(x) || std::isinf(y)) {
        EXPECT_EQ(got, expected);
      } else if (std::isinf(expected)) {
        EXPECT_FALSE(std::isfinite(got));
      } else {
        EXPECT_NEAR(got, expected, kMostError * std::abs(expected));
      }
    }
  }
}

// Bit patterns of every kind: subnormal numbers, infinities, NaN, ties, huge and tiny exponents.
Values<float> values_to_split(int64_t n, uint64_t seed) {
  Values<float> values = random_values<float>(n, seed, -1, 1);
  const float special[] = {kInfinity, -kInfinity, kLargest,     -kLargest, 3.395e38F,
                           0x1p-126F, -0x1p-140F, 0x1.01p-126F, -0.0F,     std::nanf("")};
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 7 == 0) values[i] *= 0x1p-130F;
    if (i % 11 == 0)
      values[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(values[i]) << 16 | 0x8000);
    if (i % 5 == 0) values[i] = special[i / 5 % std::size(special)];
  }
  return values;
}

TEST(SplitOperand, PartsAddUp) {
  const Values<float> x = values_to_split(999, 5);
  TileOperand operand(SplitSide::kLeft, 1, static_cast<int64_t>(x.size()), TileForm::kSplit);
  operand.pack({x.data(), operand.k(), true});
  for (int64_t i = 0; i < operand.k(); ++i) {
    const float value = x[static_cast<size_t>(i)];
    const BFloat16* const tile = operand.tile(0, i / kTileDepth) + i % kTileDepth;
    const auto high = static_cast<float>(tile[0]), low = static_cast<float>(tile[kElementsPerTile]);
    SCOPED_TRACE(concat(value, " is ", high, " and ", low));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(high));
    } else if (std::isinf(value)) {
      ASSERT_EQ(high, value > 0 ? 1 : -1);
      ASSERT_EQ(low, value);
    } else {
      // Parts that are subnormal are 0.
      ASSERT_LE(std::abs(double(high) + low - value),
                std::max(0x1p-17 * std::abs(value), 0x1p-126));
      ASSERT_TRUE(std::isfinite(high) && std::isfinite(low));
    }
  }
}

TEST(SplitOperand, VectorsPackAsPlainLoopsDo) {
#ifndef __aarch64__
  if (!cpu_traits().avx512_bf16) GTEST_SKIP() << "this processor has no AVX512-BF16";
#endif
  for (const auto& [length, k] :
       {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {17, 33}, {40, 95}}) {
    for (const SplitSide side : {SplitSide::kLeft, SplitSide::kRight}) {
      for (const bool along_k : {false, true}) {
        SCOPED_TRACE(concat(length, " by ", k, along_k ? " along k" : " across k"));
        const int64_t stride = (along_k ? k : length) + 2;
        const Values<float> values = values_to_split((along_k ? length : k) * stride, 5);
        const Factor source{values.data(), stride, along_k};
        TileOperand plain(side, length, k, TileForm::kSplit),
            packed = {side, length, k, TileForm::kSplit};
        pack_tiles_plainly(source, {0, plain.strips()}, {0, plain.tiles()}, plain);
        pack_operands({{packed, source}});
        for (int64_t i = 0; i < plain.strips() * plain.tiles() * 2 * kElementsPerTile; ++i) {
          const auto x = float(plain.tile(0, 0)[i]), y = float(packed.tile(0, 0)[i]);
          ASSERT_TRUE(plain.tile(0, 0)[i] == packed.tile(0, 0)[i] || (x != x && y != y)) << i;
        }
      }
    }
  }
}

TEST(SplitProduct, AmxHasTheBitsOfTheEmulation) {
  if (!cpu_traits().amx_bf16 || !tiles_allowed()) GTEST_SKIP() << "this processor has no AMX-BF16";
  const SplitOperand a(SplitSide::kLeft, 70, 600, true, 1), b(SplitSide::kRight, 50, 600, false, 2);
  Values<float> c = normal_values(70 * (50 + kBeside), 3);
  TileSession(Bfloat16Kernel::kAmx)
      .multiply({.a = a.packed.view(),
                 .b = b.packed.view(),
                 .c = c.data(),
                 .ldc = 50 + kBeside,
                 .add = true});
  EXPECT_EQ(c, multiply_split(a, b, true));
}

class Bf16x3OnTilesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!bfloat16_runs_on_tiles()) {
      GTEST_SKIP() << "this processor multiplies no tiles; core.EmulatedTiles runs it anywhere";
    }
  }
};

// Near what float32 gives, but not the same: the error is that of 16 bits.
template <class T>
void expect_near(const Values<T>& got, const Values<T>& full) {
  ASSERT_EQ(got.size(), full.size());
  std::vector<double> error;
  for (size_t i = 0; i < got.size(); ++i) error.push_back(double(got[i]) - double(full[i]));
  const double size = rms(widen(full));
  EXPECT_LT(rms(error), 8e-6 * size);
  EXPECT_GT(rms(error), 1e-6 * size);
  for (const double e : error) ASSERT_LT(std::abs(e), 2e-4 * size);
}

template <class T>
struct LinearResult {
  Values<T> z, y, dx, d_weight, d_bias;
};

// A layer at this precision. Its gradients are those of `given`'s z and y, if there is one.
template <class T>
LinearResult<T> run_linear(LinearShape shape, Precision precision, Write write,
                           const LinearResult<T>* given = nullptr) {
  shape.precision = precision;
  const auto x = random_values<T>(shape.rows * shape.in, 1);
  const auto weight = random_values<T>(shape.out * shape.in, 2);
  const auto bias = random_values<T>(shape.out, 3),
             dy = random_values<T>(shape.rows * shape.out, 4);
  LinearResult<T> result{Values<T>(dy.size()), Values<T>(dy.size()), random_values<T>(ssize(x), 5),
                         random_values<T>(ssize(weight), 6), random_values<T>(shape.out, 7)};
  kernels::linear<T>(Cpu{}, shape,
                     {x.data(), weight.data(), bias.data(), result.z.data(), result.y.data()});
  const LinearResult<T>& forward = given != nullptr ? *given : result;
  kernels::linear_backward<T>(
      Cpu{}, shape,
      {x.data(), weight.data(), forward.z.data(), forward.y.data(), dy.data(), result.dx.data(),
       write, result.d_weight.data(), write, result.d_bias.data(), write});
  return result;
}

TEST_F(Bf16x3OnTilesTest, LinearIsNearFloat32) {
  for (const Activation activation :
       {Activation::kNone, Activation::kRelu, Activation::kGeluTanh}) {
    for (const Write write : kBothWrites) {
      for (const SplitSizes& s : {SplitSizes{33, 70, 50}, {70, 300, 33}, {40, 33, 200}}) {
        const LinearShape shape{s.m, s.k, s.n, activation};
        SCOPED_TRACE(concat(s.m, 'x', s.k, " -> ", s.n, ' ', name_of(activation)));
        const auto full = run_linear<float>(shape, Precision::kFull, write);
        const auto got = run_linear<float>(shape, Precision::kBf16x3, write, &full);
        expect_near(got.z, full.z);
        expect_near(got.y, full.y);
        expect_near(got.dx, full.dx);
        expect_near(got.d_weight, full.d_weight);
        for (int64_t i = 0; i < s.n; ++i) {  // a sum, and no product
          EXPECT_NEAR(got.d_bias[i], full.d_bias[i], 1e-4);
        }
      }
    }
  }
}

TEST_F(Bf16x3OnTilesTest, OtherTypesIgnoreIt) {
  const LinearShape shape{33, 70, 50, Activation::kRelu};
  const auto expect_equal = [&]<class T>(T) {
    const auto full = run_linear<T>(shape, Precision::kFull, Write::kSet);
    const auto got = run_linear<T>(shape, Precision::kBf16x3, Write::kSet);
    EXPECT_EQ(got.y, full.y);
    EXPECT_EQ(got.dx, full.dx);
    EXPECT_EQ(got.d_weight, full.d_weight);
  };
  expect_equal(double());
  expect_equal(BFloat16());
}

TEST_F(Bf16x3OnTilesTest, LinearBitsDoNotDependOnThreads) {
  const LinearShape shape{150, 70, 130, Activation::kGeluTanh};
  for (const auto member :
       {&LinearResult<float>::y, &LinearResult<float>::dx, &LinearResult<float>::d_weight}) {
    expect_same_for_any_threads(
        [&] { return run_linear<float>(shape, Precision::kBf16x3, Write::kAdd).*member; });
  }
}

struct ClassifierResult {
  CrossEntropySums sums;
  Values<float> dx, d_weight, d_bias;
};

ClassifierResult run_classifier(int64_t rows, int64_t classes, int64_t in, Precision precision) {
  const auto x = random_values<float>(rows * in, 21, -1, 1);
  const auto weight = random_values<float>(classes * in, 22, -1, 1);
  const auto bias = random_values<float>(classes, 23, -1, 1);
  Values<int32_t> targets = random_ints(rows, 9, static_cast<int32_t>(classes));
  for (size_t r = 0; r < targets.size(); r += 7) targets[r] = -1;
  ClassifierResult result{
      {}, Values<float>(x.size()), Values<float>(weight.size()), Values<float>(bias.size())};
  kernels::linear_cross_entropy<float>(Cpu{},
                                       {.rows = rows,
                                        .classes = classes,
                                        .label_smoothing = 0.1,
                                        .ignore_index = -1,
                                        .precision = precision},
                                       {.in = in,
                                        .x = x.data(),
                                        .weight = weight.data(),
                                        .bias = bias.data(),
                                        .targets = {.targets = targets.data()},
                                        .dx = result.dx.data(),
                                        .d_weight = result.d_weight.data(),
                                        .d_bias = result.d_bias.data()},
                                       &result.sums);
  return result;
}

// SplitSizes beyond tiles of classes and blocks of rows.
TEST_F(Bf16x3OnTilesTest, ClassifierIsNearFloat32) {
  for (const SplitSizes& s : {SplitSizes{33, 300, 17}, {600, 40, 33}, {70, 700, 70}}) {
    SCOPED_TRACE(concat(s.m, " rows, ", s.n, " classes, in ", s.k));
    const auto full = run_classifier(s.m, s.n, s.k, Precision::kFull);
    const auto got = run_classifier(s.m, s.n, s.k, Precision::kBf16x3);
    EXPECT_NEAR(got.sums.loss, full.sums.loss, 2e-6 * full.sums.loss);
    EXPECT_NEAR(got.sums.nll, full.sums.nll, 2e-6 * full.sums.nll);
    EXPECT_NE(got.sums.loss, full.sums.loss);
    expect_near(got.dx, full.dx);
    expect_near(got.d_weight, full.d_weight);
  }
}

TEST_F(Bf16x3OnTilesTest, ClassifierBitsDoNotDependOnThreads) {
  for (const auto member : {&ClassifierResult::dx, &ClassifierResult::d_weight}) {
    expect_same_for_any_threads(
        [&] { return run_classifier(70, 700, 40, Precision::kBf16x3).*member; });
  }
}

TEST_F(Bf16x3OnTilesTest, GemmIsNearFloat32) {
  const int64_t m = 40, n = 50, k = 70;
  const auto a = random_values<float>(k * m, 1), b = random_values<float>(k * n, 2);
  const auto product = [&](Precision precision) {
    Values<float> c = random_values<float>(m * n, 3);
    Gemm<float> g;
    g.m = m, g.n = n, g.k = k, g.precision = precision;
    g.a = a.data(), g.lda = m, g.trans_a = true;
    g.b = b.data(), g.ldb = n;
    g.c = c.data(), g.ldc = n, g.alpha = 0.5, g.beta = 2;
    kernels::gemm(Cpu{}, g);
    return c;
  };
  expect_near(product(Precision::kBf16x3), product(Precision::kFull));
}

}  // namespace
}  // namespace tapestry::kernels
