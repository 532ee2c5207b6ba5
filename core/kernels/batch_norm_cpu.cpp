#include "core/kernels/batch_norm.h"

#include <cmath>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/batch_norm_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_BATCH_NORM_ROWS
#define TAPESTRY_BATCH_NORM_ROWS
namespace tapestry {

// The values of each column that backward needs.
template <class T>
struct BatchNormColumns {
  const Wider<T>* mean;
  const Wider<T>* rstd;
  const Wider<T>* mean_dy;
  const Wider<T>* mean_dy_xhat;
};

// All work on rows [begin, end).
template <class T>
struct BatchNormRows {
  // sums = sum of x, or with a mean sum of (x - mean)^2, by column.
  void (*sums)(const T* x, const Wider<T>* mean, int64_t cols, int64_t begin, int64_t end,
               Wider<T>* sums);
  // y = (x - mean) scale + beta.
  void (*forward)(const BatchNormForward<T>& args, const Wider<T>* scale, int64_t cols,
                  int64_t begin, int64_t end);
  // dy_sums = sum dy, xhat_sums = sum dy xhat, by column.
  void (*gradient_sums)(const BatchNormBackward<T>& args, const Wider<T>* rstd, int64_t cols,
                        int64_t begin, int64_t end, Wider<T>* dy_sums, Wider<T>* xhat_sums);
  void (*backward)(const BatchNormBackward<T>& args, const BatchNormColumns<T>& columns,
                   int64_t cols, int64_t begin, int64_t end);
  // total[i] (=|+=) factor * sum over parts of parts[p * cols + i].
  void (*reduce)(const Wider<T>* parts, int64_t count, int64_t cols, Wider<T> factor, T* total,
                 Write write);
  void (*reduce_wide)(const Wider<T>* parts, int64_t count, int64_t cols, Wider<T> factor,
                      Wider<T>* total, Write write);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void sums(const T* x, const Wider<T>* mean, int64_t cols, int64_t begin, int64_t end,
          Wider<T>* sums) {
  const Tag<T> d;
  std::fill_n(sums, cols, Wider<T>{0});
  for (int64_t r = begin; r < end; ++r) {
    const T* const row = x + r * cols;
    if (mean == nullptr) {
      each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
        io.store(d, hn::Add(io.load(d, sums + i), io.load(d, row + i)), sums + i);
      });
    } else {
      each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
        const auto centred = hn::Sub(io.load(d, row + i), io.load(d, mean + i));
        io.store(d, hn::MulAdd(centred, centred, io.load(d, sums + i)), sums + i);
      });
    }
  }
}

template <class T>
void forward(const BatchNormForward<T>& args, const Wider<T>* scale, int64_t cols, int64_t begin,
             int64_t end) {
  const Tag<T> d;
  for (int64_t r = begin; r < end; ++r) {
    const T* const x = args.x + r * cols;
    T* const y = args.y + r * cols;
    each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
      const auto centred = hn::Sub(io.load(d, x + i), io.load(d, args.mean + i));
      const auto beta = args.beta != nullptr ? io.load(d, args.beta + i) : hn::Zero(d);
      io.store(d, hn::MulAdd(centred, io.load(d, scale + i), beta), y + i);
    });
  }
}

template <class T>
void gradient_sums(const BatchNormBackward<T>& args, const Wider<T>* rstd, int64_t cols,
                   int64_t begin, int64_t end, Wider<T>* dy_sums, Wider<T>* xhat_sums) {
  const Tag<T> d;
  std::fill_n(dy_sums, cols, Wider<T>{0});
  std::fill_n(xhat_sums, cols, Wider<T>{0});
  for (int64_t r = begin; r < end; ++r) {
    const T* const x = args.x + r * cols;
    const T* const dy = args.dy + r * cols;
    each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
      const auto v = io.load(d, dy + i);
      const auto xhat =
          hn::Mul(hn::Sub(io.load(d, x + i), io.load(d, args.mean + i)), io.load(d, rstd + i));
      io.store(d, hn::Add(v, io.load(d, dy_sums + i)), dy_sums + i);
      io.store(d, hn::MulAdd(v, xhat, io.load(d, xhat_sums + i)), xhat_sums + i);
    });
  }
}

template <class T>
void backward(const BatchNormBackward<T>& args, const BatchNormColumns<T>& columns, int64_t cols,
              int64_t begin, int64_t end) {
  const Tag<T> d;
  with_write(args.dx_write, [&](auto mode) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const T* const x = args.x + r * cols;
      const T* const dy = args.dy + r * cols;
      T* const dx = args.dx + r * cols;
      each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
        const auto rstd = io.load(d, columns.rstd + i);
        const auto xhat = hn::Mul(hn::Sub(io.load(d, x + i), io.load(d, columns.mean + i)), rstd);
        const auto centred = hn::Sub(io.load(d, dy + i), io.load(d, columns.mean_dy + i));
        const auto g = hn::NegMulAdd(xhat, io.load(d, columns.mean_dy_xhat + i), centred);
        const auto scale = hn::Mul(rstd, io.load(d, args.gamma + i));
        deliver(mode, io, d, hn::Mul(scale, g), dx + i);
      });
    }
  });
}

template <class W, class T>
void reduce(const W* parts, int64_t count, int64_t cols, W factor, T* total, Write write) {
  const Tag<W> d;
  const auto factors = hn::Set(d, factor);
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
      auto sum = hn::Zero(d);
      for (int64_t p = 0; p < count; ++p) sum = hn::Add(sum, io.load(d, parts + p * cols + i));
      deliver(mode, io, d, hn::Mul(sum, factors), total + i);
    });
  });
}

template <class T>
constexpr BatchNormRows<T> kFunctions = {
    sums<T>,     forward<T>,          gradient_sums<T>,
    backward<T>, reduce<Wider<T>, T>, reduce<Wider<T>, Wider<T>>};

