// The functions of warpgroup_mma.h and bulk_copy.h, one by one, against naive loops: on a GPU of
// compute capability 9.0 or in its emulation.
#include "core/cuda/hopper.h"
#include "tests/core/cuda/need_gpu.h"
#include "tests/core/cuda/warpgroup_kernels.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

class WarpgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    NEED_GPU();
    if (!cuda::has_warpgroup_products()) {
      GTEST_SKIP() << "no compute capability 9.0, or a build without 90a-real";
    }
  }
};

// Rows of (2, rows, 3, columns), or 0 beyond them.
double element(const Values<BFloat16>& x, int64_t rows, int64_t columns, int64_t row,
               int64_t column) {
  if (row >= rows) return 0;
  const int64_t place = ((kTestBatch * rows + row) * kTestHeads + kTestHead) * columns + column;
  return as_double(x[static_cast<size_t>(place)]);
}

void expect_product(const WarpgroupProduct& what, int64_t a_rows, int64_t b_rows) {
  SCOPED_TRACE(testing::Message() << what.columns << " columns, width " << what.width
                                  << ", transposed " << what.transposed_a << what.transposed_b
                                  << (what.from_registers ? ", from registers" : ""));
  const int64_t b_columns = what.transposed_b ? what.columns : 64;
  const auto a = random_values<BFloat16>(2 * a_rows * kTestHeads * 64, 1);
  const auto b = random_values<BFloat16>(2 * b_rows * kTestHeads * b_columns, 2);
  Values<float> c = random_values<float>(64 * what.columns, 3);
  std::vector<double> expected = widen(c);
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < what.columns; ++j) {
      double sum = what.add ? expected[static_cast<size_t>(i * what.columns + j)] : 0;
      for (int64_t k = 0; k < 64; ++k) {
        // In registers: the first 64 x 64 numbers.
        const double left = what.from_registers ? as_double(a[static_cast<size_t>(i * 64 + k)])
                            : what.transposed_a ? element(a, a_rows, 64, k, i)
                                                : element(a, a_rows, 64, i, k);
        sum += left * (what.transposed_b ? element(b, b_rows, b_columns, k, j)
                                         : element(b, b_rows, b_columns, j, k));
      }
      expected[static_cast<size_t>(i * what.columns + j)] = sum;
    }
  }
  multiply_by_warpgroup(what, a.data(), a_rows, b.data(), b_rows, c.data());
  expect_close(c, expected, 100);
}

TEST_F(WarpgroupTest, MultipliesBothLayoutsOfBothOperands) {
  for (const int columns : {64, 128}) {
    for (const int width : {128, 64, 32}) {
      for (const bool transposed_b : {false, true}) {
        const int64_t b_rows = transposed_b ? 64 : columns;
        for (const bool transposed_a : {false, true}) {
          expect_product({columns, width, transposed_a, transposed_b, false, transposed_a}, 64,
                         b_rows);
        }
        expect_product({columns, width, false, transposed_b, true, !transposed_b}, 64, b_rows);
      }
    }
  }
}

TEST_F(WarpgroupTest, CopiesZerosFromOutside) {
  expect_product({128, 128, false, false, false, false}, 51, 99);
  expect_product({64, 128, true, true, false, true}, 33, 5);
}

TEST_F(WarpgroupTest, CopiesAndWarpgroupsTakeTurns) {
  for (const int64_t rows : {1, 64, 448, 500}) {
    const auto x = random_values<BFloat16>(rows * 64, 4);
    Values<float> sums(64, -1.0f);
    std::vector<double> expected(64);
    for (int64_t i = 0; i < rows * 64; ++i) {
      expected[static_cast<size_t>(i % 64)] += as_double(x[static_cast<size_t>(i)]);
    }
    sum_columns_in_turns(x.data(), rows, sums.data());
    expect_close(sums, expected, 500);
  }
}

}  // namespace
}  // namespace tapestry
