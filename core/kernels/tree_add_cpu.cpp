#include "core/kernels/tree_add.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tiling.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/tree_add_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_TREE_ADD_ROWS
#define TAPESTRY_TREE_ADD_ROWS
namespace tapestry {

template <class T>
struct TreeAddRows {
  using W = Wider<T>;
  // y = a + b; y may be a or b
  void (*add)(const W* a, const W* b, W* y, int64_t n);
  void (*add_first)(const T* a, const W* b, W* y, int64_t n);
  // y = a
  void (*copy)(const T* a, W* y, int64_t n);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void add(const T* a, const Wider<T>* b, Wider<T>* y, int64_t n) {
  const Tag<T> d;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Add(io.load(d, a + i), io.load(d, b + i)), y + i);
  });
}

template <class T>
void copy(const T* a, Wider<T>* y, int64_t n) {
  const Tag<T> d;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR { io.store(d, io.load(d, a + i), y + i); });
}

template <class T>
constexpr TreeAddRows<T> kFunctions = {add<Wider<T>>, add<T>, copy<T>};

const PerType<TreeAddRows>* tree_add_rows() {
  static constexpr PerType<TreeAddRows> functions = {kFunctions<float>, kFunctions<double>,
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

HWY_EXPORT(tree_add_rows);

template <class T>
const TreeAddRows<T>& rows_of() {
  return HWY_DYNAMIC_DISPATCH(tree_add_rows)()->of<T>();
}

// The partial sums of a block stay in the first-level cache.
constexpr int64_t kBlock = 1024;

// The tree over one block of elements.
template <class T>
class BlockTree {
  using W = Wider<T>;

 public:
  BlockTree(const TreeAddRows<T>& rows, std::span<const T* const> x, W* partial)
      : rows_(rows), x_(x), partial_(partial) {}

  void sum(int64_t begin, int64_t n, W* out) {
    begin_ = begin, n_ = n;
    const W* const result = node(0, x_.size(), 0, out + begin);
    if (result != out + begin) std::copy_n(result, n, out + begin);
  }

 private:
  // The sum of operands [a, b): an operand itself, or partial sum number `level`. The root goes to
  // `out`, which may be an operand: all others were read by then.
  const W* node(size_t a, size_t b, int level, W* out) {
    if (b - a == 1) return operand(a, out);
    const size_t m = a + std::bit_floor(b - a - 1);
    W* const own = partial_ + level * kBlock;
    const W* const left = node(a, m, level, own);
    const W* const right = node(m, b, level + 1, own + kBlock);
    rows_.add(left, right, out, n_);
    return out;
  }

  // An operand of another type than the sums goes to `out`.
  const W* operand(size_t a, W* out) {
    const T* const x = x_[a] + begin_;
    if constexpr (std::is_same_v<T, W>) {
      return x;
    } else {
      rows_.copy(x, out, n_);
      return out;
    }
  }

  const TreeAddRows<T>& rows_;
  std::span<const T* const> x_;
  W* partial_;
  int64_t begin_ = 0, n_ = 0;
};

// Calls f(begin, count) for the blocks of [0, n), on all threads.
template <class F>
void each_block(int64_t begin, int64_t end, F&& f) {
  for (; begin < end; begin += kBlock) f(begin, std::min(kBlock, end - begin));
}

}  // namespace

namespace kernels {

template <class T>
void tree_add(Cpu, std::span<const T* const> x, Wider<T>* out, int64_t n) {
  check(!x.empty() && x.size() <= kMostTreeOperands, "tree_add", "expected 1 to ",
        kMostTreeOperands, " operands, got ", x.size(), '.');
  const auto& rows = rows_of<T>();
  // A right child may lie one level below its parent: one buffer for each bit, and one more.
  const int levels = std::bit_width(x.size()) + 1;
  parallel_ranges(n, kTileElements, [&](int64_t begin, int64_t end) {
    Scratch<Wider<T>> partial(levels * kBlock);
    BlockTree<T> tree(rows, x, partial.data());
    each_block(begin, end, [&](int64_t i, int64_t count) { tree.sum(i, count, out); });
  });
}

template <class T>
void add_in_order(Cpu, const T* x, std::span<const Wider<T>* const> sums, Wider<T>* out,
                  int64_t n) {
  const auto& rows = rows_of<T>();
  parallel_ranges(n, kTileElements, [&](int64_t begin, int64_t end) {
    if (sums.empty()) return rows.copy(x + begin, out + begin, end - begin);
    std::array<Wider<T>, kBlock> partial;
    each_block(begin, end, [&](int64_t i, int64_t count) {
      const auto to = [&](size_t k) { return k + 1 < sums.size() ? partial.data() : out + i; };
      rows.add_first(x + i, sums[0] + i, to(0), count);
      for (size_t k = 1; k < sums.size(); ++k) {
        rows.add(partial.data(), sums[k] + i, to(k), count);
      }
    });
  });
}

#define TAPESTRY_INSTANTIATE(T)                                               \
  template void tree_add(Cpu, std::span<const T* const>, Wider<T>*, int64_t); \
  template void add_in_order(Cpu, const T*, std::span<const Wider<T>* const>, Wider<T>*, int64_t);
TAPESTRY_INSTANTIATE(float)
TAPESTRY_INSTANTIATE(double)
TAPESTRY_INSTANTIATE(BFloat16)
#undef TAPESTRY_INSTANTIATE

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
