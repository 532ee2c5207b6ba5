#include "core/kernels/matmul/gemm.h"

#include <ostream>

#include "core/kernels/cpu/tile_grid.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

struct Case {
  int64_t m, n, k;
  bool trans_a = false, trans_b = false;
  int64_t batch = 1;
  double alpha = 1, beta = 0;
  int64_t pad = 0;  // of every leading dimension
  bool share_a = false, share_b = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.m << 'x' << c.n << 'x' << c.k << (c.trans_a ? " T" : " N")
             << (c.trans_b ? "T" : "N") << " batch " << c.batch << " alpha " << c.alpha << " beta "
             << c.beta << " pad " << c.pad << " share " << c.share_a << c.share_b;
}

// Operands of one case, and their product by three loops in long double.
template <class T>
struct Problem {
  explicit Problem(const Case& c) : test(c) {
    const int64_t a_rows = c.trans_a ? c.k : c.m, b_rows = c.trans_b ? c.n : c.k;
    args = {.m = c.m, .n = c.n, .k = c.k};
    args.lda = (c.trans_a ? c.m : c.k) + c.pad;
    args.ldb = (c.trans_b ? c.k : c.n) + c.pad;
    args.ldc = c.n + c.pad;
    args.trans_a = c.trans_a;
    args.trans_b = c.trans_b;
    args.alpha = c.alpha;
    args.beta = c.beta;
    args.batch = c.batch;
    args.stride_a = c.share_a ? 0 : a_rows * args.lda;
    args.stride_b = c.share_b ? 0 : b_rows * args.ldb;
    args.stride_c = c.m * args.ldc;
    a = random_values<T>(a_rows * args.lda * c.batch, 1, -1, 1);
    b = random_values<T>(b_rows * args.ldb * c.batch, 2, -1, 1);
    initial = random_values<T>(c.m * args.ldc * c.batch, 3, -1, 1);
    args.a = a.data();
    args.b = b.data();
  }

  Values<T> run(int threads) {
    set_num_threads(threads);
    Values<T> c = initial;
    args.c = c.data();
    kernels::gemm(TestDevice{}, args);
    return c;
  }

  double expected(int64_t item, int64_t i, int64_t j) const {
    const T* x = a.data() + item * args.stride_a + (args.trans_a ? i : i * args.lda);
    const T* y = b.data() + item * args.stride_b + (args.trans_b ? j * args.ldb : j);
    const int64_t x_step = args.trans_a ? args.lda : 1, y_step = args.trans_b ? 1 : args.ldb;
    long double sum = 0;
    for (int64_t p = 0; p < args.k; ++p) {
      sum += static_cast<long double>(as_double(x[p * x_step])) * as_double(y[p * y_step]);
    }
    const int64_t index = item * args.stride_c + i * args.ldc + j;
    const double old = args.beta == 0 ? 0 : args.beta * as_double(initial[index]);
    return static_cast<double>(args.alpha * sum + old);
  }

  Case test;
  Gemm<T> args;
  Values<T> a, b, initial;
};

template <class T>
void expect_right(const Case& test) {
  SCOPED_TRACE(testing::Message() << test);
  Problem<T> problem(test);
  const Values<T> c = problem.run(2);
  // Partial sums of k terms in [-1, 1] grow like sqrt(k) and each addition rounds one of them: the
  // error's deviation is about 0.1 k epsilon; this is five of them.
  // BFloat16 sums in float, and rounds a result, of about sqrt(k), once.
  const double roundings =
      std::is_same_v<T, BFloat16> ? 2 * std::sqrt(test.k + 16.0) : 0.5 * (test.k + 16.0);
  const double tolerance = roundings * kEpsilon<T> * (std::abs(test.alpha) + std::abs(test.beta));
  const int64_t step = std::max<int64_t>(1, test.m * test.n * test.k / 4000000);  // naive is slow
  double worst = 0;
  for (int64_t item = 0; item < test.batch; ++item) {
    for (int64_t i = 0; i < test.m; ++i) {
      for (int64_t j = i % step; j < test.n; j += step) {
        const double got = as_double(c[item * problem.args.stride_c + i * problem.args.ldc + j]);
        worst = std::max(worst, std::abs(got - problem.expected(item, i, j)));
      }
      for (int64_t j = test.n; j < problem.args.ldc; ++j) {
        const int64_t index = item * problem.args.stride_c + i * problem.args.ldc + j;
        ASSERT_EQ(c[index], problem.initial[index]) << "wrote beyond the columns";
      }
    }
  }
  EXPECT_LE(worst, tolerance);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (bool trans_a : {false, true}) {
    for (bool trans_b : {false, true}) {
      for (int64_t size : {1, 31, 33, 257}) all.push_back({size, 33, 31, trans_a, trans_b});
      for (int64_t size : {1, 31, 33, 257}) all.push_back({33, size, 65, trans_a, trans_b});
      for (int64_t size : {1, 31, 33, 257}) all.push_back({65, 33, size, trans_a, trans_b});
      all.push_back({300, 200, 129, trans_a, trans_b, 1, 0.5, 2.0, 7});
      all.push_back({33, 17, 9, trans_a, trans_b, 5, -1.5, 0.5, 3});
      all.push_back({129, 300, 1100, trans_a, trans_b, 1, 1, 1, 5});           // cut along k
      all.push_back({64, 65, 2049, trans_a, trans_b, 2, 2.0, 1.0, 1});         // the same, batched
      all.push_back({40, 24, 16, trans_a, trans_b, 9, 1, 0, 0, false, true});  // shared operands
      all.push_back({40, 24, 16, trans_a, trans_b, 9, 1, 1, 2, true, false});
    }
  }
  all.push_back({256, 256, 4096, true, false});
  all.push_back({700, 384, 128, false, true});
  return all;
}

