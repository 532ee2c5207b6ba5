#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/elementwise/permute.h"
#include "core/kernels/reduce.h"

#include <array>

#include "core/base/error.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr Binary kOps[] = {Binary::kAdd, Binary::kSub, Binary::kMul, Binary::kDiv};

double apply(Binary op, double a, double b) {
  switch (op) {
    case Binary::kAdd:
      return a + b;
    case Binary::kSub:
      return a - b;
    case Binary::kMul:
      return a * b;
    case Binary::kDiv:
      return a / b;
  }
  return 0;
}

double slope(Binary op, int wrt, double a, double b) {
  switch (op) {
    case Binary::kAdd:
      return 1;
    case Binary::kSub:
      return wrt == 0 ? 1 : -1;
    case Binary::kMul:
      return wrt == 0 ? b : a;
    case Binary::kDiv:
      return wrt == 0 ? 1 / b : -a / (b * b);
  }
  return 0;
}

// Sums of positive numbers are compared below, so that rounding errors are relative to the result.

// For each element of the result its index in a and in b.
std::vector<std::array<int64_t, 2>> operand_indices(const Shape& a, const Shape& b) {
  const Shape result = broadcast_shapes("test", a, b);
  const auto index_in = [&](const Shape& shape, const std::array<int64_t, 4>& digits) {
    int64_t index = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const int64_t digit = digits[axis + result.rank() - shape.rank()];
      index = index * shape[axis] + (shape[axis] == 1 ? 0 : digit);
    }
    return index;
  };
  std::vector<std::array<int64_t, 2>> indices;
  for (int64_t i = 0; i < result.numel(); ++i) {
    std::array<int64_t, 4> digits = {};
    int64_t rest = i;
    for (int axis = result.rank() - 1; axis >= 0; --axis) {
      digits[axis] = rest % result[axis];
      rest /= result[axis];
    }
    indices.push_back({index_in(a, digits), index_in(b, digits)});
  }
  return indices;
}

const std::pair<Shape, Shape> kPairs[] = {
    {{}, {}},
    {{1}, {1}},
    {{257}, {257}},
    {{5, 33}, {5, 33}},
    {{7, 31}, {31}},
    {{7, 31}, {7, 1}},
    {{257}, {}},
    {{}, {3, 33}},
    {{5, 1}, {1, 33}},
    {{2, 3, 4, 5}, {3, 1, 5}},
    {{2, 1, 4, 1}, {1, 3, 1, 5}},
    {{2, 3, 4, 5}, {2, 1, 4, 1}},
    {{3, 1, 2, 1}, {3, 4, 2, 257}},
    {{2, 3, 1, 1}, {2, 3, 31, 2}},
    {{400, 129}, {129}},
    {{400, 129}, {400, 1}},
    {{3, 17000}, {3, 1}},
    {{2, 17000}, {17000}},
    {{0, 3}, {3}},
};

template <class T>
class ElementwiseTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(ElementwiseTest, FloatingTypes);

TYPED_TEST(ElementwiseTest, BinaryBroadcasts) {
  using T = TypeParam;
  for (const auto& [a_shape, b_shape] : kPairs) {
    SCOPED_TRACE(a_shape.str() + " " + b_shape.str());
    const BroadcastPlan plan = broadcast_plan("test", a_shape, b_shape);
    const auto indices = operand_indices(a_shape, b_shape);
    const Values<T> a = random_values<T>(a_shape.numel(), 1);
    const Values<T> b = random_values<T>(b_shape.numel(), 2, 0.5, 2);
    on_every_target([&] {
      for (const Binary op : kOps) {
        Values<T> y(indices.size());
        std::vector<double> expected;
        for (const auto& [p, q] : indices) expected.push_back(apply(op, a[p], b[q]));
        kernels::binary(TestDevice{}, op, plan, a.data(), b.data(), y.data());
        expect_close(y, expected, 1);
      }
    });
  }
}

