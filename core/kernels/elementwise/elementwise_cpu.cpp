#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/reduce.h"

#include <algorithm>
#include <utility>

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tiling.h"
#include "core/kernels/elementwise/broadcast_loops.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/elementwise/elementwise_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_ELEMENTWISE_ROWS
#define TAPESTRY_ELEMENTWISE_ROWS
namespace tapestry {

// One operand of a row: a vector, or one value for all of it.
template <class T>
struct RowOperand {
  const T* data;
  bool is_vector;
};

// One row of n elements each.
template <class T>
struct ElementwiseRows {
  template <class Y>
  using BinaryRow = void (*)(Binary op, RowOperand<T> a, RowOperand<T> b, Y* y, int64_t n,
                             Write write);
  template <class Y>
  using QuotientRow = void (*)(RowOperand<T> a, RowOperand<T> b, const T* dy, Y* y, int64_t n,
                               Write write);

  // y (=|+=) a op b
  BinaryRow<T> binary;
  BinaryRow<Wider<T>> wide_binary;
  // y (=|+=) -dy * a / b^2
  QuotientRow<T> quotient;
  QuotientRow<Wider<T>> wide_quotient;
  void (*affine)(Wider<T> alpha, const T* x, Wider<T> beta, T* y, int64_t n, Write write);
  // y (=|+=) value
  void (*fill)(Wider<T> value, T* y, int64_t n, Write write);
  void (*masked_fill)(const T* x, const int32_t* mask, T value, T* y, int64_t n, Write write);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// Calls f(load) with load(io, i) giving the operand's vector at i.
template <class T, class F>
HWY_INLINE void with_operand(RowOperand<T> operand, F f) {
  const Tag<T> d;
  if (operand.is_vector) {
    f([&](auto io, int64_t i) HWY_ATTR { return io.load(d, operand.data + i); });
  } else {
    const auto value = hn::Set(d, static_cast<Wider<T>>(*operand.data));
    f([&](auto, int64_t) HWY_ATTR { return value; });
  }
}

template <class T, class Y, class Op>
HWY_INLINE void binary_row(Op op, RowOperand<T> a, RowOperand<T> b, Y* y, int64_t n, Write write) {
  const Tag<T> d;
  with_write(write, [&](auto mode) HWY_ATTR {
    with_operand(a, [&](auto load_a) HWY_ATTR {
      with_operand(b, [&](auto load_b) HWY_ATTR {
        each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
          deliver(mode, io, d, op(load_a(io, i), load_b(io, i)), y + i);
        });
      });
    });
  });
}

template <class T, class Y>
void binary(Binary op, RowOperand<T> a, RowOperand<T> b, Y* y, int64_t n, Write write) {
  using V = hn::Vec<Tag<T>>;
  const auto add = [](V p, V q) HWY_ATTR { return hn::Add(p, q); };
  const auto sub = [](V p, V q) HWY_ATTR { return hn::Sub(p, q); };
  const auto mul = [](V p, V q) HWY_ATTR { return hn::Mul(p, q); };
  const auto div = [](V p, V q) HWY_ATTR { return hn::Div(p, q); };
  switch (op) {
    case Binary::kAdd:
      return binary_row(add, a, b, y, n, write);
    case Binary::kSub:
      return binary_row(sub, a, b, y, n, write);
    case Binary::kMul:
      return binary_row(mul, a, b, y, n, write);
    case Binary::kDiv:
      return binary_row(div, a, b, y, n, write);
  }
}

template <class T, class Y>
void quotient(RowOperand<T> a, RowOperand<T> b, const T* dy, Y* y, int64_t n, Write write) {
  const Tag<T> d;
  with_write(write, [&](auto mode) HWY_ATTR {
    with_operand(a, [&](auto load_a) HWY_ATTR {
      with_operand(b, [&](auto load_b) HWY_ATTR {
        each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
          const auto q = io.or_else(d, load_b(io, i), hn::Set(d, Wider<T>{1}));
          const auto g = hn::Div(hn::Mul(io.load(d, dy + i), load_a(io, i)), hn::Mul(q, q));
          deliver(mode, io, d, hn::Neg(g), y + i);
        });
      });
    });
  });
}

template <class T>
void affine(Wider<T> alpha, const T* x, Wider<T> beta, T* y, int64_t n, Write write) {
  const Tag<T> d;
  const auto factor = hn::Set(d, alpha), offset = hn::Set(d, beta);
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      deliver(mode, io, d, hn::MulAdd(io.load(d, x + i), factor, offset), y + i);
    });
  });
}

template <class T>
void fill(Wider<T> value, T* y, int64_t n, Write write) {
  const Tag<T> d;
  const auto values = hn::Set(d, value);
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR { deliver(mode, io, d, values, y + i); });
  });
}

template <class Io, class D>
HWY_INLINE hn::Mask<D> load_mask(Io io, D d, const int32_t* mask) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<int32_t, D> di32;
  const auto words = io.load(di32, mask);
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::RebindMask(d, hn::Ne(words, hn::Zero(di)));
  } else {
    return hn::RebindMask(d, hn::Ne(hn::PromoteTo(di, words), hn::Zero(di)));
  }
}

