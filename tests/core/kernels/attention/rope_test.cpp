#include "core/kernels/attention/rope.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr RopeLayout kLayouts[] = {RopeLayout::kHalf, RopeLayout::kInterleaved};
constexpr int64_t kRopePositions = 9;

// Rows in two sequences of three, from position 4 on; three heads, of which all but `kept` numbers
// are rotated, and 32 or 33 columns behind them: rows of even halves keep their alignment.
RopeShape rope_shape(int64_t half, RopeLayout layout, bool inverse = false, int64_t kept = 0) {
  const int64_t heads = 3, head_size = 2 * half + kept;
  return {.rows = 6,
          .width = heads * head_size + 32 + half % 2,
          .heads = heads,
          .head_size = head_size,
          .rotated = 2 * half,
          .length = 3,
          .position_offset = 4,
          .layout = layout,
          .inverse = inverse};
}

// Cosines and sines of any angles: the kernel does not know where they come from.
template <class T>
Values<T> table_of(int64_t half) {
  const Values<double> angles = random_values<double>(kRopePositions * half, 8, -4, 4);
  Values<T> table(static_cast<size_t>(kRopePositions * 2 * half));
  for (int64_t p = 0; p < kRopePositions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      table[p * 2 * half + i] = static_cast<T>(std::cos(angles[p * half + i]));
      table[p * 2 * half + half + i] = static_cast<T>(std::sin(angles[p * half + i]));
    }
  }
  return table;
}

// The definition: pair (a, b) becomes (a cos - b sin, a sin + b cos), the sine negated backwards.
std::vector<double> turned(const RopeShape& shape, const std::vector<double>& x,
                           const std::vector<double>& table) {
  std::vector<double> y = x;
  const int64_t half = shape.rotated / 2;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t position = shape.position_offset + row % shape.length;
    for (int64_t h = 0; h < shape.heads; ++h) {
      for (int64_t i = 0; i < half; ++i) {
        const bool halves = shape.layout == RopeLayout::kHalf;
        const int64_t head = row * shape.width + h * shape.head_size;
        const int64_t first = head + (halves ? i : 2 * i);
        const int64_t second = head + (halves ? i + half : 2 * i + 1);
        const double c = table[position * shape.rotated + i];
        const double s = (shape.inverse ? -1 : 1) * table[position * shape.rotated + half + i];
        y[first] = x[first] * c - x[second] * s;
        y[second] = x[first] * s + x[second] * c;
      }
    }
  }
  return y;
}

template <class T>
class RopeTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(RopeTest, FloatingTypes);

TYPED_TEST(RopeTest, TurnsHeadsAndCopiesTheRest) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t half : {1, 31, 32, 33, 257}) {
      const Values<T> table = table_of<T>(half);
      for (const RopeLayout layout : kLayouts) {
        for (const int64_t kept : {0, 1, 16, 64}) {
          const bool inverse = kept % 3 == 1;
          const RopeShape shape = rope_shape(half, layout, inverse, kept);
          Values<T> x = random_values<T>(shape.rows * shape.width, 1);
          const std::vector<double> expected = turned(shape, widen(x), widen(table));
          for (const Write write : kBothWrites) {
            const Values<T> before = random_values<T>(shape.rows * shape.width, 2);
            Values<T> y = before;
            kernels::rope(TestDevice{}, shape, x.data(), table.data(), y.data(), write);
            expect_close(y, delivered(expected, widen(before), write), 6);
            if (write == Write::kAdd) continue;
            for (int64_t row = 0; row < shape.rows; ++row) {
              const int64_t begin = row * shape.width + shape.heads * shape.head_size;
              for (int64_t i = begin; i < (row + 1) * shape.width; ++i) ASSERT_EQ(y[i], x[i]) << i;
            }
          }
          kernels::rope(TestDevice{}, shape, x.data(), table.data(), x.data(), Write::kSet);
          expect_close(x, expected, 6);
        }
      }
    }
  });
}

TYPED_TEST(RopeTest, InverseUndoesForward) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t half : {1, 31, 32, 33, 257}) {
      const Values<T> table = table_of<T>(half);
      for (const RopeLayout layout : kLayouts) {
        const RopeShape shape = rope_shape(half, layout);
        const Values<T> x = random_values<T>(shape.rows * shape.width, 1);
        Values<T> y(x.size()), back(x.size());
        kernels::rope(TestDevice{}, shape, x.data(), table.data(), y.data(), Write::kSet);
        kernels::rope(TestDevice{}, rope_shape(half, layout, /*inverse=*/true), y.data(),
                      table.data(), back.data(), Write::kSet);
        expect_close(back, widen(x), 12);
      }
    }
  });
}

TYPED_TEST(RopeTest, WithoutHeadsOrRows) {
  using T = TypeParam;
  RopeShape shape = rope_shape(4, RopeLayout::kHalf);
  shape.heads = 0;
  const Values<T> table = table_of<T>(4), x = random_values<T>(shape.rows * shape.width, 1);
  Values<T> y(x.size());
  kernels::rope(TestDevice{}, shape, x.data(), table.data(), y.data(), Write::kSet);
  EXPECT_EQ(y, x);
  shape.rows = 0;
  kernels::rope<T>(TestDevice{}, shape, nullptr, table.data(), nullptr, Write::kSet);
}

TYPED_TEST(RopeTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  for (const RopeLayout layout : kLayouts) {
    RopeShape shape = rope_shape(16, layout);
    shape.rows = 3000;
    const Values<T> table = table_of<T>(16), x = random_values<T>(shape.rows * shape.width, 1);
    expect_same_for_any_threads([&] {
      Values<T> y(x.size());
      kernels::rope(TestDevice{}, shape, x.data(), table.data(), y.data(), Write::kSet);
      kernels::rope(TestDevice{}, shape, x.data(), table.data(), y.data(), Write::kAdd);
      return y;
    });
  }
}

}  // namespace
}  // namespace tapestry