TYPED_TEST(ElementwiseTest, BinaryBackwardSumsOverBroadcastAxes) {
  using T = TypeParam;
  for (const auto& [a_shape, b_shape] : kPairs) {
    SCOPED_TRACE(a_shape.str() + " " + b_shape.str());
    const BroadcastPlan plan = broadcast_plan("test", a_shape, b_shape);
    const Values<T> a = random_values<T>(a_shape.numel(), 1, 0.5, 2);
    const Values<T> b = random_values<T>(b_shape.numel(), 2, 0.5, 2);
    const auto indices = operand_indices(a_shape, b_shape);
    const Values<T> dy = random_values<T>(static_cast<int64_t>(indices.size()), 3, 0.1, 0.2);
    for (const Binary op : kOps) {
      for (const int wrt : {0, 1}) {
        std::vector<long double> sums(wrt == 0 ? a.size() : b.size());
        for (size_t i = 0; i < dy.size(); ++i) {
          const auto [p, q] = indices[i];
          sums[wrt == 0 ? p : q] += dy[i] * slope(op, wrt, a[p], b[q]);
        }
        const std::vector<double> expected(sums.begin(), sums.end());
        for (const Write write : kBothWrites) {
          const Values<T> before = random_values<T>(expected.size(), 4);
          Values<T> out = before;
          kernels::binary_backward(TestDevice{}, op, wrt, plan, a.data(), b.data(), dy.data(),
                                   out.data(), write);
          expect_close(out, delivered(expected, widen(before), write), 60);
        }
      }
    }
  }
}

TYPED_TEST(ElementwiseTest, BinaryBackwardHasTheSameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const Shape a_shape{3000, 65}, b_shape{65};
  const BroadcastPlan plan = broadcast_plan("test", a_shape, b_shape);
  const Values<T> a = random_values<T>(a_shape.numel(), 1), b = random_values<T>(65, 2);
  expect_same_for_any_threads([&] {
    Values<T> out(65);
    kernels::binary_backward(TestDevice{}, Binary::kMul, 1, plan, a.data(), b.data(), a.data(),
                             out.data(), Write::kSet);
    return out;
  });
}

TEST(BroadcastPlanTest, RefusesShapesThatDoNotFit) {
  try {
    broadcast_plan("add", {2, 3}, {4});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[add]"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("(2, 3)"), std::string::npos) << error.what();
  }
}

TYPED_TEST(ElementwiseTest, Affine) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t n : {0, 1, 31, 33, 257, 40000}) {
      const Values<T> x = random_values<T>(n, 1), before = random_values<T>(n, 2);
      std::vector<double> expected;
      for (const T v : x) expected.push_back(-1.5 * v + 0.25);
      for (const Write write : kBothWrites) {
        Values<T> y = before;
        kernels::affine(TestDevice{}, -1.5, x.data(), 0.25, y.data(), n, write);
        expect_close(y, delivered(expected, widen(before), write), 2);
      }
    }
  });
}

TYPED_TEST(ElementwiseTest, ScaleByANumberOnTheDevice) {
  using T = TypeParam;
  const Values<T> factors = {1, -1.5};
  for (const int64_t n : {0, 1, 33, 40000}) {
    const Values<T> x = random_values<T>(n, 1);
    for (const T& factor : factors) {
      std::vector<double> expected;
      for (const T v : x) expected.push_back(as_double(factor) * as_double(v));
      Values<T> y = x;
      kernels::scale(TestDevice{}, &factor, y.data(), n);
      expect_close(y, expected, 1);
    }
  }
}

TYPED_TEST(ElementwiseTest, MaskedFill) {
  using T = TypeParam;
  const double minus_inf = -std::numeric_limits<double>::infinity();
  const std::array<int64_t, 3> cases[] = {
      // n, mask elements, inner
      {257, 257, 1}, {99, 33, 1}, {310, 31, 5}, {24, 3, 2}, {40000, 1, 1}, {66000, 2, 33000}};
  on_every_target([&] {
    for (const auto& [n, mask_n, inner] : cases) {
      SCOPED_TRACE(n);
      Values<int32_t> mask = random_ints(mask_n, 1, 2);
      mask[0] = 7;  // any value but 0 counts
      const Values<T> x = random_values<T>(n, 2), before = random_values<T>(n, 3);
      for (const Write write : kBothWrites) {
        std::vector<double> expected;
        for (int64_t i = 0; i < n; ++i) {
          const bool masked = mask[i / inner % mask_n] != 0;
          const double kept = masked ? 0 : x[i];
          expected.push_back(write == Write::kAdd ? before[i] + kept : masked ? minus_inf : kept);
        }
        Values<T> y = before;
        kernels::masked_fill(TestDevice{}, x.data(), mask.data(), mask_n, inner, minus_inf,
                             y.data(), n, write);
        expect_close(y, expected, 1);
      }
    }
  });
}

// Sizes (outer, n, inner), small and large enough for several tiles and rounds.
const std::array<int64_t, 3> kReductions[] = {
    {1, 1, 1},     {3, 31, 1},  {3, 33, 5},    {2, 257, 33},  {1, 100000, 1},
    {1, 5000, 70}, {600, 7, 9}, {1, 40, 2000}, {2, 3000, 17}, {2, 0, 3}};

