// Matrix products of the CUDA backend through cuBLASLt, without including its header. Only core's
// CUDA kernels include this; all other code calls core/kernels/matmul/gemm.h and linear.h.
#pragma once

#include <string>
#include <type_traits>

#include "core/base/error.h"
#include "core/cuda/graph.h"
#include "core/cuda/runtime.h"
#include "core/kernels/matmul/gemm.h"
#include "core/shapes_only.h"

namespace tapestry::cuda {

/// What a product does to its result before storing it.
template <class T>
struct Epilogue {
  const T* bias = nullptr;  ///< (n), added to every row
  bool gelu_tanh = false;   ///< C = gelu_tanh(alpha op(A) op(B) + bias), to BFloat16's precision
  T* z = nullptr;           ///< (m, ldc): receives the input of gelu_tanh

  bool operator==(const Epilogue&) const = default;
};

namespace internal {

/// "product bfloat16 nt 65536 x 3072 x 768 gelu": m, n, k and everything else that decides the
/// time.
template <class T>
std::string name_of_product(const Gemm<T>& g, const Epilogue<T>& epilogue) {
  const char* const type = std::is_same_v<T, float>    ? "float32"
                           : std::is_same_v<T, double> ? "float64"
                                                       : "bfloat16";
  std::string name =
      concat("product ", type, g.precision == Precision::kTf32 ? " tf32" : "", ' ',
             g.trans_a ? 't' : 'n', g.trans_b ? 't' : 'n', ' ', g.m, " x ", g.n, " x ", g.k);
  if (g.batch > 1) name += concat(" batch ", g.batch);
  if (g.beta != 0) name += " added";
  if (epilogue.bias != nullptr) name += " bias";
  if (epilogue.gelu_tanh) name += " gelu";
  return name;
}

// What multiply() will return; kUnknown before the first product of a kind. Defined in
// core/cuda/blas.cpp.
enum class Answer { kUnknown, kNo, kYes };
template <class T>
Answer answer_to(const Gemm<T>& args, const Epilogue<T>& epilogue);
/// matmul() that puts the product on the stream even while work is collected.
template <class T>
bool multiply(const Gemm<T>& args, const Epilogue<T>& epilogue);

template <class T>
class Product final : public Work {
 public:
  Product(const Gemm<T>& args, const Epilogue<T>& epilogue) : args_(args), epilogue_(epilogue) {}
  void issue() const override {
    check(multiply(args_, epilogue_), "gemm", "cuBLASLt no longer has an algorithm for m ", args_.m,
          ", n ", args_.n, ", k ", args_.k, ", batch ", args_.batch, '.');
  }
  uint64_t shape() const override {
    // Arrays, because nvcc rejects initializer lists here.
    const int64_t sizes[] = {args_.m, args_.n, args_.k, args_.batch};
    const bool flags[] = {args_.precision == Precision::kTf32,
                          args_.trans_a,
                          args_.trans_b,
                          args_.beta == 0,
                          epilogue_.gelu_tanh,
                          epilogue_.bias != nullptr,
                          epilogue_.z != nullptr};
    uint64_t hash = 0;
    for (const int64_t n : sizes) hash = mix(hash, static_cast<uint64_t>(n));
    for (const bool flag : flags) hash = mix(hash, flag);
    return hash;
  }
  bool equals(const Work& other) const override {
    const auto& product = static_cast<const Product&>(other);
    return args_ == product.args_ && epilogue_ == product.epilogue_;
  }
  // The arguments of the library's kernels are unknown.
  bool update(cudaGraphExec_t, cudaGraphNode_t) const override { return false; }

 private:
  Gemm<T> args_;
  Epilogue<T> epilogue_;
};

}  // namespace internal

/// Puts the product of `args` on the process's stream; m, n, k, batch >= 1. An epilogue needs batch
/// 1 and beta 0. The bits are the same in every run on the same kind of GPU with the same library.
/// Returns false and does nothing if the library has no algorithm, as for some epilogues, sizes and
/// addresses. Throws Error(kRuntime) with the library's message.
template <class T>
bool matmul(const Gemm<T>& args, const Epilogue<T>& epilogue = {}) {
  using namespace internal;
  if (ShapesOnly::is_on()) return true;
  if (collecting == nullptr) return multiply(args, epilogue);
  switch (answer_to(args, epilogue)) {
    case Answer::kNo:
      return false;
    case Answer::kYes:
      put_on_stream(Product<T>(args, epilogue));
      return true;
    case Answer::kUnknown:
      break;
  }
  stop_collecting();
  return multiply(args, epilogue);
}

}  // namespace tapestry::cuda
