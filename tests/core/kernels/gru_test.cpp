#include "core/kernels/recurrent/gru.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

using Reals = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One element: the state after the step, and its derivatives by x_r, x_z, x_n, h_n and h.
struct Cell {
  double r, z, n, hn, h;

  static Cell of(double xr, double xz, double xn, double hr, double hz, double hn, double h) {
    const double r = sigmoid(xr + hr);
    return {r, sigmoid(xz + hz), std::tanh(xn + r * hn), hn, h};
  }
  double out() const { return (1 - z) * n + z * h; }
  double by_n() const { return (1 - z) * (1 - n * n); }
  double by_r() const { return by_n() * hn * r * (1 - r); }
  double by_z() const { return (h - n) * z * (1 - z); }
  double by_hn() const { return by_n() * r; }
  double by_h() const { return z; }
};

constexpr int64_t kGruRows = 3;

// Gates of x and of the state in wider rows; row 1 has ended.
template <class T>
struct Step {
  explicit Step(int64_t size)
      : size(size),
        width(3 * size + 5),
        x(random_values<T>(kGruRows * width, 1)),
        hg(random_values<T>(kGruRows * width, 2)),
        bias(random_values<T>(3 * size, 3)),
        h(random_values<T>(kGruRows * (size + 2), 4)) {
    shape.rows = kGruRows;
    shape.size = size;
    shape.lengths = lengths.data();
    shape.time = 2;
  }

  GruForward<T> forward(T *out, T *saved) const {
    GruForward<T> args;
    args.x_gates = {x.data(), width};
    args.h_gates = {hg.data(), width};
    args.bias = bias.data();
    args.h = {h.data(), size + 2};
    args.out = {out, size};
    args.saved = saved;
    return args;
  }
  Cell cell(int64_t row, int64_t i) const {
    const T *const xr = &x[row * width + i], *const hr = &hg[row * width + i];
    const auto at = [&](int64_t gate) {
      return as_double(hr[gate * size]) + as_double(bias[gate * size + i]);
    };
    return Cell::of(as_double(xr[0]), as_double(xr[size]), as_double(xr[2 * size]), at(0), at(1),
                    at(2), before(row, i));
  }
  // What backward has: the saved numbers.
  Cell cell(int64_t row, int64_t i, const Values<T> &saved) const {
    const T *const s = &saved[row * 4 * size + i];
    return {as_double(s[0]), as_double(s[size]), as_double(s[2 * size]), as_double(s[3 * size]),
            before(row, i)};
  }
  double before(int64_t row, int64_t i) const { return as_double(h[row * (size + 2) + i]); }

  int64_t size, width;
  Values<T> x, hg, bias, h;
  const Values<int32_t> lengths = {3, 2, 7};
  GruShape shape;
};

template <class T>
class GruTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(GruTest, DeviceTypes);

TYPED_TEST(GruTest, EqualsTheFormulas) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t size : {1, 31, 33, 257}) {
      const Step<T> step(size);
      Values<T> out(static_cast<size_t>(kGruRows * size)), plain = out;
      Values<T> saved(static_cast<size_t>(kGruRows * 4 * size));
      kernels::gru_step(TestDevice{}, step.shape, step.forward(out.data(), saved.data()));
      kernels::gru_step(TestDevice{}, step.shape, step.forward(plain.data(), nullptr));
      Reals expected, expected_saved(saved.size());
      for (int64_t row = 0; row < kGruRows; ++row) {
        for (int64_t i = 0; i < size; ++i) {
          const Cell cell = step.cell(row, i);
          expected.push_back(row == 1 ? step.before(row, i) : cell.out());
          if (row == 1) continue;
          double *const s = &expected_saved[row * 4 * size + i];
          s[0] = cell.r, s[size] = cell.z, s[2 * size] = cell.n, s[3 * size] = cell.hn;
        }
      }
      expect_close(out, expected, one_rounding_or<T>(10));
      expect_close(saved, expected_saved, one_rounding_or<T>(10));
      EXPECT_EQ(out, plain);
    }
  });
}

