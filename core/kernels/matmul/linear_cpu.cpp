#include "core/kernels/matmul/linear.h"

#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/linear_rows.h"
#include "core/kernels/cpu/linear_tiles.h"
#include "core/kernels/cpu/rounded_product.h"
#include "core/kernels/cpu/tile_grid.h"
#include "core/kernels/frozen/frozen_matrix.h"
#include "core/kernels/matmul/gemm.h"
#include "core/profile.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/matmul/linear_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/activation_simd-inl.h"
#include "core/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void finish(Activation activation, const T* bias, const Wider<T>* sums, T* z, T* y, int64_t n) {
  const Tag<T> d;
  with_functor(activation, [&](auto functor) HWY_ATTR {
    using Form = simd::Form<decltype(functor)>;
    constexpr bool kPlain = std::is_same_v<decltype(functor), functors::Identity>;
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      auto v = io.load(d, sums + i);
      if (bias != nullptr) v = hn::Add(v, io.load(d, bias + i));
      if (z != nullptr) io.store(d, v, z + i);
      if constexpr (kPlain) {
        if (y != z) io.store(d, v, y + i);
      } else {
        io.store(d, Form::f(d, v), y + i);
      }
    });
  });
}

template <class T>
void add_to(const T* x, Wider<T>* total, int64_t n) {
  const Tag<T> d;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Add(io.load(d, total + i), io.load(d, x + i)), total + i);
  });
}

template <class T>
void backward(Activation activation, const T* z, const T* y, const T* dy, T* dz, Wider<T>* d_bias,
              int64_t n) {
  const Tag<T> d;
  with_functor(activation, [&](auto functor) HWY_ATTR {
    using Form = simd::Form<decltype(functor)>;
    if constexpr (std::is_same_v<decltype(functor), functors::Identity>) {
      if (d_bias != nullptr) add_to(dy, d_bias, n);
    } else {
      const T* const v = functors::argument_of_df<Form>(z, y, dy);
      each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
        const auto g = hn::Mul(Form::df(d, io.load(d, v + i)), io.load(d, dy + i));
        io.store(d, g, dz + i);
        if (d_bias != nullptr) io.store(d, hn::Add(io.load(d, d_bias + i), g), d_bias + i);
      });
    }
  });
}

template <class T>
void reduce(const Wider<T>* parts, int64_t count, int64_t n, T* total, Write write) {
  const Tag<T> d;
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      auto sum = hn::Zero(d);
      for (int64_t p = 0; p < count; ++p) sum = hn::Add(sum, io.load(d, parts + p * n + i));
      deliver(mode, io, d, sum, total + i);
    });
  });
}

template <class T>
void deliver_sums(const Wider<T>* sums, Wider<T> alpha, Wider<T> beta, T* y, int64_t n) {
  const Tag<T> d;
  const auto alphas = hn::Set(d, alpha), betas = hn::Set(d, beta);
  if (beta == 0) {
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      io.store(d, hn::Mul(io.load(d, sums + i), alphas), y + i);
    });
  } else {
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      const auto sum = hn::Mul(io.load(d, sums + i), alphas);
      io.store(d, hn::MulAdd(io.load(d, y + i), betas, sum), y + i);
    });
  }
}

template <class T>
constexpr LinearRows<T> kFunctions = {finish<T>, backward<T>, reduce<T>, deliver_sums<T>};

