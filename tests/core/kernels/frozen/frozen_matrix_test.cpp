#include "core/kernels/frozen/frozen_matrix.h"

#include "core/base/error.h"
#include "tests/core/kernels/frozen/frozen_formats.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

FrozenMatrix frozen(WeightFormat format, const Values<float>& w, int64_t rows, int64_t cols) {
  const FrozenMatrix matrix(format, rows, cols);
  const int64_t half = rows / 2;  // as a file is read: some rows after others
  matrix.store(half, rows - half, w.data() + half * cols);
  matrix.store(0, half, w.data());
  return matrix;
}

// Training by frozen matrices and answering by packed ones is the same model.
TEST(FrozenMatrix, HasTheNumbersOfAPackedMatrix) {
  for (const int64_t cols : {1, 4, 31, 33, 64, 257}) {
    const int64_t rows = 5;
    const Values<float> w = random_values<float>(rows * cols, 2);
    for (const WeightFormat format : kFrozenFormats) {
      SCOPED_TRACE(concat(name_of(format), ", ", cols, " columns"));
      const PackedMatrix packed(format, w.data(), rows, cols);
      on_every_target([&] {
        const FrozenMatrix matrix = frozen(format, w, rows, cols);
        std::vector<float> all(static_cast<size_t>(rows * cols + 1), -77), row(cols);
        matrix.read({0, rows}, {0, cols}, all.data(), cols);
        EXPECT_EQ(all.back(), -77);
        for (int64_t r = 0; r < rows; ++r) {
          packed.read_row(r, row.data());
          for (int64_t k = 0; k < cols; ++k) ASSERT_EQ(all[r * cols + k], row[k]) << r << ' ' << k;
        }
      });
    }
  }
}

TEST(FrozenMatrix, ReadsSomeRowsAndColumnsInEachType) {
  const int64_t rows = 7, cols = 101, stride = 80;
  const Values<float> w = random_values<float>(rows * cols, 3);
  for (const WeightFormat format : kFrozenFormats) {
    SCOPED_TRACE(name_of(format));
    const FrozenMatrix matrix = frozen(format, w, rows, cols);
    std::vector<float> all(rows * cols);
    matrix.read({0, rows}, {0, cols}, all.data(), cols);
    on_every_target([&] {
      std::vector<float> some(3 * stride, -77);
      std::vector<double> wide(3 * stride, -77);
      std::vector<BFloat16> narrow(3 * stride, BFloat16(-77.0F));
      matrix.read({2, 5}, {32, 100}, some.data(), stride);
      matrix.read({2, 5}, {32, 100}, wide.data(), stride);
      matrix.read({2, 5}, {32, 100}, narrow.data(), stride);
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t k = 0; k < stride; ++k) {
          const float expected = k < 68 ? all[(2 + r) * cols + 32 + k] : -77;
          ASSERT_EQ(some[r * stride + k], expected);
          ASSERT_EQ(wide[r * stride + k], double{expected});
          ASSERT_EQ(static_cast<float>(narrow[r * stride + k]),
                    static_cast<float>(BFloat16(expected)));
        }
      }
    });
  }
}

TEST(FrozenMatrix, TakesTheMemoryThatItsFormatSays) {
  EXPECT_EQ(FrozenMatrix(WeightFormat::kBFloat16, 10, 64).words().bytes(), 10 * 128);
  EXPECT_EQ(FrozenMatrix(WeightFormat::kInt8, 10, 64).words().bytes(), 10 * 68);
  EXPECT_EQ(FrozenMatrix(WeightFormat::kInt4, 10, 64).words().bytes(), 10 * 36);
  EXPECT_EQ(FrozenMatrix(WeightFormat::kInt4, 10, 65).words().bytes(), 10 * 56);
  EXPECT_THROW(FrozenMatrix(WeightFormat::kFloat32, 10, 64), Error);
}

// Bytes of a file: the same from run to run, whatever the memory held before.
TEST(FrozenMatrix, HasNoUninitialisedBytes) {
  const Values<float> w = random_values<float>(3 * 33, 4);
  for (const WeightFormat format : kFrozenFormats) {
    const FrozenMatrix matrix = frozen(format, w, 3, 33);
    const std::vector<int32_t> words = matrix.words().to_vector<int32_t>();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(frozen(format, w, 3, 33).words().to_vector<int32_t>(), words);
    }
  }
}

}  // namespace
}  // namespace tapestry
