#include "core/kernels/norm.h"

#include <cmath>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/profile.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/norm_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/philox_simd-inl.h"
#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_NORM_ROWS
#define TAPESTRY_NORM_ROWS
namespace tapestry {

template <class T>
struct NormRows {
  // Rows [begin, end).
  void (*forward)(const NormShape& shape, const NormForward<T>& args, int64_t begin, int64_t end);
  // The same, adding d gamma and d beta of these rows to the partial sums (cols each, or null).
  void (*backward)(const NormShape& shape, const NormBackward<T>& args, int64_t begin, int64_t end,
                   Wider<T>* d_gamma, Wider<T>* d_beta);
  // total[i] (=|+=) sum over parts of parts[p * cols + i].
  void (*reduce)(const Wider<T>* parts, int64_t count, int64_t cols, T* total, Write write);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// Columns whose dropout factors are drawn at a time.
constexpr int64_t kChunk = 512;

// Calls body(io, i, factor) with the dropout factors of elements from first + i on.
template <class T, class Body>
HWY_INLINE void each_dropped(const Dropout& dropout, int64_t first, int64_t cols, Body body) {
  const Tag<T> d;
  using W = Wider<T>;
  const DropoutFactors<W> factors(dropout);
  HWY_ALIGN W memory[kChunk + DropoutFactors<W>::kPadding];
  for (int64_t begin = 0; begin < cols; begin += kChunk) {
    const int64_t n = std::min(kChunk, cols - begin);
    const W* const factor = factors.fill(static_cast<uint64_t>(first + begin), n, memory);
    each_vector(d, n,
                [&](auto io, int64_t i) HWY_ATTR { body(io, begin + i, io.load(d, factor + i)); });
  }
}

template <class T>
void forward(const NormShape& shape, const NormForward<T>& args, int64_t begin, int64_t end) {
  using W = Wider<T>;
  const Tag<T> d;
  const int64_t cols = shape.cols;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x + r * cols;
    if (args.residual != nullptr) {
      const T* const residual = args.residual + r * cols;
      // If args.sum is null, y holds the sum until the norm overwrites it.
      T* const sum = (args.sum != nullptr ? args.sum : args.y) + r * cols;
      if (args.dropout.p > 0) {
        each_dropped<T>(
            args.dropout, r * cols, cols, [&](auto io, int64_t i, auto factor) HWY_ATTR {
              io.store(d, hn::MulAdd(io.load(d, x + i), factor, io.load(d, residual + i)), sum + i);
            });
      } else {
        each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
          io.store(d, hn::Add(io.load(d, x + i), io.load(d, residual + i)), sum + i);
        });
      }
      x = sum;
    }
    W mean = 0;
    if (shape.kind == NormKind::kLayer) {
      LineSums<T> sums;
      each_line<T>(cols, [&](auto io, int64_t i, auto part)
                             HWY_ATTR { sums[part] = hn::Add(sums[part], io.load(d, x + i)); });
      mean = sums.total() / static_cast<W>(cols);
      args.mean[r] = mean;
    }
    const auto means = hn::Set(d, mean);
    LineSums<T> squares;
    each_line<T>(cols, [&](auto io, int64_t i, auto part) HWY_ATTR {
      const auto centred = io.or_else(d, hn::Sub(io.load(d, x + i), means), hn::Zero(d));
      squares[part] = hn::MulAdd(centred, centred, squares[part]);
    });
    const W variance = squares.total() / static_cast<W>(cols);
    const W rstd = 1 / std::sqrt(variance + static_cast<W>(shape.eps));
    args.rstd[r] = rstd;
    const auto scale = hn::Set(d, rstd);
    T* const y = args.y + r * cols;
    each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
      const auto xhat = hn::Mul(hn::Sub(io.load(d, x + i), means), scale);
      const auto beta = args.beta != nullptr ? io.load(d, args.beta + i) : hn::Zero(d);
      io.store(d, hn::MulAdd(xhat, io.load(d, args.gamma + i), beta), y + i);
    });
  }
}

// dx (=|+=) v
template <class T, class Io, class V>
HWY_INLINE void write_to(Io io, V v, T* target, Write write) {
  const Tag<T> d;
  if (write == Write::kAdd) v = hn::Add(io.load(d, target), v);
  io.store(d, v, target);
}

