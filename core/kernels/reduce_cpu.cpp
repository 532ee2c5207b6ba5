// sum_axis by blocks of rows, with their partial sums added in a second round. This keeps all
// threads busy, the order fixed and rounding errors small.
#include <algorithm>

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tiling.h"
#include "core/kernels/reduce.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/reduce_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_SUM_ROWS
#define TAPESTRY_SUM_ROWS
namespace tapestry {

template <class T>
struct SumRows {
  using W = Wider<T>;
  // y[c] (=|+=) scale * the sum of x[r * stride + c] over n > 0 rows; cols <= kSumCols.
  template <class X, class Y>
  using ColumnSums = void (*)(const X* x, int64_t stride, int64_t n, int64_t cols, W scale, Y* y,
                              Write write);

  W (*sum)(const T* x, int64_t n);
  ColumnSums<T, T> column_sums;
  ColumnSums<T, W> wide_column_sums;    // whose sums are summed again
  ColumnSums<W, T> narrow_column_sums;  // of such sums
};

constexpr int64_t kSumCols = 512;

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// Four lines of sums hide the latency of the addition.
template <class T>
Wider<T> sum(const T* x, int64_t n) {
  const Tag<T> d;
  constexpr int64_t kLine = kLineVectors<T> * static_cast<int64_t>(hn::MaxLanes(d));
  LineSums<T> a, b, c, e;
  const auto add = [&](auto io, LineSums<T>& sums, int64_t i, auto part)
                       HWY_ATTR { sums[part] = hn::Add(sums[part], io.load(d, x + i)); };
  int64_t begin = 0;
  for (; begin + 4 * kLine <= n; begin += 4 * kLine) {
    each_line<T>(kLine, [&](auto io, int64_t i, auto part) HWY_ATTR {
      add(io, a, begin + i, part);
      add(io, b, begin + kLine + i, part);
      add(io, c, begin + 2 * kLine + i, part);
      add(io, e, begin + 3 * kLine + i, part);
    });
  }
  each_line<T>(n - begin,
               [&](auto io, int64_t i, auto part) HWY_ATTR { add(io, a, begin + i, part); });
  a.add(b);
  c.add(e);
  a.add(c);
  return a.total();
}

template <class X, class Y>
void column_sums(const X* x, int64_t stride, int64_t n, int64_t cols, Wider<X> scale, Y* y,
                 Write write) {
  const Tag<X> d;
  HWY_ALIGN Wider<X> sums[kSumCols] = {};
  int64_t r = 0;
  for (; r + 4 <= n; r += 4) {  // four rows at once: four streams, while `sums` stays in L1
    const X* const p = x + r * stride;
    each_vector(d, cols, [&](auto io, int64_t c) HWY_ATTR {
      const auto low = hn::Add(io.load(d, p + c), io.load(d, p + stride + c));
      const auto high = hn::Add(io.load(d, p + 2 * stride + c), io.load(d, p + 3 * stride + c));
      io.store(d, hn::Add(io.load(d, sums + c), hn::Add(low, high)), sums + c);
    });
  }
  for (; r < n; ++r) {
    each_vector(d, cols, [&](auto io, int64_t c) HWY_ATTR {
      io.store(d, hn::Add(io.load(d, sums + c), io.load(d, x + r * stride + c)), sums + c);
    });
  }
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(d, cols, [&](auto io, int64_t c) HWY_ATTR {
      deliver(mode, io, d, hn::Mul(io.load(d, sums + c), hn::Set(d, scale)), y + c);
    });
  });
}

template <class T>
constexpr SumRows<T> kFunctions = {sum<T>, column_sums<T, T>, column_sums<T, Wider<T>>,
                                   column_sums<Wider<T>, T>};

const PerType<SumRows>* sum_rows() {
  static constexpr PerType<SumRows> functions = {kFunctions<float>, kFunctions<double>,
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

HWY_EXPORT(sum_rows);

// SumRows' functions from X to Y, one of which may be the wider type of the other.
template <class X, class Y>
auto functions_for() {
  using T = std::conditional_t<std::is_same_v<X, BFloat16>, X, Y>;
  const PerType<SumRows>& all = *HWY_DYNAMIC_DISPATCH(sum_rows)();
  const auto columns = [&] {
    const SumRows<T>& rows = all.of<T>();
    if constexpr (std::is_same_v<X, Y>) {
      return rows.column_sums;
    } else if constexpr (std::is_same_v<X, T>) {
      return rows.wide_column_sums;
    } else {
      return rows.narrow_column_sums;
    }
  };
  return std::pair(all.of<X>().sum, columns());
}

// One round: y (outer, blocks, inner) (=|+=) scale * the sums over each block of `block` rows.
template <class X, class Y>
void sum_blocks(const X* x, Y* y, int64_t outer, int64_t n, int64_t inner, int64_t block,
                Wider<X> scale, Write write) {
  const auto [sum, column_sums] = functions_for<X, Y>();
  const int64_t blocks = (n + block - 1) / block, pieces = (inner + kSumCols - 1) / kSumCols;
  const int64_t work = std::min(block, n) * std::min(inner, kSumCols);
  const int64_t grain = std::max<int64_t>(1, kTileElements / work);
  parallel_ranges(outer * blocks * pieces, grain,
                  [&, sum = sum, column_sums = column_sums](int64_t begin, int64_t end) {
                    for (int64_t unit = begin; unit < end; ++unit) {
                      const int64_t col = unit % pieces * kSumCols, target = unit / pieces;
                      const int64_t row = target % blocks * block, rows = std::min(block, n - row);
                      const X* const from = x + (target / blocks * n + row) * inner + col;
                      Y* const to = y + target * inner + col;
                      if (inner == 1) {
                        Wider<X> result = scale * sum(from, rows);
                        if (write == Write::kAdd) result = static_cast<Wider<X>>(*to) + result;
                        *to = static_cast<Y>(result);
                      } else {
                        column_sums(from, inner, rows, std::min(kSumCols, inner - col), scale, to,
                                    write);
                      }
                    }
                  });
}

}  // namespace

namespace kernels {

template <class X, class Y>
void sum_axis(Cpu, const X* x, Y* y, int64_t outer, int64_t n, int64_t inner, double scale,
              Write write) {
  if (outer == 0 || inner == 0) return;
  if (n == 0) {
    if (write == Write::kSet) std::fill_n(y, outer * inner, Y{});
    return;
  }
  const int64_t block = std::max<int64_t>(32, kTileElements / std::min(inner, kSumCols));
  const auto factor = static_cast<Wider<X>>(scale);
  if (n <= block) return sum_blocks(x, y, outer, n, inner, n, factor, write);
  const int64_t blocks = (n + block - 1) / block;
  Scratch<Wider<X>> partial(outer * blocks * inner);
  sum_blocks(x, partial.data(), outer, n, inner, block, 1, Write::kSet);
  sum_axis(Cpu{}, partial.data(), y, outer, blocks, inner, scale, write);
}

#define TAPESTRY_SUM_AXIS(X, Y) \
  template void sum_axis(Cpu, const X*, Y*, int64_t, int64_t, int64_t, double, Write);
TAPESTRY_SUM_AXIS(float, float)
TAPESTRY_SUM_AXIS(double, double)
TAPESTRY_SUM_AXIS(BFloat16, BFloat16)
TAPESTRY_SUM_AXIS(BFloat16, float)
TAPESTRY_SUM_AXIS(float, BFloat16)

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