// Without a state and its gates: the first step.
TYPED_TEST(GruTest, StartsFromZero) {
  using T = TypeParam;
  const int64_t size = 33;
  const Step<T> step(size);
  Values<T> out(static_cast<size_t>(kGruRows * size), T{7});
  GruForward<T> args = step.forward(out.data(), nullptr);
  args.h = {}, args.h_gates = {};
  kernels::gru_step(TestDevice{}, step.shape, args);
  Reals expected;
  for (int64_t row = 0; row < kGruRows; ++row) {
    for (int64_t i = 0; i < size; ++i) {
      const T *const x = &step.x[row * step.width + i];
      const auto bias = [&](int64_t gate) { return as_double(step.bias[gate * size + i]); };
      const Cell cell = Cell::of(as_double(x[0]), as_double(x[size]), as_double(x[2 * size]),
                                 bias(0), bias(1), bias(2), 0);
      expected.push_back(row == 1 ? 0 : cell.out());
    }
  }
  expect_close(out, expected, one_rounding_or<T>(10));
}

TYPED_TEST(GruTest, BackwardEqualsTheFormulas) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t size : {1, 31, 33, 257}) {
      const Step<T> step(size);
      Values<T> out(static_cast<size_t>(kGruRows * size));
      Values<T> saved(static_cast<size_t>(kGruRows * 4 * size));
      kernels::gru_step(TestDevice{}, step.shape, step.forward(out.data(), saved.data()));
      const Values<T> dy = random_values<T>(kGruRows * size, 5);
      const Values<T> more = random_values<T>(kGruRows * size, 6);
      Reals dx(kGruRows * 3 * size, 0.0), dhg = dx, dh(kGruRows * size, 0.0);
      for (int64_t row = 0; row < kGruRows; ++row) {
        for (int64_t i = 0; i < size; ++i) {
          const double g = as_double(dy[row * size + i]) + as_double(more[row * size + i]);
          if (row == 1) {
            dh[row * size + i] = g;
            continue;
          }
          const Cell cell = step.cell(row, i, saved);
          double *const x = &dx[row * 3 * size + i], *const hg = &dhg[row * 3 * size + i];
          x[0] = hg[0] = g * cell.by_r();
          x[size] = hg[size] = g * cell.by_z();
          x[2 * size] = g * cell.by_n();
          hg[2 * size] = g * cell.by_hn();
          dh[row * size + i] = g * cell.by_h();
        }
      }
      for (const Write write : kBothWrites) {
        const Values<T> before = random_values<T>(kGruRows * 3 * size, 7);
        const Values<T> state_before = random_values<T>(kGruRows * size, 8);
        Values<T> to_x = before, to_hg = before, to_h = state_before;
        GruBackward<T> args;
        args.saved = saved.data();
        args.h = {step.h.data(), size + 2};
        args.d_out = {dy.data(), size};
        args.d_out_more = {more.data(), size};
        args.dx_gates = {to_x.data(), 3 * size};
        args.dh_gates = {to_hg.data(), 3 * size};
        args.dh = {to_h.data(), size};
        args.dx_write = args.dh_gates_write = args.dh_write = write;
        kernels::gru_step_backward(TestDevice{}, step.shape, args);
        expect_close(to_x, delivered(dx, widen(before), write), one_rounding_or<T>(20));
        expect_close(to_hg, delivered(dhg, widen(before), write), one_rounding_or<T>(20));
        expect_close(to_h, delivered(dh, widen(state_before), write), one_rounding_or<T>(20));
      }
      // In place, as a loop over the steps does it.
      Values<T> carry = more;
      GruBackward<T> args;
      args.saved = saved.data();
      args.h = {step.h.data(), size + 2};
      args.d_out = {dy.data(), size};
      args.d_out_more = {carry.data(), size};
      args.dh = {carry.data(), size};
      kernels::gru_step_backward(TestDevice{}, step.shape, args);
      expect_close(carry, dh, one_rounding_or<T>(20));
    }
  });
}

TYPED_TEST(GruTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const int64_t rows = 301, size = 67;
  const Values<T> x = random_values<T>(rows * 3 * size, 1), h = random_values<T>(rows * size, 2);
  expect_same_for_any_threads([&] {
    Values<T> results(static_cast<size_t>(rows * size * 9));
    GruShape shape;
    shape.rows = rows, shape.size = size;
    GruForward<T> args;
    args.x_gates = {x.data(), 3 * size}, args.h_gates = {x.data(), 3 * size};
    args.h = {h.data(), size}, args.out = {results.data(), size};
    args.saved = results.data() + rows * size;
    kernels::gru_step(TestDevice{}, shape, args);
    GruBackward<T> back;
    back.saved = args.saved, back.h = args.h, back.d_out = {h.data(), size};
    back.dx_gates = {results.data() + rows * size * 5, 3 * size};
    back.dh = {results.data() + rows * size * 8, size};
    kernels::gru_step_backward(TestDevice{}, shape, back);
    return results;
  });
}

}  // namespace
}  // namespace tapestry
