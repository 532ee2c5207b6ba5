// core/cuda/blas.h by naive loops. It refuses epilogues that the library may refuse, so that both
// ways are tested, and batches with negative strides, which the library does not document.
#include <algorithm>
#include <vector>

#include "core/cuda/blas.h"
#include "core/cuda/times.h"
#include "core/kernels/elementwise/activation_functors.h"

namespace tapestry::cuda {
namespace {

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// Rows of C at 16-byte addresses.
template <class T>
bool has_epilogue(const Gemm<T>& g, const Epilogue<T>& epilogue) {
  const bool rows = g.ldc * sizeof(T) % 16 == 0 && aligned(g.c);
  return rows && aligned(epilogue.bias) &&
         (epilogue.z == nullptr || (g.ldc % 8 == 0 && aligned(epilogue.z)));
}

template <class T>
double value(T x) {
  return static_cast<double>(static_cast<Wider<T>>(x));
}
template <class T>
T element(double x) {
  return static_cast<T>(static_cast<Wider<T>>(x));
}

template <class T>
void multiply_row(const Gemm<T>& g, const Epilogue<T>& epilogue, int64_t item, int64_t i) {
  const T* const a = g.a + item * g.stride_a;
  const T* const b = g.b + item * g.stride_b;
  T* const c = g.c + item * g.stride_c + i * g.ldc;
  std::vector<double> row(static_cast<size_t>(g.n));
  for (int64_t p = 0; p < g.k; ++p) {
    const double x = value(g.trans_a ? a[p * g.lda + i] : a[i * g.lda + p]);
    for (int64_t j = 0; j < g.n; ++j) {
      row[j] += x * value(g.trans_b ? b[j * g.ldb + p] : b[p * g.ldb + j]);
    }
  }
  for (int64_t j = 0; j < g.n; ++j) {
    double result = g.alpha * row[j];
    if (g.beta != 0) result += g.beta * value(c[j]);
    if (epilogue.bias != nullptr) result += value(epilogue.bias[j]);
    if (epilogue.z != nullptr) epilogue.z[i * g.ldc + j] = element<T>(result);
    c[j] = element<T>(epilogue.gelu_tanh ? functors::GeluTanh::f(result) : result);
  }
}

template <class T>
void multiply_all(const Gemm<T>& args, const Epilogue<T>& epilogue) {
  for (int64_t item = 0; item < args.batch; ++item) {
    for (int64_t i = 0; i < args.m; ++i) multiply_row(args, epilogue, item, i);
  }
}

}  // namespace

namespace internal {

template <class T>
Answer answer_to(const Gemm<T>& args, const Epilogue<T>& epilogue) {
  const bool plain = epilogue.bias == nullptr && !epilogue.gelu_tanh;
  if (!plain && !has_epilogue(args, epilogue)) return Answer::kNo;
  if (args.batch > 1 && std::min({args.stride_a, args.stride_b, args.stride_c}) < 0) {
    return Answer::kNo;
  }
  return Answer::kYes;
}

template <class T>
bool multiply(const Gemm<T>& args, const Epilogue<T>& epilogue) {
  if (answer_to(args, epilogue) == Answer::kNo) return false;
  const Timed timed([&] { return name_of_product(args, epilogue); });
  cuda_emulation::put([=] { multiply_all(args, epilogue); });
  return true;
}

#define TAPESTRY_PRODUCTS(T)                                  \
  template bool multiply(const Gemm<T>&, const Epilogue<T>&); \
  template Answer answer_to(const Gemm<T>&, const Epilogue<T>&);
TAPESTRY_PRODUCTS(float)
TAPESTRY_PRODUCTS(double)
TAPESTRY_PRODUCTS(BFloat16)

}  // namespace internal

ProductStats product_stats() { return {}; }

}  // namespace tapestry::cuda