TYPED_TEST(ElementwiseTest, SumAxisAndItsTranspose) {
  using T = TypeParam;
  on_every_target([] {
    for (const auto& [outer, n, inner] : kReductions) {
      SCOPED_TRACE(n);
      const Values<T> x = random_values<T>(outer * n * inner, 1, 0, 1);
      const Values<T> small = random_values<T>(outer * inner, 2);
      std::vector<long double> totals(outer * inner);
      std::vector<double> spread(x.size());
      for (int64_t o = 0; o < outer; ++o) {
        for (int64_t r = 0; r < n; ++r) {
          for (int64_t i = 0; i < inner; ++i) {
            totals[o * inner + i] += 0.5 * x[(o * n + r) * inner + i];
            spread[(o * n + r) * inner + i] = 0.5 * small[o * inner + i];
          }
        }
      }
      const std::vector<double> sums(totals.begin(), totals.end());
      for (const Write write : kBothWrites) {
        const Values<T> before = random_values<T>(outer * inner, 3);
        Values<T> y = before;
        kernels::sum_axis(TestDevice{}, x.data(), y.data(), outer, n, inner, 0.5, write);
        expect_close(y, delivered(sums, widen(before), write), 4 + std::sqrt(n) / 4);
        Values<T> wide = x;
        kernels::broadcast_axis(TestDevice{}, small.data(), wide.data(), outer, n, inner, 0.5,
                                write);
        expect_close(wide, delivered(spread, widen(x), write), 2);
      }
    }
  });
}

TYPED_TEST(ElementwiseTest, SumAxisHasTheSameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  for (const auto& [outer, n, inner] : kReductions) {
    const Values<T> x = random_values<T>(outer * n * inner, 1);
    expect_same_for_any_threads([&, outer = outer, n = n, inner = inner] {
      Values<T> y(outer * inner);
      kernels::sum_axis(TestDevice{}, x.data(), y.data(), outer, n, inner, 1, Write::kSet);
      return y;
    });
  }
}

TYPED_TEST(ElementwiseTest, CopyBlock) {
  using T = TypeParam;
  const std::array<int64_t, 4> cases[] = {// rows, cols, stride of x, stride of y
                                          {1, 1, 1, 1},    {5, 31, 31, 31},
                                          {5, 31, 40, 33}, {7, 257, 300, 257},
                                          {3, 64, 68, 72}, {2, 20000, 20001, 20002}};
  for (const auto& [rows, cols, x_stride, y_stride] : cases) {
    const Values<T> x = random_values<T>(rows * x_stride, 1);
    const Values<T> before = random_values<T>(rows * y_stride, 2);
    for (const Write write : kBothWrites) {
      Values<T> y = before, expected = before;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          T& target = expected[r * y_stride + c];
          target = (write == Write::kAdd ? target : 0) + x[r * x_stride + c];
        }
      }
      kernels::copy_block(TestDevice{}, x.data(), x_stride, y.data(), y_stride, rows, cols, write);
      EXPECT_EQ(y, expected);
    }
  }
}

TYPED_TEST(ElementwiseTest, PermuteInEveryOrder) {
  using T = TypeParam;
  const std::array<int64_t, 4> shapes[] = {{2, 3, 4, 5}, {1, 7, 1, 33},    {3, 1, 17, 31},
                                           {2, 3, 5, 8}, {1, 1, 257, 130}, {1, 1, 1, 1},
                                           {2, 0, 3, 4}};
  for (const auto& shape : shapes) {
    const int64_t size[4] = {shape[0], shape[1], shape[2], shape[3]};
    const int64_t n = size[0] * size[1] * size[2] * size[3];
    const Values<T> x = random_values<T>(n, 1), before = random_values<T>(n, 2);
    int order[4] = {0, 1, 2, 3};
    do {
      int64_t out_size[4], stride[4] = {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1};
      for (int i = 0; i < 4; ++i) out_size[i] = size[order[i]];
      Values<T> permuted;
      for (int64_t i = 0; i < n; ++i) {
        int64_t rest = i, from = 0;
        for (int axis = 3; axis >= 0; --axis) {
          from += rest % out_size[axis] * stride[order[axis]];
          rest /= out_size[axis];
        }
        permuted.push_back(x[from]);
      }
      for (const Write write : kBothWrites) {
        Values<T> y = before;
        kernels::permute(TestDevice{}, x.data(), y.data(), size, order, write);
        expect_close(y, delivered(widen(permuted), widen(before), write), 1);
      }
    } while (std::next_permutation(order, order + 4));
  }
}

}  // namespace
}  // namespace tapestry
