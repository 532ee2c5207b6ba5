#include "core/kernels/cuda/common.cuh"
#include "core/kernels/tree_add.h"

namespace tapestry {
namespace {

constexpr int kMostSums = 32;

template <class T, size_t N>
struct Operands {
  int count = 0;
  const T* x[N];

  explicit Operands(std::span<const T* const> from) : count(static_cast<int>(from.size())), x{} {
    for (int r = 0; r < count; ++r) x[r] = from[static_cast<size_t>(r)];
  }
};

// A binary counter over the operands: after operand r, as many sums are taken back from the stack
// as r has low bits set; what is left at the end is added from the top.
template <class T>
__global__ void tree_add_kernel(const __grid_constant__ Operands<T, kMostTreeOperands> operands,
                                Wider<T>* out, int64_t n) {
  for (int64_t i = global_thread(); i < n; i += global_threads()) {
    Wider<T> stack[10];
    int depth = 0;
    for (int r = 0; r < operands.count; ++r) {
      Wider<T> sum = widen(operands.x[r][i]);
      for (int bits = r; (bits & 1) != 0; bits >>= 1) sum = stack[--depth] + sum;
      stack[depth++] = sum;
    }
    Wider<T> sum = stack[--depth];
    while (depth > 0) sum = stack[--depth] + sum;
    out[i] = sum;
  }
}

template <class T>
__global__ void add_in_order_kernel(const T* x,
                                    const __grid_constant__ Operands<Wider<T>, kMostSums> sums,
                                    Wider<T>* out, int64_t n) {
  for (int64_t i = global_thread(); i < n; i += global_threads()) {
    Wider<T> sum = widen(x[i]);
    for (int k = 0; k < sums.count; ++k) sum = sum + sums.x[k][i];
    out[i] = sum;
  }
}

}  // namespace

namespace kernels {

template <class T>
void tree_add(Cuda, std::span<const T* const> x, Wider<T>* out, int64_t n) {
  check(!x.empty() && x.size() <= kMostTreeOperands, "tree_add", "expected 1 to ",
        kMostTreeOperands, " operands, got ", x.size(), '.');
  launch({.kernel = "tree_add", .grid = blocks_for(n)}, tree_add_kernel<T>,
         Operands<T, kMostTreeOperands>(x), out, n);
}

template <class T>
void add_in_order(Cuda, const T* x, std::span<const Wider<T>* const> sums, Wider<T>* out,
                  int64_t n) {
  check(sums.size() <= kMostSums, "add_in_order", "expected at most ", kMostSums, " sums, got ",
        sums.size(), '.');
  launch({.kernel = "add_in_order", .grid = blocks_for(n)}, add_in_order_kernel<T>, x,
         Operands<Wider<T>, kMostSums>(sums), out, n);
}

#define TAPESTRY_INSTANTIATE(T)                                                \
  template void tree_add(Cuda, std::span<const T* const>, Wider<T>*, int64_t); \
  template void add_in_order(Cuda, const T*, std::span<const Wider<T>* const>, Wider<T>*, int64_t);
TAPESTRY_INSTANTIATE(float)
TAPESTRY_INSTANTIATE(double)
TAPESTRY_INSTANTIATE(BFloat16)
#undef TAPESTRY_INSTANTIATE

}  // namespace kernels
}  // namespace tapestry