template <class T>
void masked_fill(const T* x, const int32_t* mask, T value, T* y, int64_t n, Write write) {
  const Tag<T> d;
  const auto filler = hn::Set(d, write == Write::kSet ? static_cast<Wider<T>>(value) : Wider<T>{0});
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      const auto kept = hn::IfThenElse(load_mask(io, d, mask + i), filler, io.load(d, x + i));
      deliver(mode, io, d, kept, y + i);
    });
  });
}

template <class T>
constexpr ElementwiseRows<T> kFunctions = {
    binary<T, T>, binary<T, Wider<T>>, quotient<T, T>, quotient<T, Wider<T>>, affine<T>,
    fill<T>,      masked_fill<T>};

const PerType<ElementwiseRows>* elementwise_rows() {
  static constexpr PerType<ElementwiseRows> functions = {kFunctions<float>, kFunctions<double>,
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

HWY_EXPORT(elementwise_rows);

template <class T>
const ElementwiseRows<T>& rows_of() {
  return HWY_DYNAMIC_DISPATCH(elementwise_rows)()->of<T>();
}

// Calls f(a, b, index of the first result, count) for each row of results, or piece of a long one.
template <class T, class F>
void each_row(const BroadcastPlan& plan, const T* a, const T* b, F&& f) {
  const BroadcastLoops loops(plan);
  parallel_rows(loops.rows, loops.cols, [&](int64_t row, int64_t begin, int64_t end) {
    int64_t a_offset, b_offset;
    loops.offsets(row, a_offset, b_offset);
    f(RowOperand<T>{a + a_offset + (loops.a_is_vector ? begin : 0), loops.a_is_vector},
      RowOperand<T>{b + b_offset + (loops.b_is_vector ? begin : 0), loops.b_is_vector},
      row * loops.cols + begin, end - begin);
  });
}

// The plan with operand a replaced by a dense tensor of the result's shape.
BroadcastPlan with_dense_a(BroadcastPlan plan) {
  int64_t stride = 1;
  for (int axis = Shape::kMaxRank - 1; axis >= 0; --axis) {
    plan.a_stride[axis] = plan.size[axis] == 1 ? 0 : stride;
    stride *= plan.size[axis];
  }
  return plan;
}

// y (=|+=) scale * the sum of the full-sized x over the axes on which an operand was broadcast.
template <class X, class Y>
void sum_to_operand(const OperandSums& rounds, const X* x, Y* y, double scale, Write write) {
  const auto& [outer, n, inner] = rounds.sums[0];
  if (rounds.count == 1) return kernels::sum_axis(Cpu{}, x, y, outer, n, inner, scale, write);
  Scratch<Wider<X>> partial(outer * inner);
  kernels::sum_axis(Cpu{}, x, partial.data(), outer, n, inner, 1, Write::kSet);
  const AxisSum& last = rounds.sums[1];
  kernels::sum_axis(Cpu{}, partial.data(), y, last.outer, last.n, last.inner, scale, write);
}

// y (=|+=) x
template <class T>
void copy_row(const ElementwiseRows<T>& row, const T* x, T* y, int64_t n, Write write) {
  if (write == Write::kAdd) return row.affine(1, x, 0, y, n, write);
  if (x != y) std::copy_n(x, n, y);
}

}  // namespace

namespace kernels {

template <class T>
void binary(Cpu, Binary op, const BroadcastPlan& plan, const T* a, const T* b, T* y) {
  const auto row = rows_of<T>().binary;
  each_row(plan, a, b, [&](RowOperand<T> p, RowOperand<T> q, int64_t i, int64_t n) {
    row(op, p, q, y + i, n, Write::kSet);
  });
}

template <class T>
void binary_backward(Cpu, Binary op, int wrt, const BroadcastPlan& plan, const T* a, const T* b,
                     const T* dy, T* d_operand, Write write) {
  const OperandSums rounds(plan, wrt == 0 ? plan.a_stride : plan.b_stride);
  const bool reduced = rounds.count > 0;
  const int64_t n = numel(plan);
  if (op == Binary::kAdd || op == Binary::kSub) {
    const double sign = op == Binary::kSub && wrt == 1 ? -1 : 1;
    if (!reduced) return affine(Cpu{}, sign, dy, 0, d_operand, n, write);
    return sum_to_operand(rounds, dy, d_operand, sign, write);
  }
  const auto deliver_rows = [&](auto binary_row, auto quotient_row, auto* out, Write out_write) {
    if (op == Binary::kDiv && wrt == 1) {
      each_row(plan, a, b, [&](RowOperand<T> p, RowOperand<T> q, int64_t i, int64_t count) {
        quotient_row(p, q, dy + i, out + i, count, out_write);
      });
      return;
    }
    BroadcastPlan other = plan;
    if (wrt == 1) std::swap(other.a_stride, other.b_stride);
    each_row(with_dense_a(other), dy, wrt == 0 ? b : a,
             [&](RowOperand<T> p, RowOperand<T> q, int64_t i, int64_t count) {
               binary_row(op, p, q, out + i, count, out_write);
             });
  };
  const auto& rows = rows_of<T>();
  if (!reduced) return deliver_rows(rows.binary, rows.quotient, d_operand, write);
  Scratch<Wider<T>> full(n);
  deliver_rows(rows.wide_binary, rows.wide_quotient, full.data(), Write::kSet);
  sum_to_operand(rounds, full.data(), d_operand, 1, write);
}

template <class T>
void affine(Cpu, double alpha, const T* x, double beta, T* y, int64_t n, Write write) {
  const auto row = rows_of<T>().affine;
  parallel_ranges(n, kTileElements, [&](int64_t begin, int64_t end) {
    row(static_cast<Wider<T>>(alpha), x + begin, static_cast<Wider<T>>(beta), y + begin,
        end - begin, write);
  });
}

template <class T>
void scale(Cpu, const T* factor, T* x, int64_t n) {
  const auto value = static_cast<Wider<T>>(*factor);
  if (value != 1) affine(Cpu{}, static_cast<double>(value), x, 0, x, n);
}

template <class T>
void masked_fill(Cpu, const T* x, const int32_t* mask, int64_t mask_n, int64_t inner, double value,
                 T* y, int64_t n, Write write) {
  const auto& row = rows_of<T>();
  const T filler = static_cast<T>(value);
  const auto fill_run = [&](int64_t i, int64_t count, bool masked) {
    if (!masked) return copy_row(row, x + i, y + i, count, write);
    if (write == Write::kSet) std::fill_n(y + i, count, filler);
  };
  parallel_ranges(n, kTileElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin, count; i < end; i += count) {
      const int64_t m = i / inner % mask_n;
      if (inner == 1) {
        count = std::min(mask_n - m, end - i);
        row.masked_fill(x + i, mask + m, filler, y + i, count, write);
      } else {
        count = std::min(inner - i % inner, end - i);
        fill_run(i, count, mask[m] != 0);
      }
    }
  });
}

