#include "core/kernels/recurrent/gru.h"

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/simd_select.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/recurrent/gru_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/cpu/unary_simd-inl.h"

#ifndef TAPESTRY_GRU_ROWS
#define TAPESTRY_GRU_ROWS
namespace tapestry {

// Each handles row `row` of the matrices in args.
template <class T>
struct GruFunctions {
  void (*forward)(const GruForward<T>& args, int64_t row, int64_t size);
  void (*backward)(const GruBackward<T>& args, int64_t row, int64_t size);
  void (*keep)(const GruForward<T>& args, int64_t row, int64_t size);
  void (*keep_backward)(const GruBackward<T>& args, int64_t row, int64_t size);
};

template <class T>
T* row_of(const GruRows<T>& rows, int64_t row) {
  return rows.data == nullptr ? nullptr : rows.data + row * rows.stride;
}

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class Io, class D, class T>
HWY_INLINE hn::Vec<D> load_or_zero(Io io, D d, const T* p, int64_t i) {
  return p == nullptr ? hn::Zero(d) : io.load(d, p + i);
}

template <class T>
void forward(const GruForward<T>& args, int64_t row, int64_t size) {
  const Tag<T> d;
  const T *const x = row_of(args.x_gates, row), *const hg = row_of(args.h_gates, row);
  const T *const h = row_of(args.h, row), *const bias = args.bias;
  T* const out = row_of(args.out, row);
  T* const saved = args.saved == nullptr ? nullptr : args.saved + row * 4 * size;
  each_vector(d, size, [&](auto io, int64_t i) HWY_ATTR {
    const auto from_h = [&](int64_t gate) HWY_ATTR {
      return hn::Add(load_or_zero(io, d, hg, gate * size + i),
                     load_or_zero(io, d, bias, gate * size + i));
    };
    const auto r = simd::Sigmoid::f(d, hn::Add(io.load(d, x + i), from_h(0)));
    const auto z = simd::Sigmoid::f(d, hn::Add(io.load(d, x + size + i), from_h(1)));
    const auto h_n = from_h(2);
    const auto n = simd::Tanh::f(d, hn::MulAdd(r, h_n, io.load(d, x + 2 * size + i)));
    const auto before = load_or_zero(io, d, h, i);
    io.store(d, hn::MulAdd(z, hn::Sub(before, n), n), out + i);
    if (saved == nullptr) return;
    io.store(d, r, saved + i);
    io.store(d, z, saved + size + i);
    io.store(d, n, saved + 2 * size + i);
    io.store(d, h_n, saved + 3 * size + i);
  });
}

template <class T>
void keep(const GruForward<T>& args, int64_t row, int64_t size) {
  const Tag<T> d;
  const T* const h = row_of(args.h, row);
  T* const out = row_of(args.out, row);
  each_vector(d, size, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, load_or_zero(io, d, h, i), out + i);
  });
}

template <class Io, class D, class T>
HWY_INLINE void deliver_by(Write write, Io io, D d, hn::Vec<D> v, T* p) {
  if (write == Write::kAdd) v = hn::Add(io.load(d, p), v);
  io.store(d, v, p);
}

