#include "core/kernels/attention/rope.h"

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tiling.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention/rope_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_ROPE_ROWS
#define TAPESTRY_ROPE_ROWS
namespace tapestry {

template <class T>
struct RopeRow {
  // One row; `table` is that of its position.
  void (*apply)(const RopeShape& shape, const T* x, const Wider<T>* table, T* y, Write write);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <Write kWrite, class T>
HWY_INLINE void deliver_one(Wider<T> value, T& y) {
  if constexpr (kWrite == Write::kAdd) value = static_cast<Wider<T>>(y) + value;
  y = static_cast<T>(value);
}

// (a, b) -> (a cos - b sin, b cos + a sin); inverse with -sin.
template <class T>
void apply(const RopeShape& shape, const T* x, const Wider<T>* table, T* y, Write write) {
  using W = Wider<T>;
  const Tag<T> d;
  const int64_t half = shape.rotated / 2, turned = shape.heads * shape.head_size;
  const auto sign = hn::Set(d, static_cast<W>(shape.inverse ? -1 : 1));
  with_write(write, [&](auto mode) HWY_ATTR {
    for (int64_t h = 0; h < turned; h += shape.head_size) {
      if (shape.layout == RopeLayout::kHalf) {
        const T *const a = x + h, *const b = a + half;
        each_vector(d, half, [&](auto io, int64_t i) HWY_ATTR {
          const auto c = io.load(d, table + i), s = hn::Mul(sign, io.load(d, table + half + i));
          const auto va = io.load(d, a + i), vb = io.load(d, b + i);
          deliver(mode, io, d, hn::NegMulAdd(vb, s, hn::Mul(va, c)), y + h + i);
          deliver(mode, io, d, hn::MulAdd(va, s, hn::Mul(vb, c)), y + h + half + i);
        });
      } else {
        const W direction = static_cast<W>(shape.inverse ? -1 : 1);
        for (int64_t i = 0; i < half; ++i) {
          const W c = table[i], s = direction * table[half + i];
          const W a = static_cast<W>(x[h + 2 * i]), b = static_cast<W>(x[h + 2 * i + 1]);
          T* const out = y + h + 2 * i;
          deliver_one<decltype(mode)::value>(a * c - b * s, out[0]);
          deliver_one<decltype(mode)::value>(b * c + a * s, out[1]);
        }
      }
    }
    if (decltype(mode)::value == Write::kSet && x == y) return;
    for (int64_t h = shape.rotated; shape.rotated < shape.head_size && h < turned;
         h += shape.head_size) {
      each_vector(d, shape.head_size - shape.rotated, [&](auto io, int64_t i) HWY_ATTR {
        deliver(mode, io, d, io.load(d, x + h + i), y + h + i);
      });
    }
    each_vector(d, shape.width - turned, [&](auto io, int64_t i) HWY_ATTR {
      deliver(mode, io, d, io.load(d, x + turned + i), y + turned + i);
    });
  });
}

const PerType<RopeRow>* rope_row() {
  static constexpr PerType<RopeRow> functions = {
      {apply<float>}, {apply<double>}, {apply<BFloat16>}};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {
HWY_EXPORT(rope_row);
}  // namespace

namespace kernels {

template <class T>
void rope(Cpu, const RopeShape& shape, const T* x, const Wider<T>* table, T* y, Write write) {
  if (shape.rows == 0 || shape.width == 0) return;
  const auto apply = HWY_DYNAMIC_DISPATCH(rope_row)()->of<T>().apply;
  const int64_t grain = std::max<int64_t>(1, kTileElements / shape.width);
  parallel_ranges(shape.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = shape.position(row);
      apply(shape, x + row * shape.width, table + position * shape.rotated, y + row * shape.width,
            write);
    }
  });
}

template void rope(Cpu, const RopeShape&, const float*, const float*, float*, Write);
template void rope(Cpu, const RopeShape&, const double*, const double*, double*, Write);
template void rope(Cpu, const RopeShape&, const BFloat16*, const float*, BFloat16*, Write);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