const PerType<BatchNormRows>* batch_norm_rows() {
  static constexpr PerType<BatchNormRows> functions = {kFunctions<float>, kFunctions<double>,
                                                       kFunctions<BFloat16>};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(batch_norm_rows);

template <class T>
const BatchNormRows<T>& rows_functions() {
  return HWY_DYNAMIC_DISPATCH(batch_norm_rows)()->of<T>();
}

// About 16k elements a tile; at most 64 tiles, so that their partial sums stay small.
int64_t rows_per_tile(int64_t rows, int64_t cols) {
  const int64_t by_size = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols));
  return std::max(by_size, (rows + 63) / 64);
}

int64_t tiles_of(int64_t rows, int64_t cols) {
  const int64_t grain = rows_per_tile(rows, cols);
  return (rows + grain - 1) / grain;
}

}  // namespace

namespace kernels {

template <class T>
void column_moments(Cpu, int64_t rows, int64_t cols, const T* x, Wider<T>* mean,
                    Wider<T>* variance) {
  const BatchNormRows<T>& functions = rows_functions<T>();
  const int64_t grain = rows_per_tile(rows, cols), tiles = tiles_of(rows, cols);
  const auto share = 1 / static_cast<Wider<T>>(rows);
  Scratch<Wider<T>> parts(tiles * cols);
  const auto moment = [&](const Wider<T>* around, Wider<T>* result) {
    parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
      functions.sums(x, around, cols, begin, end, parts.data() + begin / grain * cols);
    });
    functions.reduce_wide(parts.data(), tiles, cols, share, result, Write::kSet);
  };
  moment(nullptr, mean);
  moment(mean, variance);
}

template <class T>
void batch_norm(Cpu, const BatchNormShape& shape, const BatchNormForward<T>& args) {
  const BatchNormRows<T>& functions = rows_functions<T>();
  Scratch<Wider<T>> scale(shape.cols);
  for (int64_t c = 0; c < shape.cols; ++c) {
    scale[c] = static_cast<Wider<T>>(args.gamma[c]) /
               std::sqrt(args.variance[c] + static_cast<Wider<T>>(shape.eps));
  }
  parallel_ranges(shape.rows, rows_per_tile(shape.rows, shape.cols),
                  [&](int64_t begin, int64_t end) {
                    functions.forward(args, scale.data(), shape.cols, begin, end);
                  });
}

template <class T>
void batch_norm_backward(Cpu, const BatchNormShape& shape, const BatchNormBackward<T>& args) {
  const BatchNormRows<T>& functions = rows_functions<T>();
  const int64_t cols = shape.cols, grain = rows_per_tile(shape.rows, cols);
  const int64_t tiles = tiles_of(shape.rows, cols);
  Scratch<Wider<T>> memory((3 + 2 * tiles) * cols);
  auto *const rstd = memory.data(), *const mean_dy = rstd + cols,
              *const mean_dy_xhat = mean_dy + cols;
  auto *const dy_parts = mean_dy_xhat + cols, *const xhat_parts = dy_parts + tiles * cols;
  for (int64_t c = 0; c < cols; ++c) {
    rstd[c] = 1 / std::sqrt(args.variance[c] + static_cast<Wider<T>>(shape.eps));
  }
  parallel_ranges(shape.rows, grain, [&](int64_t begin, int64_t end) {
    const int64_t offset = begin / grain * cols;
    functions.gradient_sums(args, rstd, cols, begin, end, dy_parts + offset, xhat_parts + offset);
  });
  if (args.d_gamma != nullptr) {
    functions.reduce(xhat_parts, tiles, cols, Wider<T>{1}, args.d_gamma, args.d_gamma_write);
  }
  if (args.d_beta != nullptr) {
    functions.reduce(dy_parts, tiles, cols, Wider<T>{1}, args.d_beta, args.d_beta_write);
  }
  if (args.dx == nullptr || shape.rows == 0) return;
  const auto share = 1 / static_cast<Wider<T>>(shape.rows);
  functions.reduce_wide(dy_parts, tiles, cols, share, mean_dy, Write::kSet);
  functions.reduce_wide(xhat_parts, tiles, cols, share, mean_dy_xhat, Write::kSet);
  const BatchNormColumns<T> columns = {args.mean, rstd, mean_dy, mean_dy_xhat};
  parallel_ranges(shape.rows, grain, [&](int64_t begin, int64_t end) {
    functions.backward(args, columns, cols, begin, end);
  });
}

template <class T>
void update_running(Cpu, double momentum, double scale, const T* x, T* running, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) continue;
    running[i] = static_cast<T>((1 - momentum) * running[i] + momentum * (scale * x[i]));
  }
}

template void column_moments(Cpu, int64_t, int64_t, const float*, float*, float*);
template void column_moments(Cpu, int64_t, int64_t, const double*, double*, double*);
template void column_moments(Cpu, int64_t, int64_t, const BFloat16*, float*, float*);
template void batch_norm(Cpu, const BatchNormShape&, const BatchNormForward<float>&);
template void batch_norm(Cpu, const BatchNormShape&, const BatchNormForward<double>&);
template void batch_norm(Cpu, const BatchNormShape&, const BatchNormForward<BFloat16>&);
template void batch_norm_backward(Cpu, const BatchNormShape&, const BatchNormBackward<float>&);
template void batch_norm_backward(Cpu, const BatchNormShape&, const BatchNormBackward<double>&);
template void batch_norm_backward(Cpu, const BatchNormShape&, const BatchNormBackward<BFloat16>&);
template void update_running(Cpu, double, double, const float*, float*, int64_t);
template void update_running(Cpu, double, double, const double*, double*, int64_t);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
