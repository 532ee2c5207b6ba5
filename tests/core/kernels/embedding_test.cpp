#include "core/kernels/embedding.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr int64_t kRows = 40, kVocab = 150, kLength = 8, kOffset = 3, kPositions = 20;
const EmbeddingShape kShape{kRows, 0, kVocab, kLength, kOffset, 5.5};

EmbeddingShape shape_of(int64_t cols) {
  EmbeddingShape shape = kShape;
  shape.cols = cols;
  return shape;
}

const Dropout kDropouts[] = {{0, {}}, {0.25f, {21, 22, 23}}};

// Ids with many repetitions, and the last row of the vocabulary among them.
Values<int32_t> some_ids() {
  Values<int32_t> ids = random_ints(kRows, 1, 12);
  ids[7] = kVocab - 1;
  return ids;
}

template <class T>
class EmbeddingTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(EmbeddingTest, FloatingTypes);

TYPED_TEST(EmbeddingTest, LooksUpScalesAndAddsPositions) {
  using T = TypeParam;
  on_every_target([] {
    const Values<int32_t> ids = some_ids();
    for (const int64_t cols : {1, 31, 33, 257, 2064}) {
      const Values<T> table = random_values<T>(kVocab * cols, 2);
      const Values<T> positions = random_values<T>(kPositions * cols, 3);
      for (const Dropout& dropout : kDropouts) {
        for (const bool with_positions : {false, true}) {
          std::vector<double> expected;
          for (int64_t r = 0; r < kRows; ++r) {
            for (int64_t c = 0; c < cols; ++c) {
              const double position = positions[(kOffset + r % kLength) * cols + c];
              const double v = 5.5 * table[ids[r] * cols + c] + (with_positions ? position : 0);
              expected.push_back(v * dropout_factor(dropout, r * cols + c));
            }
          }
          Values<T> y(expected.size());
          kernels::embedding(TestDevice{}, shape_of(cols), ids.data(), table.data(),
                             with_positions ? positions.data() : nullptr, dropout, y.data());
          expect_close(y, expected, 3);
        }
      }
    }
  });
}

TYPED_TEST(EmbeddingTest, BackwardScattersInRowOrder) {
  using T = TypeParam;
  on_every_target([] {
    const Values<int32_t> ids = some_ids();
    for (const int64_t cols : {1, 31, 33, 257, 2064}) {
      const Values<T> dy = random_values<T>(kRows * cols, 4);
      for (const Dropout& dropout : kDropouts) {
        std::vector<double> d_table(kVocab * cols), d_positions(kPositions * cols);
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            const double g = dy[r * cols + c] * dropout_factor(dropout, r * cols + c);
            d_table[ids[r] * cols + c] += 5.5 * g;
            d_positions[(kOffset + r % kLength) * cols + c] += g;
          }
        }
        for (const Write write : kBothWrites) {
          const Values<T> table_before = random_values<T>(kVocab * cols, 5);
          const Values<T> positions_before = random_values<T>(kPositions * cols, 6);
          Values<T> table = table_before, positions = positions_before;
          kernels::embedding_backward(TestDevice{}, shape_of(cols), ids.data(), dy.data(), dropout,
                                      table.data(), write, positions.data(), kPositions, write);
          expect_close(table, delivered(d_table, widen(table_before), write), 40);
          expect_close(positions, delivered(d_positions, widen(positions_before), write), 20);
        }
        Values<T> alone(kVocab * cols);
        kernels::embedding_backward<T>(TestDevice{}, shape_of(cols), ids.data(), dy.data(), dropout,
                                       alone.data(), Write::kSet, nullptr, 0, Write::kSet);
        expect_close(alone, d_table, 40);
      }
    }
  });
}

// Thousands of rows, most of two words and the rest of any word.
TYPED_TEST(EmbeddingTest, BackwardOfFrequentWords) {
  using T = TypeParam;
  const int64_t rows = 9000, cols = 8, vocab = 70000;
  Values<int32_t> ids = random_ints(rows, 1, vocab);
  for (int64_t r = 0; r < rows; ++r) {
    if (r % 4 == 0) ids[r] = 0;
    if (r % 8 == 1) ids[r] = 66000;
  }
  const Values<T> dy = random_values<T>(rows * cols, 2);
  std::vector<double> expected(vocab * cols);
  for (int64_t i = 0; i < rows * cols; ++i) expected[ids[i / cols] * cols + i % cols] += dy[i];
  Values<T> d_table(vocab * cols);
  kernels::embedding_backward<T>(TestDevice{}, {rows, cols, vocab}, ids.data(), dy.data(), {},
                                 d_table.data(), Write::kSet, nullptr, 0, Write::kSet);
  expect_close(d_table, expected, 600);  // 2250 addends
}

TEST(EmbeddingBFloat16Test, EqualsTheReference) {
  on_every_target([] {
    using T = BFloat16;
    const Values<int32_t> ids = some_ids();
    const Dropout dropout = kDropouts[1];
    for (const int64_t cols : {33, 64}) {
      SCOPED_TRACE(cols);
      const Values<T> table = random_values<T>(kVocab * cols, 2);
      const Values<T> positions = random_values<T>(kPositions * cols, 3);
      const Values<T> dy = random_values<T>(kRows * cols, 4);
      std::vector<double> expected, d_table(kVocab * cols), d_positions(kPositions * cols);
      for (int64_t i = 0; i < kRows * cols; ++i) {
        const int64_t r = i / cols, c = i % cols, at = (kOffset + r % kLength) * cols + c;
        const double factor = dropout_factor(dropout, i), g = as_double(dy[i]) * factor;
        const double v = 5.5 * as_double(table[ids[r] * cols + c]) + as_double(positions[at]);
        expected.push_back(v * factor);
        d_table[ids[r] * cols + c] += 5.5 * g;
        d_positions[at] += g;
      }
      Values<T> y(expected.size());
      kernels::embedding(TestDevice{}, shape_of(cols), ids.data(), table.data(), positions.data(),
                         dropout, y.data());
      expect_close(y, expected, 2);
      for (const Write write : kBothWrites) {
        const Values<T> table_before = random_values<T>(kVocab * cols, 5);
        const Values<T> positions_before = random_values<T>(kPositions * cols, 6);
        Values<T> to_table = table_before, to_positions = positions_before;
        kernels::embedding_backward(TestDevice{}, shape_of(cols), ids.data(), dy.data(), dropout,
                                    to_table.data(), write, to_positions.data(), kPositions, write);
        expect_close(to_table, delivered(d_table, widen(table_before), write), 2);
        expect_close(to_positions, delivered(d_positions, widen(positions_before), write), 2);
      }
    }
  });
}

TYPED_TEST(EmbeddingTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const int64_t rows = 3000, cols = 64, vocab = 500;
  const EmbeddingShape shape{rows, cols, vocab, 50, 0, 8};
  Values<int32_t> ids = random_ints(rows, 1, vocab);
  for (int64_t r = 0; r < rows; r += 3) ids[r] = 1;  // a frequent word
  const Values<T> table = random_values<T>(vocab * cols, 2);
  const Dropout dropout{0.1f, {1, 2, 3}};
  expect_same_for_any_threads([&] {
    Values<T> y(rows * cols + vocab * cols);
    kernels::embedding<T>(TestDevice{}, shape, ids.data(), table.data(), nullptr, dropout,
                          y.data());
    kernels::embedding_backward<T>(TestDevice{}, shape, ids.data(), y.data(), dropout,
                                   y.data() + rows * cols, Write::kSet, nullptr, 0, Write::kSet);
    return y;
  });
}

}  // namespace
}  // namespace tapestry
