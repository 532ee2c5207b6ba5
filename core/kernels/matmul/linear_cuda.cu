// Both passes over (rows, out) cut the matrix alike: a block of 32 x 8 threads takes 32 packs of N
// neighbouring columns, a warp a row of them, and goes down the rows in steps of 8 * gridDim.y. A
// thread keeps its columns, so that their bias, or their sums, stay in registers.
#include <fast_math.h>

#include <type_traits>

#include "core/cuda/blas.h"
#include "core/kernels/cuda/column_sums.cuh"
#include "core/kernels/elementwise/activation_functors.h"
#include "core/kernels/matmul/linear.h"

namespace tapestry {
namespace {

constexpr int kBlockRows = 8;

// At least 4 rows a thread, for bias and sums to be worth their handling; no more blocks than run
// at the same time, so that all end together.
template <class... Params>
dim3 grid_of(void (*kernel)(Params...), int64_t rows, int64_t packs) {
  const int64_t at_once =
      cuda::internal::blocks_at_once(reinterpret_cast<const void*>(kernel), kWarp * kBlockRows);
  const int64_t across = (packs + kWarp - 1) / kWarp;
  const int64_t down = (rows + 4 * kBlockRows - 1) / (4 * kBlockRows);
  const int64_t most = across < at_once ? at_once / across : 1;
  return dim3(static_cast<unsigned>(across), static_cast<unsigned>(down < most ? down : most));
}
constexpr dim3 kThreads(kWarp, kBlockRows);

// Derivatives for BFloat16, whose digits need no exact ones.
template <class T, class F>
__device__ Wider<T> slope_of(Wider<T> v) {
  if constexpr (std::is_same_v<T, BFloat16> && std::is_same_v<F, functors::GeluTanh>) {
    return F::df(v, fast_tanh(F::inner(v)));
  } else {
    return F::df(v);
  }
}

// product (rows, packs * N) (+ bias, in place unless the sum is not kept); y = act(product). y may
// be product.
template <class T, class F, int N>
__global__ void finish(T* product, bool keep, const T* bias, T* y, int64_t rows, int64_t packs) {
  using Columns = Pack<T, N>;
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  if (pack >= packs) return;
  Columns b{};
  if (bias != nullptr) b = reinterpret_cast<const Columns*>(bias)[pack];
  for (int64_t r = static_cast<int64_t>(blockIdx.y) * kBlockRows + threadIdx.y; r < rows;
       r += static_cast<int64_t>(gridDim.y) * kBlockRows) {
    Columns* const at = reinterpret_cast<Columns*>(product) + r * packs + pack;
    Columns values = *at;
    if (bias != nullptr) {
      for (int j = 0; j < N; ++j) values.v[j] = narrow<T>(widen(values.v[j]) + widen(b.v[j]));
      if (keep) *at = values;
    }
#pragma unroll
    for (T& v : values.v) v = narrow<T>(F::f(widen(v)));
    reinterpret_cast<Columns*>(y)[r * packs + pack] = values;
  }
}

// dz = act'(v) dy, (rows, packs * N), where dz is not null; parts (gridDim.y, packs * N), where not
// null, receives the sums of the columns of dz over the rows of each block.
template <class T, class F, int N>
__global__ void activation_backward(const T* v, const T* dy, T* dz, Wider<T>* parts, int64_t rows,
                                    int64_t packs) {
  using Columns = Pack<T, N>;
  static __shared__ Wider<T> shared[kBlockRows][kWarp * N];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  Wider<T> sums[N] = {};
  for (int64_t r = static_cast<int64_t>(blockIdx.y) * kBlockRows + warp; pack < packs && r < rows;
       r += static_cast<int64_t>(gridDim.y) * kBlockRows) {
    const int64_t at = r * packs + pack;
    const Columns slope = reinterpret_cast<const Columns*>(dy)[at];
    Columns value{}, result;
    if (v != nullptr) value = reinterpret_cast<const Columns*>(v)[at];
    for (int j = 0; j < N; ++j) {
      const Wider<T> d = slope_of<T, F>(widen(value.v[j])) * widen(slope.v[j]);
      result.v[j] = narrow<T>(d);
      sums[j] += d;
    }
    if (dz != nullptr) reinterpret_cast<Columns*>(dz)[at] = result;
  }
  if (parts == nullptr) return;
  for (int j = 0; j < N; ++j) shared[warp][lane * N + j] = sums[j];
  __syncthreads();
  const int column = warp * kWarp + lane;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarp * N, cols = packs * N;
  if (column >= kWarp * N || first + column >= cols) return;
  Wider<T> sum = 0;
  for (int w = 0; w < kBlockRows; ++w) sum += shared[w][column];
  parts[blockIdx.y * cols + first + column] = sum;
}

// dz (where not null) and the bias gradient (where asked for) in one pass.
template <class T>
void backward_of_activation(const LinearShape& shape, const LinearBackward<T>& args, T* dz) {
  with_functor(shape.activation, [&](auto functor) {
    using F = decltype(functor);
    const T* const v = functors::argument_of_df<F, T>(args.z, args.y, nullptr);
    const bool packed = can_pack<T>(shape.out, v, args.dy, dz);
    const int64_t packs = packed ? shape.out / kPack<T> : shape.out;
    const auto kernel = packed ? activation_backward<T, F, kPack<T>> : activation_backward<T, F, 1>;
    const dim3 grid = grid_of(kernel, shape.rows, packs);
    DeviceScratch<Wider<T>> parts(args.d_bias != nullptr ? grid.y * shape.out : 0);
    Wider<T>* const sums = args.d_bias != nullptr ? parts.data() : nullptr;
    launch({.kernel = "linear_backward", .grid = grid, .block = kThreads}, kernel, v, args.dy, dz,
           sums, shape.rows, packs);
    if (args.d_bias == nullptr) return;
    sum_parts<T>(sums, grid.y, shape.out, 1, args.d_bias, args.d_bias_write);
  });
}

double beta_of(Write write) { return write == Write::kAdd ? 1 : 0; }

// The product with what cuBLASLt can do on the way: false where it cannot, or there is nothing to
// do.
template <class T>
bool fused(const Gemm<T>& g, const cuda::Epilogue<T>& epilogue) {
  return g.m > 0 && g.n > 0 && g.k > 0 && cuda::matmul(g, epilogue);
}

}  // namespace

namespace kernels {

template <class T>
void linear(Cuda, const LinearShape& shape, const LinearForward<T>& args) {
  Gemm<T> g;
  g.m = shape.rows, g.n = shape.out, g.k = shape.in, g.precision = shape.precision;
  g.a = args.x, g.lda = shape.in;
  g.b = args.weight, g.ldb = shape.in, g.trans_b = true;
  g.c = args.y, g.ldc = shape.out;
  const Activation activation = shape.activation;
  // cuBLASLt's gelu is good for BFloat16's digits. Its relu would hide NaN.
  if (activation == Activation::kGeluTanh && std::is_same_v<T, BFloat16> &&
      fused(g, {.bias = args.bias, .gelu_tanh = true, .z = args.z})) {
    return;
  }
  if (args.z != nullptr) g.c = args.z;
  const bool biased = args.bias != nullptr && fused(g, {.bias = args.bias});
  if (!biased) gemm(Cuda{}, g);
  const T* const bias = biased ? nullptr : args.bias;
  if (activation == Activation::kNone && bias == nullptr && g.c == args.y) return;
  with_functor(activation, [&](auto functor) {
    using F = decltype(functor);
    const bool packed = can_pack<T>(shape.out, g.c, bias, args.y);
    const int64_t packs = packed ? shape.out / kPack<T> : shape.out;
    const auto kernel = packed ? finish<T, F, kPack<T>> : finish<T, F, 1>;
    launch({.kernel = "linear", .grid = grid_of(kernel, shape.rows, packs), .block = kThreads},
           kernel, g.c, args.z != nullptr, bias, args.y, shape.rows, packs);
  });
}

template <class T>
void linear_backward(Cuda, const LinearShape& shape, const LinearBackward<T>& args) {
  const bool activated = shape.activation != Activation::kNone;
  DeviceScratch<T> scratch(activated ? shape.rows * shape.out : 0);
  const T* const dz = activated ? scratch.data() : args.dy;
  // cuBLASLt can sum the rows of dz in the next product, which takes longer than to read them
  // again.
  if (activated || args.d_bias != nullptr) {
    backward_of_activation(shape, args, activated ? scratch.data() : nullptr);
  }
  if (args.d_weight != nullptr) {
    Gemm<T> g;
    g.m = shape.out, g.n = shape.in, g.k = shape.rows, g.precision = shape.precision;
    g.a = dz, g.lda = shape.out, g.trans_a = true;
    g.b = args.x, g.ldb = shape.in;
    g.c = args.d_weight, g.ldc = shape.in, g.beta = beta_of(args.d_weight_write);
    gemm(Cuda{}, g);
  }
  if (args.dx != nullptr) {
    Gemm<T> g;
    g.m = shape.rows, g.n = shape.in, g.k = shape.out, g.precision = shape.precision;
    g.a = dz, g.lda = shape.out;
    g.b = args.weight, g.ldb = shape.in;
    g.c = args.dx, g.ldc = shape.in, g.beta = beta_of(args.dx_write);
    gemm(Cuda{}, g);
  }
}

#define TAPESTRY_LINEAR(T)                                                 \
  template void linear(Cuda, const LinearShape&, const LinearForward<T>&); \
  template void linear_backward(Cuda, const LinearShape&, const LinearBackward<T>&);
TAPESTRY_LINEAR(float)
TAPESTRY_LINEAR(double)
TAPESTRY_LINEAR(BFloat16)

}  // namespace kernels
}  // namespace tapestry