// g = gamma dy, xhat = (x - mean) rstd:
// ds = rstd (g - mean(g) - xhat mean(g xhat)) + dsum; RMS has no mean(g).
template <class T>
void backward(const NormShape& shape, const NormBackward<T>& args, int64_t begin, int64_t end,
              Wider<T>* d_gamma, Wider<T>* d_beta) {
  using W = Wider<T>;
  const Tag<T> d;
  const int64_t cols = shape.cols;
  const auto zero = hn::Zero(d);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t first = r * cols;
    const T* const x = args.sum + first;
    const T* const dy = args.dy != nullptr ? args.dy + first : nullptr;
    const T* const dsum = args.dsum != nullptr ? args.dsum + first : nullptr;
    const auto means = hn::Set(d, shape.kind == NormKind::kLayer ? args.mean[r] : W{0});
    const auto rstd = hn::Set(d, args.rstd[r]);
    auto g_mean = zero, gx_mean = zero;
    if (dy != nullptr) {
      LineSums<T> g_sum, gx_sum;
      each_line<T>(cols, [&](auto io, int64_t i, auto part) HWY_ATTR {
        const auto v = io.load(d, dy + i);
        const auto xhat = hn::Mul(hn::Sub(io.load(d, x + i), means), rstd);
        const auto g = hn::Mul(v, io.load(d, args.gamma + i));
        g_sum[part] = hn::Add(g_sum[part], g);
        gx_sum[part] = hn::MulAdd(g, xhat, gx_sum[part]);
        if (d_gamma != nullptr) {
          io.store(d, hn::MulAdd(v, xhat, io.load(d, d_gamma + i)), d_gamma + i);
        }
        if (d_beta != nullptr) io.store(d, hn::Add(v, io.load(d, d_beta + i)), d_beta + i);
      });
      const W n = static_cast<W>(cols);
      if (shape.kind == NormKind::kLayer) g_mean = hn::Set(d, g_sum.total() / n);
      gx_mean = hn::Set(d, gx_sum.total() / n);
    }
    const auto gradient = [&](auto io, int64_t i) HWY_ATTR {
      auto ds = dsum != nullptr ? io.load(d, dsum + i) : zero;
      if (dy != nullptr) {
        const auto xhat = hn::Mul(hn::Sub(io.load(d, x + i), means), rstd);
        const auto g = hn::Mul(io.load(d, dy + i), io.load(d, args.gamma + i));
        ds = hn::MulAdd(rstd, hn::NegMulAdd(xhat, gx_mean, hn::Sub(g, g_mean)), ds);
      }
      return ds;
    };
    const auto deliver_both = [&](auto io, int64_t i, auto ds, auto factor) HWY_ATTR {
      if (args.d_residual != nullptr) {
        write_to(io, ds, args.d_residual + first + i, args.d_residual_write);
      }
      if (args.dx != nullptr) {
        write_to(io, hn::Mul(ds, factor), args.dx + first + i, args.dx_write);
      }
    };
    if (args.dropout.p > 0 && args.dx != nullptr) {
      each_dropped<T>(args.dropout, first, cols, [&](auto io, int64_t i, auto factor) HWY_ATTR {
        deliver_both(io, i, gradient(io, i), factor);
      });
    } else {
      const auto one = hn::Set(d, W{1});
      each_vector(d, cols,
                  [&](auto io, int64_t i) HWY_ATTR { deliver_both(io, i, gradient(io, i), one); });
    }
  }
}

template <class T>
void reduce(const Wider<T>* parts, int64_t count, int64_t cols, T* total, Write write) {
  const Tag<T> d;
  each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int64_t p = 0; p < count; ++p) sum = hn::Add(sum, io.load(d, parts + p * cols + i));
    write_to(io, sum, total + i, write);
  });
}

template <class T>
constexpr NormRows<T> kFunctions = {forward<T>, backward<T>, reduce<T>};

const PerType<NormRows>* norm_rows() {
  static constexpr PerType<NormRows> functions = {kFunctions<float>, kFunctions<double>,
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

HWY_EXPORT(norm_rows);

template <class T>
const NormRows<T>& rows_functions() {
  return HWY_DYNAMIC_DISPATCH(norm_rows)()->of<T>();
}

// About 16k elements a tile; at most 64 tiles, so that their partial sums stay small.
int64_t rows_per_tile(const NormShape& shape) {
  const int64_t by_size = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, shape.cols));
  return std::max(by_size, (shape.rows + 63) / 64);
}

}  // namespace

namespace kernels {

template <class T>
void norm(Cpu, const NormShape& shape, const NormForward<T>& args) {
  const ProfileScope profile(Part::kNorms);
  const auto forward = rows_functions<T>().forward;
  parallel_ranges(shape.rows, rows_per_tile(shape),
                  [&](int64_t begin, int64_t end) { forward(shape, args, begin, end); });
}

template <class T>
void norm_backward(Cpu, const NormShape& shape, const NormBackward<T>& args) {
  const ProfileScope profile(Part::kNorms);
  const NormRows<T>& rows = rows_functions<T>();
  const int64_t grain = rows_per_tile(shape), cols = shape.cols;
  const int64_t tiles = (shape.rows + grain - 1) / grain;
  using W = Wider<T>;
  Scratch<W> gamma_parts(args.d_gamma != nullptr ? tiles * cols : 0);
  Scratch<W> beta_parts(args.d_beta != nullptr ? tiles * cols : 0);
  parallel_ranges(shape.rows, grain, [&](int64_t begin, int64_t end) {
    const int64_t offset = begin / grain * cols;
    W* const d_gamma = args.d_gamma != nullptr ? gamma_parts.data() + offset : nullptr;
    W* const d_beta = args.d_beta != nullptr ? beta_parts.data() + offset : nullptr;
    if (d_gamma != nullptr) std::fill_n(d_gamma, cols, W{0});
    if (d_beta != nullptr) std::fill_n(d_beta, cols, W{0});
    rows.backward(shape, args, begin, end, d_gamma, d_beta);
  });
  if (args.d_gamma != nullptr) {
    rows.reduce(gamma_parts.data(), tiles, cols, args.d_gamma, args.d_gamma_write);
  }
  if (args.d_beta != nullptr) {
    rows.reduce(beta_parts.data(), tiles, cols, args.d_beta, args.d_beta_write);
  }
}

template void norm(Cpu, const NormShape&, const NormForward<float>&);
template void norm(Cpu, const NormShape&, const NormForward<double>&);
template void norm(Cpu, const NormShape&, const NormForward<BFloat16>&);
template void norm_backward(Cpu, const NormShape&, const NormBackward<float>&);
template void norm_backward(Cpu, const NormShape&, const NormBackward<double>&);
template void norm_backward(Cpu, const NormShape&, const NormBackward<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