const PerType<LinearRows>* linear_rows() {
  static constexpr PerType<LinearRows> functions = {kFunctions<float>, kFunctions<double>,
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

HWY_EXPORT(linear_rows);

}  // namespace

template <class T>
const LinearRows<T>& linear_rows_functions() {
  return HWY_DYNAMIC_DISPATCH(linear_rows)()->of<T>();
}
template const LinearRows<float>& linear_rows_functions();
template const LinearRows<double>& linear_rows_functions();
template const LinearRows<BFloat16>& linear_rows_functions();

namespace {

// dz = act'(z) dy into `dz` (unused with kNone), and db, in one pass over the rows.
template <class T>
void activation_backward(const LinearShape& shape, const LinearBackward<T>& args, T* dz) {
  using W = Wider<T>;
  const LinearRows<T>& functions = linear_rows_functions<T>();
  const int64_t out = shape.out;
  // At most 64 tiles, so that their partial sums of the bias stay small.
  const int64_t grain = std::max<int64_t>({1, 16384 / out, (shape.rows + 63) / 64});
  const int64_t tiles = (shape.rows + grain - 1) / grain;
  const bool bias = args.d_bias != nullptr;
  Scratch<W> parts(bias ? std::max<int64_t>(1, tiles) * out : 1);
  parallel_ranges(shape.rows, grain, [&](int64_t begin, int64_t end) {
    W* const part = bias ? parts.data() + begin / grain * out : nullptr;
    if (bias) std::fill_n(part, out, W{0});
    for (int64_t r = begin; r < end; ++r) {
      const int64_t i = r * out;
      functions.backward(shape.activation, args.z != nullptr ? args.z + i : nullptr,
                         args.y != nullptr ? args.y + i : nullptr, args.dy + i,
                         dz != nullptr ? dz + i : nullptr, part, out);
    }
  });
  if (bias) functions.reduce(parts.data(), tiles, out, args.d_bias, args.d_bias_write);
}

double beta_of(Write write) { return write == Write::kAdd ? 1 : 0; }

// Numbers of a frozen matrix that a task widens for itself.
constexpr int64_t kWidenedBytes = int64_t{8} << 20;

// Columns of a product that a task may have, `depth` deep.
template <class T>
int64_t widened_columns(int64_t depth) {
  constexpr int64_t kStep = 2 * FrozenMatrix::kGroup;
  const int64_t fitting = kWidenedBytes / (std::max<int64_t>(1, depth) * int64_t{sizeof(T)});
  return std::max<int64_t>(1, fitting / kStep) * kStep;
}

// A tile of x W^T, `stride` between its rows.
template <class T>
void multiply_tile(const LinearShape& shape, const LinearForward<T>& args, kernels::Range rows,
                   kernels::Range cols, Wider<T>* sums, int64_t stride) {
  const T* const x = args.x + rows.begin * shape.in;
  Scratch<T> widened(args.frozen != nullptr ? cols.size() * shape.in : 0);
  if (args.frozen != nullptr) args.frozen->read(cols, {0, shape.in}, widened.data(), shape.in);
  const T* const weight =
      args.frozen != nullptr ? widened.data() : args.weight + cols.begin * shape.in;
  if constexpr (std::is_same_v<T, BFloat16>) {
    kernels::rounded_product({.m = rows.size(),
                              .n = cols.size(),
                              .k = shape.in,
                              .a = {x, shape.in, true},
                              .b = {weight, shape.in, true},
                              .c = sums,
                              .ldc = stride});
  } else {
    Gemm<T> g;
    g.m = rows.size(), g.n = cols.size(), g.k = shape.in;
    g.a = x, g.lda = shape.in;
    g.b = weight, g.ldb = shape.in, g.trans_b = true;
    g.c = sums, g.ldc = stride;
    kernels::gemm_tile(Cpu{}, g);
  }
}

// dx (=|+=) dz W, of which a task widens some columns.
template <class T>
void frozen_dx(const LinearShape& shape, const LinearBackward<T>& args, const T* dz) {
  const kernels::Cut pieces{shape.in, widened_columns<T>(shape.out)};
  parallel_for(pieces.count(), [&](int64_t task) {
    const kernels::Range cols = pieces[task];
    Scratch<T> weight(shape.out * cols.size());
    args.frozen->read({0, shape.out}, cols, weight.data(), cols.size());
    Gemm<T> g;
    g.m = shape.rows, g.n = cols.size(), g.k = shape.out;
    g.a = dz, g.lda = shape.out;
    g.b = weight.data(), g.ldb = cols.size();
    g.c = args.dx + cols.begin, g.ldc = shape.in, g.beta = beta_of(args.dx_write);
    kernels::gemm_tile(Cpu{}, g);
  });
}

}  // namespace

namespace kernels {

template <class T>
void linear(Cpu, const LinearShape& shape, const LinearForward<T>& args) {
  const ProfileScope profile(Part::kProducts);
  if constexpr (!std::is_same_v<T, double>) {
    if (runs_on_tiles<T>(shape.precision)) return linear_on_tiles(shape, args);
  }
  constexpr bool kRounds = !std::is_same_v<T, Wider<T>>;
  const LinearRows<T>& functions = linear_rows_functions<T>();
  TileGrid grid = tile_grid(shape.rows, shape.out, shape.in, 1, /*may_cut_k=*/false);
  if (args.frozen != nullptr) {
    grid.n.length = std::min(grid.n.length, widened_columns<T>(shape.in));
  }
  T* const z = args.z != nullptr ? args.z : args.y;
  const bool epilogue =
      kRounds || args.bias != nullptr || shape.activation != Activation::kNone || z != args.y;
  // Adds a tile's bias and applies the activation by the thread that multiplied it.
  parallel_for(grid.m.count() * grid.n.count(), [&](int64_t tile) {
    const Range rows = grid.m[tile / grid.n.count()], cols = grid.n[tile % grid.n.count()];
    Scratch<Wider<T>> scratch(kRounds ? rows.size() * cols.size() : 0);
    Wider<T>* sums = scratch.data();
    int64_t stride = cols.size();
    if constexpr (!kRounds) sums = z + rows.begin * shape.out + cols.begin, stride = shape.out;
    multiply_tile(shape, args, rows, cols, sums, stride);
    if (!epilogue) return;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t i = r * shape.out + cols.begin;
      functions.finish(shape.activation, args.bias != nullptr ? args.bias + cols.begin : nullptr,
                       sums + (r - rows.begin) * stride, args.z != nullptr ? args.z + i : nullptr,
                       args.y + i, cols.size());
    }
  });
}

template <class T>
void linear_backward(Cpu, const LinearShape& shape, const LinearBackward<T>& args) {
  const ProfileScope profile(Part::kProducts);
  if constexpr (!std::is_same_v<T, double>) {
    if (runs_on_tiles<T>(shape.precision)) return linear_backward_on_tiles(shape, args);
  }
  const bool activated = shape.activation != Activation::kNone;
  Scratch<T> scratch(activated ? std::max<int64_t>(1, shape.rows * shape.out) : 1);
  const T* const dz = activated ? scratch.data() : args.dy;
  if (activated || args.d_bias != nullptr) {
    activation_backward(shape, args, activated ? scratch.data() : nullptr);
  }
  if (args.dx != nullptr && args.frozen != nullptr) {
    frozen_dx(shape, args, dz);
  } else if (args.dx != nullptr) {
    Gemm<T> g;
    g.m = shape.rows, g.n = shape.in, g.k = shape.out;
    g.a = dz, g.lda = shape.out;
    g.b = args.weight, g.ldb = shape.in;
    g.c = args.dx, g.ldc = shape.in, g.beta = beta_of(args.dx_write);
    gemm(Cpu{}, g);
  }
  if (args.d_weight != nullptr) {
    Gemm<T> g;
    g.m = shape.out, g.n = shape.in, g.k = shape.rows;
    g.a = dz, g.lda = shape.out, g.trans_a = true;
    g.b = args.x, g.ldb = shape.in;
    g.c = args.d_weight, g.ldc = shape.in, g.beta = beta_of(args.d_weight_write);
    gemm(Cpu{}, g);
  }
}

template void linear(Cpu, const LinearShape&, const LinearForward<float>&);
template void linear(Cpu, const LinearShape&, const LinearForward<double>&);
template void linear(Cpu, const LinearShape&, const LinearForward<BFloat16>&);
template void linear_backward(Cpu, const LinearShape&, const LinearBackward<float>&);
template void linear_backward(Cpu, const LinearShape&, const LinearBackward<double>&);
template void linear_backward(Cpu, const LinearShape&, const LinearBackward<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
