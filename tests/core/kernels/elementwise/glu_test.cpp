#include "core/kernels/elementwise/glu.h"

#include "core/kernels/elementwise/activation_functors.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

// In long double, so that the references have digits to spare.
long double value(Activation gate, long double a) {
  return with_functor(gate, [&](auto functor) { return functor.f(a); });
}
long double gate_slope(Activation gate, long double a) {
  return with_functor(gate, [&](auto functor) {
    return functor.df(functor.kNeeds == functors::Needs::kOutput ? functor.f(a) : a);
  });
}

constexpr int64_t kGateRows = 3;

template <class T>
class GluTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(GluTest, FloatingTypes);

TYPED_TEST(GluTest, EqualsTheScalarFunctor) {
  using T = TypeParam;
  on_every_target([] {
    for (const Activation gate : kActivations) {
      SCOPED_TRACE(name_of(gate));
      for (const int64_t cols : {1, 31, 33, 64, 257}) {
        const Values<T> x = random_values<T>(kGateRows * 2 * cols, 1, -6, 6);
        Values<T> y(static_cast<size_t>(kGateRows * cols));
        std::vector<double> expected;
        for (int64_t row = 0; row < kGateRows; ++row) {
          for (int64_t c = 0; c < cols; ++c) {
            const T* const a = &x[row * 2 * cols + c];
            expected.push_back(static_cast<double>(value(gate, a[0]) * a[cols]));
          }
        }
        kernels::glu(TestDevice{}, gate, x.data(), y.data(), kGateRows, cols);
        expect_close(y, expected, 40);
      }
    }
  });
}

TYPED_TEST(GluTest, BackwardEqualsTheScalarFunctor) {
  using T = TypeParam;
  on_every_target([] {
    for (const Activation gate : kActivations) {
      SCOPED_TRACE(name_of(gate));
      for (const int64_t cols : {1, 31, 33, 64, 257}) {
        const Values<T> x = random_values<T>(kGateRows * 2 * cols, 1, -3, 3);
        const Values<T> dy = random_values<T>(kGateRows * cols, 2);
        std::vector<double> expected(x.size());
        for (int64_t row = 0; row < kGateRows; ++row) {
          for (int64_t c = 0; c < cols; ++c) {
            const int64_t a = row * 2 * cols + c, b = a + cols;
            const long double g = dy[row * cols + c];
            expected[a] = static_cast<double>(gate_slope(gate, x[a]) * x[b] * g);
            expected[b] = static_cast<double>(value(gate, x[a]) * g);
          }
        }
        for (const Write write : kBothWrites) {
          const Values<T> before = random_values<T>(kGateRows * 2 * cols, 3);
          Values<T> dx = before;
          kernels::glu_backward(TestDevice{}, gate, x.data(), dy.data(), dx.data(), kGateRows, cols,
                                write);
          expect_close(dx, delivered(expected, widen(before), write), 60);
        }
      }
    }
  });
}

// One row is cut into ranges of columns, many rows into ranges of rows.
TYPED_TEST(GluTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  for (const auto& [rows, cols] : {std::pair{1, 100003}, std::pair{3001, 67}}) {
    const Values<T> x = random_values<T>(rows * 2 * cols, 1);
    expect_same_for_any_threads([&, rows = rows, cols = cols] {
      Values<T> results(static_cast<size_t>(rows * cols * 3));
      T *const y = results.data(), *const dx = y + rows * cols;
      kernels::glu(TestDevice{}, Activation::kSilu, x.data(), y, rows, cols);
      kernels::glu_backward(TestDevice{}, Activation::kSilu, x.data(), y, dx, rows, cols,
                            Write::kSet);
      return results;
    });
  }
}

}  // namespace
}  // namespace tapestry