template <class T>
void broadcast_axis(Cpu, const T* x, T* y, int64_t outer, int64_t n, int64_t inner, double scale,
                    Write write) {
  const auto& row = rows_of<T>();
  const auto factor = static_cast<Wider<T>>(scale);
  if (inner == 1) {
    parallel_rows(outer, n, [&](int64_t o, int64_t begin, int64_t end) {
      row.fill(factor * static_cast<Wider<T>>(x[o]), y + o * n + begin, end - begin, write);
    });
    return;
  }
  parallel_rows(outer * n, inner, [&](int64_t r, int64_t begin, int64_t end) {
    row.affine(factor, x + r / n * inner + begin, 0, y + r * inner + begin, end - begin, write);
  });
}

template <class T>
void copy_block(Cpu, const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows,
                int64_t cols, Write write) {
  const auto& row = rows_of<T>();
  if (x_stride == cols && y_stride == cols) cols *= std::exchange(rows, 1);
  parallel_rows(rows, cols, [&](int64_t r, int64_t begin, int64_t end) {
    copy_row(row, x + r * x_stride + begin, y + r * y_stride + begin, end - begin, write);
  });
}

template <class T>
void scatter_rows(Cpu, const T* x, int64_t x_stride, const int32_t* rows, int64_t count, T* y,
                  int64_t cols) {
  constexpr int64_t kElementsPerTask = 1 << 14;
  parallel_ranges(count, std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, cols)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t r = begin; r < end; ++r) {
                      if (rows[r] >= 0) std::copy_n(x + r * x_stride, cols, y + rows[r] * cols);
                    }
                  });
}

#define TAPESTRY_INSTANTIATE(T)                                                                   \
  template void binary(Cpu, Binary, const BroadcastPlan&, const T*, const T*, T*);                \
  template void binary_backward(Cpu, Binary, int, const BroadcastPlan&, const T*, const T*,       \
                                const T*, T*, Write);                                             \
  template void affine(Cpu, double, const T*, double, T*, int64_t, Write);                        \
  template void scale(Cpu, const T*, T*, int64_t);                                                \
  template void masked_fill(Cpu, const T*, const int32_t*, int64_t, int64_t, double, T*, int64_t, \
                            Write);                                                               \
  template void broadcast_axis(Cpu, const T*, T*, int64_t, int64_t, int64_t, double, Write);      \
  template void copy_block(Cpu, const T*, int64_t, T*, int64_t, int64_t, int64_t, Write);         \
  template void scatter_rows(Cpu, const T*, int64_t, const int32_t*, int64_t, T*, int64_t);
TAPESTRY_INSTANTIATE(float)
TAPESTRY_INSTANTIATE(double)
TAPESTRY_INSTANTIATE(BFloat16)
#undef TAPESTRY_INSTANTIATE

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
