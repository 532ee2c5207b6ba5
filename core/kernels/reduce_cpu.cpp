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
  T (*sum)(const T* x, int64_t n);
  // y[c] (=|+=) scale * the sum of x[r * stride + c] over n > 0 rows; cols <= kSumCols.
  void (*column_sums)(const T* x, int64_t stride, int64_t n, int64_t cols, T scale, T* y,
                      Write write);
};

constexpr int64_t kSumCols = 512;

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
T sum(const T* x, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = lanes_of<T>();
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, x + i));
    s1 = hn::Add(s1, hn::LoadU(d, x + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, x + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, x + i + 3 * lanes));
  }
  each_vector(d, n - i,
              [&](auto io, int64_t j) HWY_ATTR { s0 = hn::Add(s0, io.load(d, x + i + j)); });
  return sum_lanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

template <class T>
void column_sums(const T* x, int64_t stride, int64_t n, int64_t cols, T scale, T* y, Write write) {
  const Tag<T> d;
  HWY_ALIGN T sums[kSumCols] = {};
  int64_t r = 0;
  for (; r + 4 <= n; r += 4) {  // four rows at once: four streams, while `sums` stays in L1
    const T* const p = x + r * stride;
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
constexpr SumRows<T> kFunctions = {sum<T>, column_sums<T>};

const PerType<SumRows>* sum_rows() {
  static constexpr PerType<SumRows> functions = {kFunctions<float>, kFunctions<double>};
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

// One round: y (outer, blocks, inner) (=|+=) scale * the sums over each block of `block` rows.
template <class T>
void sum_blocks(const T* x, T* y, int64_t outer, int64_t n, int64_t inner, int64_t block, T scale,
                Write write) {
  const SumRows<T>& functions = HWY_DYNAMIC_DISPATCH(sum_rows)()->of<T>();
  const int64_t blocks = (n + block - 1) / block, pieces = (inner + kSumCols - 1) / kSumCols;
  const int64_t work = std::min(block, n) * std::min(inner, kSumCols);
  const int64_t grain = std::max<int64_t>(1, kTileElements / work);
  parallel_ranges(outer * blocks * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t col = unit % pieces * kSumCols, target = unit / pieces;
      const int64_t row = target % blocks * block, rows = std::min(block, n - row);
      const T* const from = x + (target / blocks * n + row) * inner + col;
      T* const to = y + target * inner + col;
      if (inner == 1) {
        const T sum = scale * functions.sum(from, rows);
        *to = write == Write::kSet ? sum : *to + sum;
      } else {
        functions.column_sums(from, inner, rows, std::min(kSumCols, inner - col), scale, to, write);
      }
    }
  });
}

}  // namespace

namespace kernels {

template <class T>
void sum_axis(Cpu, const T* x, T* y, int64_t outer, int64_t n, int64_t inner, double scale,
              Write write) {
  if (outer == 0 || inner == 0) return;
  if (n == 0) {
    if (write == Write::kSet) std::fill_n(y, outer * inner, T{0});
    return;
  }
  const int64_t block = std::max<int64_t>(32, kTileElements / std::min(inner, kSumCols));
  const T factor = static_cast<T>(scale);
  if (n <= block) return sum_blocks(x, y, outer, n, inner, n, factor, write);
  const int64_t blocks = (n + block - 1) / block;
  Scratch<T> partial(outer * blocks * inner);
  sum_blocks(x, partial.data(), outer, n, inner, block, T{1}, Write::kSet);
  sum_axis(Cpu{}, partial.data(), y, outer, blocks, inner, scale, write);
}

template void sum_axis(Cpu, const float*, float*, int64_t, int64_t, int64_t, double, Write);
template void sum_axis(Cpu, const double*, double*, int64_t, int64_t, int64_t, double, Write);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