TEST(Gemm, AgreesWithThreeLoops) {
  for (const Case& test : cases()) {
    expect_right<float>(test);
    expect_right<double>(test);
    expect_right<BFloat16>(test);
  }
}

template <class T>
bool same_bits(const Values<T>& x, const Values<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

TEST(Gemm, BitsDoNotDependOnThreads) {
  const Case tests[] = {{256, 256, 4096, true, false, 1, 1, 1},
                        {1000, 300, 77},
                        {130, 70, 2000, false, true, 3},
                        {16, 48, 32, false, true, 50}};
  for (const Case& test : tests) {
    SCOPED_TRACE(testing::Message() << test);
    Problem<float> problem(test);
    const Values<float> one = problem.run(1);
    for (int threads : {2, 3, 5}) EXPECT_TRUE(same_bits(one, problem.run(threads))) << threads;
  }
}

TEST(Gemm, InnerSizeZeroScalesC) {
  for (double beta : {0.0, 1.0, -2.0}) {
    Problem<double> problem({5, 7, 0, false, true, 3, 1.0, beta, 2});
    if (beta == 0) problem.initial.assign(problem.initial.size(), std::nan(""));
    const Values<double> c = problem.run(2);
    for (int64_t i = 0; i < 15; ++i) {
      for (int64_t j = 0; j < 7; ++j) {
        const double old = problem.initial[i * 9 + j];
        EXPECT_EQ(c[i * 9 + j], beta == 0 ? 0 : beta * old);
      }
    }
  }
}

TEST(Gemm, BetaZeroIgnoresNan) {
  Problem<float> problem({256, 256, 2048, true, false});
  problem.initial.assign(problem.initial.size(), std::nanf(""));
  for (float value : problem.run(2)) ASSERT_FALSE(std::isnan(value));
}

TEST(Gemm, EmptyResultsAreLeftAlone) {
  for (const Case& test : {Case{0, 5, 4}, Case{5, 0, 4}, Case{5, 5, 5, false, false, 0}}) {
    Problem<float> problem(test);
    EXPECT_EQ(problem.run(2), problem.initial);
  }
}

TEST(Gemm, TileComputesOneProduct) {
  Problem<double> problem({33, 65, 31, true, true, 1, 1.0, 1.0, 3});
  Values<double> c = problem.initial;
  problem.args.c = c.data();
  kernels::gemm_tile(Cpu{}, problem.args);
  for (int64_t i = 0; i < 33; ++i) {
    for (int64_t j = 0; j < 65; ++j) {
      EXPECT_NEAR(c[i * problem.args.ldc + j], problem.expected(0, i, j), 1e-13);
    }
  }
}

TEST(Gemm, RefusesWrongArguments) {
  Problem<float> problem({8, 8, 8});
  Values<float> c = problem.initial;
  problem.args.c = c.data();
  auto broken = problem.args;
  broken.lda = 7;
  EXPECT_THROW(kernels::gemm(TestDevice{}, broken), Error);
  broken = problem.args;
  broken.k = -1;
  EXPECT_THROW(kernels::gemm(TestDevice{}, broken), Error);
  broken = problem.args;
  broken.batch = 2;
  broken.stride_c = 0;
  EXPECT_THROW(kernels::gemm(TestDevice{}, broken), Error);
  EXPECT_THROW(kernels::gemm_tile(Cpu{}, broken), Error);
}

TEST(TileGrid, CutsByShapeAndKeepsThreadsBusy) {
  using kernels::tile_grid;
  EXPECT_EQ(tile_grid(32, 32, 32, 1, true).tiles(), 1);  // 64 kFLOP: not worth a thread
  const int64_t shapes[][3] = {
      {4096, 256, 256}, {256, 256, 4096}, {1024, 256, 4096}, {4096, 1024, 256}, {768, 384, 128}};
  for (const auto& [m, n, k] : shapes) {
    for (const kernels::TileSizes& sizes : {kernels::kSquareTiles, kernels::kTallTiles}) {
      const auto grid = tile_grid(m, n, k, 1, true, sizes);
      EXPECT_GE(grid.tiles(), sizes.enough * 3 / 4) << m << ' ' << n << ' ' << k;
      EXPECT_LE(grid.tiles(), 16) << m << ' ' << n << ' ' << k;
    }
  }
  EXPECT_EQ(tile_grid(256, 256, 4096, 1, false).k.count(), 1);
}

TEST(TileGrid, CoversEveryElementOnce) {
  const kernels::Cut cut{100, 32};
  ASSERT_EQ(cut.count(), 4);
  EXPECT_EQ(cut[3].begin, 96);
  EXPECT_EQ(cut[3].end, 100);
}

}  // namespace
}  // namespace tapestry
