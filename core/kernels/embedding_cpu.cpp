#include "core/kernels/embedding.h"

#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/embedding_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/philox_simd-inl.h"
#include "core/kernels/cpu/simd-inl.h"
#include "core/shapes_only.h"

#ifndef TAPESTRY_EMBEDDING_ROWS
#define TAPESTRY_EMBEDDING_ROWS
namespace tapestry {

template <class T>
struct EmbeddingRows {
  // y = (scale * table_row + position) * factors; position and factors may be null.
  void (*combine)(const T* table_row, double scale, const T* position, const Wider<T>* factors,
                  T* y, int64_t cols);
  // total += scale * dy * factors; factors may be null.
  void (*accumulate)(const T* dy, double scale, const Wider<T>* factors, Wider<T>* total,
                     int64_t cols);
  // y (=|+=) total
  void (*finish)(const Wider<T>* total, T* y, int64_t cols, Write write);
  // Dropout factors of elements first to first + cols - 1; `memory` has room for factor_room(cols).
  const Wider<T>* (*factors)(const Dropout& dropout, int64_t first, int64_t cols, Wider<T>* memory);
  int64_t factor_padding;
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void combine(const T* table_row, double scale, const T* position, const Wider<T>* factors, T* y,
             int64_t cols) {
  const Tag<T> d;
  const auto scales = hn::Set(d, static_cast<Wider<T>>(scale));
  each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
    const auto p = position != nullptr ? io.load(d, position + i) : hn::Zero(d);
    auto v = hn::MulAdd(scales, io.load(d, table_row + i), p);
    if (factors != nullptr) v = hn::Mul(v, io.load(d, factors + i));
    io.store(d, v, y + i);
  });
}

template <class T>
void accumulate(const T* dy, double scale, const Wider<T>* factors, Wider<T>* total, int64_t cols) {
  const Tag<T> d;
  const auto scales = hn::Set(d, static_cast<Wider<T>>(scale));
  each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
    auto v = io.load(d, dy + i);
    if (factors != nullptr) v = hn::Mul(v, io.load(d, factors + i));
    io.store(d, hn::MulAdd(scales, v, io.load(d, total + i)), total + i);
  });
}

template <class T>
void finish(const Wider<T>* total, T* y, int64_t cols, Write write) {
  const Tag<T> d;
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(d, cols, [&](auto io, int64_t i) HWY_ATTR {
      deliver(mode, io, d, io.load(d, total + i), y + i);
    });
  });
}

template <class T>
const Wider<T>* factors(const Dropout& dropout, int64_t first, int64_t cols, Wider<T>* memory) {
  return DropoutFactors<Wider<T>>(dropout).fill(static_cast<uint64_t>(first), cols, memory);
}

template <class T>
constexpr EmbeddingRows<T> kFunctions = {combine<T>, accumulate<T>, finish<T>, factors<T>,
                                         DropoutFactors<Wider<T>>::kPadding};

