#include "core/kernels/recurrent/ssru.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

using Reals = std::vector<double>;

// The naive loop over three sequences of 4 rows, or of 1, 6 and 5 with starts.
template <class T>
struct Recurrence {
  Recurrence(int64_t size, bool even)
      : size(size),
        x(random_values<T>(kRows * 2 * size, 1)),
        bias(random_values<T>(size, 2)),
        starts(even ? Values<int32_t>{0, 4, 8, 12} : Values<int32_t>{0, 1, 7, 12}) {
    shape.sequences = 3, shape.steps = even ? 4 : 6, shape.size = size;
    if (!even) shape.starts = starts.data();
  }

  SsruForward<T> forward(T* states, T* out) const {
    return {x.data(), bias.data(), {}, states, out};
  }
  double gate(int64_t row, int64_t i) const {
    return 1 / (1 + std::exp(-as_double(x[row * 2 * size + i]) - as_double(bias[i])));
  }
  double value(int64_t row, int64_t i) const { return as_double(x[row * 2 * size + size + i]); }

  static constexpr int64_t kRows = 12;
  int64_t size;
  Values<T> x, bias;
  Values<int32_t> starts;
  SsruShape shape;
};

template <class T>
class SsruTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(SsruTest, DeviceTypes);

TYPED_TEST(SsruTest, EqualsTheFormulas) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t size : {1, 31, 33, 257}) {
      for (const bool even : {true, false}) {
        const Recurrence<T> r(size, even);
        Reals states, out;
        for (int64_t row = 0; row < r.kRows; ++row) {
          const bool first = std::ranges::find(r.starts, row) != r.starts.end();
          for (int64_t i = 0; i < size; ++i) {
            const double before = first ? 0 : states[states.size() - size], f = r.gate(row, i);
            states.push_back(f * before + (1 - f) * r.value(row, i));
            out.push_back(std::max(0.0, states.back()));
          }
        }
        Values<T> c(states.size()), h(out.size()), plain(out.size());
        kernels::ssru(TestDevice{}, r.shape, r.forward(c.data(), h.data()));
        kernels::ssru(TestDevice{}, r.shape, r.forward(nullptr, plain.data()));
        expect_close(c, states, one_rounding_or<T>(20));
        expect_close(h, out, one_rounding_or<T>(20));
        EXPECT_EQ(h, plain);
      }
    }
  });
}

// Each goes on from a row that its table names; the one of length 1 begins.
TYPED_TEST(SsruTest, GoesOnFromEarlierStates) {
  using T = TypeParam;
  for (const int64_t size : {1, 33, 257}) {
    Recurrence<T> r(size, true);
    r.shape.steps = 1;
    const Values<T> earlier = random_values<T>(5 * size, 3);
    const Values<int32_t> rows = {4, 1, 0, 0, 0, 0, 2, 3, 1}, lengths = {2, 1, 3};
    SsruForward<T> args;
    Values<T> c(3 * size), h(3 * size);
    args = r.forward(c.data(), h.data());
    args.before = {earlier.data(), rows.data(), 3, lengths.data()};
    kernels::ssru(TestDevice{}, r.shape, args);
    Reals expected;
    for (int64_t row = 0; row < 3; ++row) {
      const int64_t from = row == 0 ? 4 : 3;
      for (int64_t i = 0; i < size; ++i) {
        const double before = row == 1 ? 0 : as_double(earlier[from * size + i]);
        const double f = r.gate(row, i);
        expected.push_back(f * before + (1 - f) * r.value(row, i));
      }
    }
    expect_close(c, expected, one_rounding_or<T>(20));
  }
}

TYPED_TEST(SsruTest, BackwardEqualsTheFormulas) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t size : {1, 31, 33, 257}) {
      for (const bool even : {true, false}) {
        const Recurrence<T> r(size, even);
        const int64_t rows = r.kRows;
        Values<T> c(rows * size), h(rows * size);
        kernels::ssru(TestDevice{}, r.shape, r.forward(c.data(), h.data()));
        finish_work();
        const Values<T> dy = random_values<T>(rows * size, 5);
        Reals dx(rows * 2 * size), d_bias(3 * size, 0.0);
        for (int64_t s = 0; s < 3; ++s) {
          for (int64_t i = 0; i < size; ++i) {
            double carry = 0;
            for (int64_t row = r.starts[s + 1] - 1; row >= r.starts[s]; --row) {
              const double f = r.gate(row, i), v = r.value(row, i);
              const double state = as_double(c[row * size + i]);
              const double before = row > r.starts[s] ? as_double(c[(row - 1) * size + i]) : 0;
              const double dc = carry + (state > 0 ? as_double(dy[row * size + i]) : 0);
              dx[row * 2 * size + i] = dc * (before - v) * f * (1 - f);
              dx[row * 2 * size + size + i] = dc * (1 - f);
              d_bias[s * size + i] += dx[row * 2 * size + i];
              carry = dc * f;
            }
          }
        }
        for (const Write write : kBothWrites) {
          const Values<T> old = random_values<T>(rows * 2 * size, 7);
          Values<T> to_x = old, to_bias(3 * size);
          kernels::ssru_backward(TestDevice{}, r.shape,
                                 SsruBackward<T>{r.x.data(), r.bias.data(), c.data(), dy.data(),
                                                 to_x.data(), write, to_bias.data()});
          expect_close(to_x, delivered(dx, widen(old), write), one_rounding_or<T>(30));
          expect_close(to_bias, d_bias, one_rounding_or<T>(30));
          Values<T> only_bias(3 * size);
          kernels::ssru_backward(TestDevice{}, r.shape,
                                 SsruBackward<T>{r.x.data(), r.bias.data(), c.data(), dy.data(),
                                                 nullptr, write, only_bias.data()});
          EXPECT_EQ(only_bias, to_bias);
        }
      }
    }
  });
}

TYPED_TEST(SsruTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const int64_t sequences = 37, steps = 9, size = 300, rows = sequences * steps;
  const Values<T> x = random_values<T>(rows * 2 * size, 1), dy = random_values<T>(rows * size, 2);
  expect_same_for_any_threads([&] {
    Values<T> results(static_cast<size_t>(rows * size * 4 + sequences * size));
    SsruShape shape;
    shape.sequences = sequences, shape.steps = steps, shape.size = size;
    T* const states = results.data();
    T* const dx = states + 2 * rows * size;
    kernels::ssru(TestDevice{}, shape,
                  SsruForward<T>{x.data(), nullptr, {}, states, states + rows * size});
    kernels::ssru_backward(TestDevice{}, shape,
                           SsruBackward<T>{x.data(), nullptr, states, dy.data(), dx, Write::kSet,
                                           dx + 2 * rows * size});
    return results;
  });
}

}  // namespace
}  // namespace tapestry