template <class T>
void backward(const GruBackward<T>& args, int64_t row, int64_t size) {
  const Tag<T> d;
  const T* const saved = args.saved + row * 4 * size;
  const T *const h = row_of(args.h, row), *const d_out = row_of(args.d_out, row);
  const T* const more = row_of(args.d_out_more, row);
  T *const dx = row_of(args.dx_gates, row), *const dhg = row_of(args.dh_gates, row);
  T* const dh = row_of(args.dh, row);
  each_vector(d, size, [&](auto io, int64_t i) HWY_ATTR {
    const auto r = io.load(d, saved + i), z = io.load(d, saved + size + i);
    const auto n = io.load(d, saved + 2 * size + i), h_n = io.load(d, saved + 3 * size + i);
    const auto g = hn::Add(load_or_zero(io, d, d_out, i), load_or_zero(io, d, more, i));
    const auto through_z = hn::Mul(g, hn::Sub(load_or_zero(io, d, h, i), n));
    const auto dz = hn::Mul(through_z, simd::Sigmoid::df(d, z));
    const auto dn = hn::Mul(hn::NegMulAdd(g, z, g), simd::Tanh::df(d, n));
    const auto dr = hn::Mul(hn::Mul(dn, h_n), simd::Sigmoid::df(d, r));
    if (dx != nullptr) {
      deliver_by(args.dx_write, io, d, dr, dx + i);
      deliver_by(args.dx_write, io, d, dz, dx + size + i);
      deliver_by(args.dx_write, io, d, dn, dx + 2 * size + i);
    }
    if (dhg != nullptr) {
      deliver_by(args.dh_gates_write, io, d, dr, dhg + i);
      deliver_by(args.dh_gates_write, io, d, dz, dhg + size + i);
      deliver_by(args.dh_gates_write, io, d, hn::Mul(dn, r), dhg + 2 * size + i);
    }
    if (dh != nullptr) deliver_by(args.dh_write, io, d, hn::Mul(g, z), dh + i);
  });
}

template <class T>
void keep_backward(const GruBackward<T>& args, int64_t row, int64_t size) {
  const Tag<T> d;
  const T *const d_out = row_of(args.d_out, row), *const more = row_of(args.d_out_more, row);
  T *const dx = row_of(args.dx_gates, row), *const dhg = row_of(args.dh_gates, row);
  T* const dh = row_of(args.dh, row);
  if (dh != nullptr) {
    each_vector(d, size, [&](auto io, int64_t i) HWY_ATTR {
      const auto g = hn::Add(load_or_zero(io, d, d_out, i), load_or_zero(io, d, more, i));
      deliver_by(args.dh_write, io, d, g, dh + i);
    });
  }
  if (dx != nullptr && args.dx_write == Write::kSet) std::fill_n(dx, 3 * size, T{0});
  if (dhg != nullptr && args.dh_gates_write == Write::kSet) std::fill_n(dhg, 3 * size, T{0});
}

template <class T>
constexpr GruFunctions<T> kFunctions = {forward<T>, backward<T>, keep<T>, keep_backward<T>};

const PerType<GruFunctions>* gru_functions() {
  static constexpr PerType<GruFunctions> functions = {kFunctions<float>, kFunctions<double>,
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

HWY_EXPORT(gru_functions);

template <class T>
const GruFunctions<T>& functions() {
  return HWY_DYNAMIC_DISPATCH(gru_functions)()->of<T>();
}

// Calls f(row, whether it takes the step) for each row, about 2048 elements a tile.
template <class F>
void each_row(const GruShape& shape, F&& f) {
  if (shape.size == 0) return;
  parallel_ranges(shape.rows, std::max<int64_t>(1, 2048 / shape.size),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) {
                      f(row, shape.lengths == nullptr || shape.time < shape.lengths[row]);
                    }
                  });
}

}  // namespace

namespace kernels {

template <class T>
void gru_step(Cpu, const GruShape& shape, const GruForward<T>& args) {
  const GruFunctions<T>& row_functions = functions<T>();
  each_row(shape, [&](int64_t row, bool steps) {
    (steps ? row_functions.forward : row_functions.keep)(args, row, shape.size);
  });
}

template <class T>
void gru_step_backward(Cpu, const GruShape& shape, const GruBackward<T>& args) {
  const GruFunctions<T>& row_functions = functions<T>();
  each_row(shape, [&](int64_t row, bool steps) {
    (steps ? row_functions.backward : row_functions.keep_backward)(args, row, shape.size);
  });
}

template void gru_step(Cpu, const GruShape&, const GruForward<float>&);
template void gru_step(Cpu, const GruShape&, const GruForward<double>&);
template void gru_step(Cpu, const GruShape&, const GruForward<BFloat16>&);
template void gru_step_backward(Cpu, const GruShape&, const GruBackward<float>&);
template void gru_step_backward(Cpu, const GruShape&, const GruBackward<double>&);
template void gru_step_backward(Cpu, const GruShape&, const GruBackward<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
