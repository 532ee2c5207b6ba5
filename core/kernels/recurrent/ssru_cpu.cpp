// A tile is a few columns of a sequence: it walks over the rows with the carry in the first cache.
#include "core/cpu/parallel.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/recurrent/ssru.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/recurrent/ssru_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/cpu/unary_simd-inl.h"

#ifndef TAPESTRY_SSRU_TILES
#define TAPESTRY_SSRU_TILES
namespace tapestry {

/// Columns [column, column + columns) of a sequence's rows [begin, end).
struct SsruTile {
  static constexpr int64_t kColumns = 128;

  int64_t sequence, begin, end, column, columns;
};

template <class T>
struct SsruFunctions {
  void (*forward)(const SsruForward<T>& args, int64_t size, const SsruTile& tile);
  void (*backward)(const SsruBackward<T>& args, int64_t size, const SsruTile& tile);
};

// The state that a sequence begins with; null: zeros.
template <class T>
const T* state_before(const SsruBefore<T>& before, int64_t sequence, int64_t size) {
  if (before.states == nullptr || before.lengths[sequence] < 2) return nullptr;
  const int64_t last = before.lengths[sequence] - 2;
  return before.states + before.rows[sequence * before.width + last] * size;
}

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// f at place i: x's gates begin there.
template <class Io, class D, class T>
HWY_INLINE hn::Vec<D> forget_gate(Io io, D d, const T* x, const T* bias, int64_t i) {
  auto gate = io.load(d, x + i);
  if (bias != nullptr) gate = hn::Add(gate, io.load(d, bias + i));
  return simd::Sigmoid::f(d, gate);
}

template <class T>
void forward(const SsruForward<T>& args, int64_t size, const SsruTile& tile) {
  const Tag<T> d;
  Wider<T> carry[SsruTile::kColumns] = {};
  if (const T* const before = state_before(args.before, tile.sequence, size)) {
    each_vector(d, tile.columns, [&](auto io, int64_t i) HWY_ATTR {
      io.store(d, io.load(d, before + tile.column + i), carry + i);
    });
  }
  const T* const bias = args.bias == nullptr ? nullptr : args.bias + tile.column;
  for (int64_t row = tile.begin; row < tile.end; ++row) {
    const T* const x = args.x + row * 2 * size + tile.column;
    const int64_t place = row * size + tile.column;
    each_vector(d, tile.columns, [&](auto io, int64_t i) HWY_ATTR {
      const auto f = forget_gate(io, d, x, bias, i), v = io.load(d, x + size + i);
      const auto c = hn::MulAdd(f, hn::Sub(io.load(d, carry + i), v), v);
      io.store(d, c, carry + i);
      io.store(d, hn::Max(c, hn::Zero(d)), args.out + place + i);
      if (args.states != nullptr) io.store(d, c, args.states + place + i);
    });
  }
}

// From the last row to the first: the carry is the gradient that a later row gives to c.
template <class T>
void backward(const SsruBackward<T>& args, int64_t size, const SsruTile& tile) {
  const Tag<T> d;
  Wider<T> carry[SsruTile::kColumns] = {}, gates[SsruTile::kColumns] = {};
  const T* const bias = args.bias == nullptr ? nullptr : args.bias + tile.column;
  with_write(args.dx_write, [&](auto mode) HWY_ATTR {
    for (int64_t row = tile.end - 1; row >= tile.begin; --row) {
      const T* const x = args.x + row * 2 * size + tile.column;
      T* const dx = args.dx == nullptr ? nullptr : args.dx + row * 2 * size + tile.column;
      const int64_t place = row * size + tile.column;
      const bool first = row == tile.begin;
      each_vector(d, tile.columns, [&](auto io, int64_t i) HWY_ATTR {
        const auto f = forget_gate(io, d, x, bias, i), v = io.load(d, x + size + i);
        const auto passes = hn::Gt(io.load(d, args.states + place + i), hn::Zero(d));
        const auto dc = hn::Add(io.load(d, carry + i),
                                hn::IfThenElseZero(passes, io.load(d, args.d_out + place + i)));
        const auto before = first ? hn::Zero(d) : io.load(d, args.states + place - size + i);
        const auto dg = hn::Mul(hn::Mul(dc, hn::Sub(before, v)), simd::Sigmoid::df(d, f));
        io.store(d, hn::Mul(dc, f), carry + i);
        io.store(d, hn::Add(io.load(d, gates + i), dg), gates + i);
        if (dx == nullptr) return;
        deliver(mode, io, d, dg, dx + i);
        deliver(mode, io, d, hn::NegMulAdd(dc, f, dc), dx + size + i);
      });
    }
  });
  if (args.d_bias == nullptr) return;
  T* const d_bias = args.d_bias + tile.sequence * size + tile.column;
  each_vector(d, tile.columns,
              [&](auto io, int64_t i) HWY_ATTR { io.store(d, io.load(d, gates + i), d_bias + i); });
}

template <class T>
constexpr SsruFunctions<T> kFunctions = {forward<T>, backward<T>};

const PerType<SsruFunctions>* ssru_functions() {
  static constexpr PerType<SsruFunctions> functions = {kFunctions<float>, kFunctions<double>,
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

HWY_EXPORT(ssru_functions);

template <class T>
const SsruFunctions<T>& functions() {
  return HWY_DYNAMIC_DISPATCH(ssru_functions)()->of<T>();
}

// Calls f(tile) for all tiles, about 4096 gates at a time.
template <class F>
void each_tile(const SsruShape& shape, F&& f) {
  constexpr int64_t kColumns = SsruTile::kColumns;
  const int64_t parts = (shape.size + kColumns - 1) / kColumns;
  const int64_t work = std::max<int64_t>(1, shape.steps * std::min(shape.size, kColumns));
  parallel_ranges(shape.sequences * parts, std::max<int64_t>(1, 4096 / work),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t s = i / parts, column = i % parts * kColumns;
                      const bool even = shape.starts == nullptr;
                      f(SsruTile{s, even ? s * shape.steps : shape.starts[s],
                                 even ? (s + 1) * shape.steps : shape.starts[s + 1], column,
                                 std::min(kColumns, shape.size - column)});
                    }
                  });
}

}  // namespace

namespace kernels {

template <class T>
void ssru(Cpu, const SsruShape& shape, const SsruForward<T>& args) {
  const auto f = functions<T>().forward;
  each_tile(shape, [&](const SsruTile& tile) { f(args, shape.size, tile); });
}

template <class T>
void ssru_backward(Cpu, const SsruShape& shape, const SsruBackward<T>& args) {
  const auto f = functions<T>().backward;
  each_tile(shape, [&](const SsruTile& tile) { f(args, shape.size, tile); });
}

template void ssru(Cpu, const SsruShape&, const SsruForward<float>&);
template void ssru(Cpu, const SsruShape&, const SsruForward<double>&);
template void ssru(Cpu, const SsruShape&, const SsruForward<BFloat16>&);
template void ssru_backward(Cpu, const SsruShape&, const SsruBackward<float>&);
template void ssru_backward(Cpu, const SsruShape&, const SsruBackward<double>&);
template void ssru_backward(Cpu, const SsruShape&, const SsruBackward<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