const PerType<EmbeddingRows>* embedding_rows() {
  static constexpr PerType<EmbeddingRows> functions = {kFunctions<float>, kFunctions<double>,
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

HWY_EXPORT(embedding_rows);

template <class T>
const EmbeddingRows<T>& rows_functions() {
  return HWY_DYNAMIC_DISPATCH(embedding_rows)()->of<T>();
}

constexpr int64_t kRowGrain = 32;

// Row numbers grouped by key in [0, keys), in ascending order within each group (a counting sort):
// group k is order[start[k]] to order[start[k + 1] - 1].
struct Groups {
  Groups(int64_t rows, int64_t keys) : start(keys + 1), order(std::max<int64_t>(rows, 1)) {}

  template <class KeyOf>
  void build(int64_t rows, int64_t keys, KeyOf key_of) {
    if (ShapesOnly::is_on()) return;  // no ids in a dry run: the keys are unused
    std::fill_n(start.data(), keys + 1, int64_t{0});
    for (int64_t r = 0; r < rows; ++r) ++start[key_of(r) + 1];
    for (int64_t k = 0; k < keys; ++k) start[k + 1] += start[k];
    for (int64_t r = 0; r < rows; ++r) order[start[key_of(r)]++] = r;
    for (int64_t k = keys; k > 0; --k) start[k] = start[k - 1];
    start[0] = 0;
  }

  Scratch<int64_t> start, order;
};

// d_row (=|+=) sum over the rows of each group, one task per target row.
template <class T>
void scatter(const EmbeddingShape& shape, const T* dy, const Dropout& dropout, double scale,
             Groups& groups, int64_t targets, T* d_target, Write write) {
  const EmbeddingRows<T>& functions = rows_functions<T>();
  const int64_t cols = shape.cols;
  parallel_ranges(targets, kRowGrain, [&](int64_t begin, int64_t end) {
    Scratch<Wider<T>> memory(cols + functions.factor_padding);
    // A frequent word has thousands of rows: bfloat16 would stop growing.
    constexpr bool kIsWide = std::is_same_v<T, Wider<T>>;
    Scratch<Wider<T>> sums(kIsWide ? 0 : cols);
    for (int64_t k = begin; k < end; ++k) {
      Wider<T>* total = sums.data();
      if constexpr (kIsWide) total = d_target + k * cols;
      if (!kIsWide || write == Write::kSet) std::fill_n(total, cols, Wider<T>{0});
      for (int64_t i = groups.start[k]; i < groups.start[k + 1]; ++i) {
        const int64_t r = groups.order[i];
        const Wider<T>* const factor =
            dropout.p > 0 ? functions.factors(dropout, r * cols, cols, memory.data()) : nullptr;
        functions.accumulate(dy + r * cols, scale, factor, total, cols);
      }
      if (!kIsWide) functions.finish(total, d_target + k * cols, cols, write);
    }
  });
}

}  // namespace

namespace kernels {

template <class T>
void embedding(Cpu, const EmbeddingShape& shape, const int32_t* ids, const T* table,
               const T* positions, const Dropout& dropout, T* y) {
  const EmbeddingRows<T>& functions = rows_functions<T>();
  const int64_t cols = shape.cols;
  parallel_ranges(shape.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    Scratch<Wider<T>> memory(cols + functions.factor_padding);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t position = shape.position(r);
      const Wider<T>* const factor =
          dropout.p > 0 ? functions.factors(dropout, r * cols, cols, memory.data()) : nullptr;
      functions.combine(table + ids[r] * cols, shape.scale,
                        positions != nullptr ? positions + position * cols : nullptr, factor,
                        y + r * cols, cols);
    }
  });
}

template <class T>
void embedding_backward(Cpu, const EmbeddingShape& shape, const int32_t* ids, const T* dy,
                        const Dropout& dropout, T* d_table, Write d_table_write, T* d_positions,
                        int64_t position_rows, Write d_positions_write) {
  if (d_table != nullptr) {
    Groups groups(shape.rows, shape.vocab);
    groups.build(shape.rows, shape.vocab, [&](int64_t r) { return int64_t{ids[r]}; });
    scatter(shape, dy, dropout, shape.scale, groups, shape.vocab, d_table, d_table_write);
  }
  if (d_positions != nullptr) {
    Groups groups(shape.rows, position_rows);
    groups.build(shape.rows, position_rows, [&](int64_t r) { return shape.position(r); });
    scatter(shape, dy, dropout, 1.0, groups, position_rows, d_positions, d_positions_write);
  }
}

template void embedding(Cpu, const EmbeddingShape&, const int32_t*, const float*, const float*,
                        const Dropout&, float*);
template void embedding(Cpu, const EmbeddingShape&, const int32_t*, const double*, const double*,
                        const Dropout&, double*);
template void embedding(Cpu, const EmbeddingShape&, const int32_t*, const BFloat16*,
                        const BFloat16*, const Dropout&, BFloat16*);
template void embedding_backward(Cpu, const EmbeddingShape&, const int32_t*, const float*,
                                 const Dropout&, float*, Write, float*, int64_t, Write);
template void embedding_backward(Cpu, const EmbeddingShape&, const int32_t*, const double*,
                                 const Dropout&, double*, Write, double*, int64_t, Write);
template void embedding_backward(Cpu, const EmbeddingShape&, const int32_t*, const BFloat16*,
                                 const Dropout&, BFloat16*, Write, BFloat16*, int64_t, Write);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
