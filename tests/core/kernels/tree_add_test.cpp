#include "core/kernels/tree_add.h"

#include <functional>

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

template <class T>
class TreeAdd : public FloatingTest<T> {};
TYPED_TEST_SUITE(TreeAdd, DeviceTypes);

template <class T>
using Wide = Values<Wider<T>>;

// Magnitudes far apart, so that another order gives other bits.
template <class T>
std::vector<Values<T>> operands(size_t count, int64_t n) {
  std::vector<Values<T>> x;
  for (size_t r = 0; r < count; ++r) {
    x.push_back(random_values<T>(n, 100 + r, -std::exp2(r % 5), std::exp2(r % 3)));
    for (T& value : x.back()) value = static_cast<T>(as_double(value) / 3);  // all bits count
  }
  return x;
}

template <class T>
std::vector<const T*> pointers(const std::vector<Values<T>>& x) {
  std::vector<const T*> result;
  for (const Values<T>& values : x) result.push_back(values.data());
  return result;
}

// T(a, b) of the header, word for word.
template <class T>
Wider<T> naive(const std::vector<Values<T>>& x, size_t i, size_t a, size_t b) {
  if (b - a == 1) return static_cast<Wider<T>>(x[a][i]);
  size_t power = 1;
  while (2 * power < b - a) power *= 2;
  const Wider<T> left = naive(x, i, a, a + power), right = naive(x, i, a + power, b);
  return left + right;
}

template <class T>
Wide<T> tree(const std::vector<Values<T>>& x) {
  const auto p = pointers(x);
  Wide<T> out(x[0].size());
  kernels::tree_add<T>(TestDevice{}, p, out.data(), static_cast<int64_t>(out.size()));
  finish_work();
  return out;
}

TYPED_TEST(TreeAdd, HasTheBitsOfTheNaiveTree) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t n : {1, 31, 33, 257, 40000}) {
      for (size_t count = 1; count <= 9; ++count) {
        const auto x = operands<T>(count, n);
        const Wide<T> out = tree(x);
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], naive(x, i, 0, count)) << count << " operands, element " << i;
        }
      }
    }
  });
}

// The test data tells orders apart: a running sum has other bits.
TYPED_TEST(TreeAdd, IsNoRunningSum) {
  using T = TypeParam;
  if constexpr (std::is_same_v<T, Wider<T>>) {  // sums of few bfloat16 numbers are exact
    const auto x = operands<T>(8, 257);
    const Wide<T> out = tree(x);
    int64_t different = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      T sum = 0;
      for (const Values<T>& values : x) sum += values[i];
      different += sum != out[i];
    }
    EXPECT_GT(different, 20);
  }
}

// Ranks that add up their own first, then the ranks' sums: what promises the same bits.
TYPED_TEST(TreeAdd, NodesOfPowersOfTwoMayBeAddedFirst) {
  using T = TypeParam;
  if constexpr (std::is_same_v<T, Wider<T>>) {
    for (const size_t parts : {2, 4, 6, 8, 12, 16, 24}) {
      const auto x = operands<T>(parts, 257);
      const Wide<T> whole = tree(x);
      for (size_t own = 1; own <= parts; own *= 2) {
        if (parts % own != 0) continue;
        std::vector<Values<T>> nodes;
        for (size_t r = 0; r < parts; r += own) {
          nodes.push_back(tree(std::vector<Values<T>>(x.begin() + r, x.begin() + r + own)));
        }
        EXPECT_EQ(tree(nodes), whole) << parts << " parts on " << nodes.size() << " ranks";
      }
    }
  }
}

TYPED_TEST(TreeAdd, MayOverwriteAnyOperand) {
  using T = TypeParam;
  if constexpr (std::is_same_v<T, Wider<T>>) {
    for (size_t count = 1; count <= 9; ++count) {
      const Wide<T> expected = tree(operands<T>(count, 2500));
      for (size_t r = 0; r < count; ++r) {
        auto x = operands<T>(count, 2500);
        const auto p = pointers(x);
        kernels::tree_add<T>(TestDevice{}, p, x[r].data(), 2500);
        finish_work();
        EXPECT_EQ(x[r], expected) << "operand " << r << " of " << count;
      }
    }
  }
}

TYPED_TEST(TreeAdd, RefusesNoOperandsAndTooMany) {
  using T = TypeParam;
  Wide<T> out(1);
  const Values<T> one(1);
  EXPECT_THROW(kernels::tree_add<T>(TestDevice{}, {}, out.data(), 1), Error);
  const std::vector<const T*> many(kMostTreeOperands + 1, one.data());
  EXPECT_THROW(kernels::tree_add<T>(TestDevice{}, many, out.data(), 1), Error);
}

TYPED_TEST(TreeAdd, InOrderFromLeftToRight) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t n : {1, 31, 33, 257, 40000}) {
      for (size_t count = 0; count <= 5; ++count) {
        const Values<T> x = random_values<T>(n, 1);
        std::vector<Wide<T>> sums;
        for (size_t k = 0; k < count; ++k) {
          sums.push_back(random_values<Wider<T>>(n, 50 + k, -std::exp2(k % 5), std::exp2(k % 3)));
        }
        Wide<T> expected(static_cast<size_t>(n));
        for (size_t i = 0; i < expected.size(); ++i) {
          Wider<T> sum = static_cast<Wider<T>>(x[i]);
          for (const Wide<T>& values : sums) sum = sum + values[i];
          expected[i] = sum;
        }
        const auto p = pointers(sums);
        // Into new memory, and over the last of the sums.
        Wide<T> out(static_cast<size_t>(n));
        kernels::add_in_order<T>(TestDevice{}, x.data(), p, out.data(), n);
        finish_work();
        EXPECT_EQ(out, expected) << count << " sums of " << n;
        if (count == 0) continue;
        kernels::add_in_order<T>(TestDevice{}, x.data(), p, sums.back().data(), n);
        finish_work();
        EXPECT_EQ(sums.back(), expected) << count << " sums of " << n << ", in place";
      }
    }
  });
}

TYPED_TEST(TreeAdd, AnyNumberOfThreads) {
  using T = TypeParam;
  const auto x = operands<T>(7, 100003);
  expect_same_for_any_threads([&] { return tree(x); });
}

}  // namespace
}  // namespace tapestry
