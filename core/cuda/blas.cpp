// cuBLASLt is column-major. A row-major matrix X (r, c) with leading dimension ld is, read by
// columns, X^T (c, r) with the same ld. So for the product
//   C = alpha op(A) op(B) + beta C             (m, n)
// it computes
//   C^T = alpha op(B)^T op(A)^T + beta C^T     (n, m)
// with B's memory as its first operand and A's as its second. A stored B (k, n) reads as B^T (n,
// k), which is op(B)^T as it is; a stored B (n, k), to be transposed, reads as (k, n) and is
// transposed back. The same holds for A. So each operand keeps its flag, and rows and columns swap:
//
//   operand    memory read by columns           transposed
//   first  B   (n, k), or (k, n) if trans_b     trans_b
//   second A   (k, m), or (m, k) if trans_a     trans_a
//   C, D       (n, m)                           no
//
// Epilogues (https://docs.nvidia.com/cuda/cublas/, cublasLtEpilogue_t): BIAS has an element for
// each row of cuBLASLt's D, which is a column of ours. GELU is the tanh form. GELU_AUX stores its
// input in the layout of D, with its own leading dimension, which must be a multiple of 8. RELU is
// not used, because it turns NaN into 0. BGRADB, which sums the rows of op(A), is not used either:
// on an H200 such products take 15 to 45 % longer, which is more than reading A once more.
#include "core/cuda/blas.h"

#include <cublasLt.h>

#include <array>
#include <bit>
#include <mutex>
#include <unordered_map>

#include "core/cuda/runtime.h"
#include "core/cuda/times.h"

namespace tapestry::cuda {
namespace {

void check_blas(cublasStatus_t status) {
  check(status == CUBLAS_STATUS_SUCCESS, "gemm", "cuBLASLt says ", cublasLtGetStatusName(status),
        ": ", cublasLtGetStatusString(status), '.');
}

template <class T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr cudaDataType_t kData = CUDA_R_32F, kScale = CUDA_R_32F;
  static cublasComputeType_t compute(Precision precision) {
    return precision == Precision::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  }
};
template <>
struct TypeOf<double> {
  static constexpr cudaDataType_t kData = CUDA_R_64F, kScale = CUDA_R_64F;
  static cublasComputeType_t compute(Precision) { return CUBLAS_COMPUTE_64F; }
};
template <>
struct TypeOf<BFloat16> {
  static constexpr cudaDataType_t kData = CUDA_R_16BF, kScale = CUDA_R_32F;
  static cublasComputeType_t compute(Precision) { return CUBLAS_COMPUTE_32F; }
};

template <class T>
cublasLtEpilogue_t kind_of(const Epilogue<T>& epilogue) {
  const bool bias = epilogue.bias != nullptr;
  if (!epilogue.gelu_tanh) return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (epilogue.z != nullptr) {
    return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  }
  return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

// The largest power of two up to 256 that divides the address: no algorithm needs more.
uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<uint32_t>(address & -address);
}

// ---- The descriptors of one product, on the stack

template <class Value>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute,
         const Value& value) {
  check_blas(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)));
}
template <class Value>
void set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute,
         const Value& value) {
  check_blas(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof(value)));
}
template <class Value>
void set(cublasLtMatmulPreferenceOpaque_t& preference,
         cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  check_blas(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)));
}

struct Layout {
  cudaDataType_t type;
  int64_t rows, cols, ld;  // by columns
  int64_t batch, stride;
};

cublasLtMatrixLayoutOpaque_t layout_of(const Layout& l) {
  cublasLtMatrixLayoutOpaque_t layout;
  check_blas(cublasLtMatrixLayoutInit(&layout, l.type, static_cast<uint64_t>(l.rows),
                                      static_cast<uint64_t>(l.cols), l.ld));
  if (l.batch > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(l.batch));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, l.stride);
  }
  return layout;
}

struct Descriptors {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t first, second, result;
};

template <class T>
Descriptors describe(const Gemm<T>& g, const Epilogue<T>& epilogue) {
  constexpr cudaDataType_t type = TypeOf<T>::kData;
  Descriptors d;
  d.first =
      layout_of({type, g.trans_b ? g.k : g.n, g.trans_b ? g.n : g.k, g.ldb, g.batch, g.stride_b});
  d.second =
      layout_of({type, g.trans_a ? g.m : g.k, g.trans_a ? g.k : g.m, g.lda, g.batch, g.stride_a});
  d.result = layout_of({type, g.n, g.m, g.ldc, g.batch, g.stride_c});
  auto& operation = d.operation;
  check_blas(
      cublasLtMatmulDescInit(&operation, TypeOf<T>::compute(g.precision), TypeOf<T>::kScale));
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, kind_of(epilogue));
  // The bias has elements of D's type (the default), T.
  if (epilogue.bias != nullptr) {
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias);
  }
  if (epilogue.z != nullptr) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.z);
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.ldc);
  }
  return d;
}

// ---- The algorithm for a product, searched once

// The library may refuse a combination for which its heuristic named an algorithm.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

// Everything that the choice may depend on; strides only with a batch.
using Key = std::array<int64_t, 14>;

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0;
    for (const int64_t part : key) {
      hash = (std::rotl(hash, 5) ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15u;
    }
    return static_cast<size_t>(hash ^ (hash >> 32));
  }
};

template <class T>
Key key_of(const Gemm<T>& g, const Epilogue<T>& epilogue) {
  const void* const pointers[] = {g.a, g.b, g.c, epilogue.bias, epilogue.z};
  int64_t alignments = 0;
  for (const void* pointer : pointers) {
    alignments = alignments * 16 + std::countr_zero(alignment_of(pointer));
  }
  const int64_t kind = (static_cast<int64_t>(kind_of(epilogue)) * 2 + g.trans_a) * 2 + g.trans_b;
  const bool batched = g.batch > 1;
  return {TypeOf<T>::kData,
          TypeOf<T>::compute(g.precision),
          kind,
          alignments,
          g.m,
          g.n,
          g.k,
          g.lda,
          g.ldb,
          g.ldc,
          g.batch,
          batched ? g.stride_a : 0,
          batched ? g.stride_b : 0,
          batched ? g.stride_c : 0};
}

struct Algorithm {
  internal::Answer answer =
      internal::Answer::kNo;  // kUnknown: there is one, but it has not run yet
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
  bool undemanding = false;
};

// Conditions that an algorithm must meet.
enum class Demands {
  // A fixed order of sums: k may be split only if a separate step adds the parts in the type of
  // sums. (No split is always allowed.) May rely on the alignment of the operands.
  kUsual,
  // For products without a usual algorithm. The documentation of other ways to add the parts does
  // not promise a fixed order.
  kFewest,
};

class Library {
 public:
  Library() : workspace_(cuda::allocate(current_device(), kWorkspaceBytes)) {
    check_blas(cublasLtCreate(&handle_));
  }

  template <class T>
  bool run(const Gemm<T>& g, const Epilogue<T>& epilogue) {
    Descriptors d = describe(g, epilogue);
    std::lock_guard lock(mutex_);
    Algorithm& best = algorithm_for(g, epilogue, d);
    if (best.answer == internal::Answer::kNo) return false;
    cublasStatus_t status = multiply(g, d, best);
    if (is_refusal(status)) note_refusal(g, epilogue, status);
    if (is_refusal(status) && is_plain(epilogue) && !best.undemanding) {
      best = ask(g, d, Demands::kFewest);
      if (best.answer != internal::Answer::kNo) status = multiply(g, d, best);
    }
    const bool supported = best.answer != internal::Answer::kNo && !is_refusal(status);
    if (supported) check_blas(status);
    best.answer = supported ? internal::Answer::kYes : internal::Answer::kNo;
    return supported;
  }

  template <class T>
  internal::Answer answer_to(const Gemm<T>& g, const Epilogue<T>& epilogue) {
    std::lock_guard lock(mutex_);
    const auto known = algorithms_.find(key_of(g, epilogue));
    return known == algorithms_.end() ? internal::Answer::kUnknown : known->second.answer;
  }

  ProductStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  template <class T>
  static bool is_plain(const Epilogue<T>& epilogue) {
    return kind_of(epilogue) == CUBLASLT_EPILOGUE_DEFAULT;
  }

  template <class T>
  cublasStatus_t multiply(const Gemm<T>& g, Descriptors& d, const Algorithm& best) {
    const Wider<T> alpha = static_cast<Wider<T>>(g.alpha), beta = static_cast<Wider<T>>(g.beta);
    return cublasLtMatmul(handle_, &d.operation, &alpha, g.b, &d.first, g.a, &d.second, &beta, g.c,
                          &d.result, g.c, &d.result, &best.algorithm, workspace_,
                          best.workspace_bytes, static_cast<cudaStream_t>(internal::stream()));
  }

  template <class T>
  void note_refusal(const Gemm<T>& g, const Epilogue<T>& epilogue, cublasStatus_t status) {
    ++stats_.refused;
    if (!stats_.refusal.empty()) return;
    stats_.refusal =
        concat(internal::name_of_product(g, epilogue), ": ", cublasLtGetStatusName(status));
  }

  template <class T>
  Algorithm& algorithm_for(const Gemm<T>& g, const Epilogue<T>& epilogue, Descriptors& d) {
    const auto [entry, is_new] = algorithms_.try_emplace(key_of(g, epilogue));
    if (!is_new) return entry->second;
    entry->second = ask(g, d, Demands::kUsual);
    if (entry->second.answer != internal::Answer::kNo) return entry->second;
    ++stats_.without_algorithm;
    // An epilogue has a fallback in the caller, so only plain products ask again.
    if (is_plain(epilogue)) entry->second = ask(g, d, Demands::kFewest);
    return entry->second;
  }

  template <class T>
  Algorithm ask(const Gemm<T>& g, Descriptors& d, Demands demands) {
    const bool usual = demands == Demands::kUsual;
    cublasLtMatmulPreferenceOpaque_t preference;
    check_blas(cublasLtMatmulPreferenceInit(&preference));
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<uint64_t>(kWorkspaceBytes));
    const uint32_t reductions =
        usual ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_MASK;
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    // cuBLASLt assumes 256 bytes unless it is told the alignment.
    const auto alignment = [&](const T* pointer) -> uint32_t {
      return usual ? alignment_of(pointer) : sizeof(T);
    };
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(g.b));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(g.a));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(g.c));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(g.c));
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, &d.operation, &d.first, &d.second, &d.result,
                                       &d.result, &preference, 1, &result, &count);
    // Both statuses mean that it lacks this combination.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
    check_blas(status);
    if (count == 0 || result.state != CUBLAS_STATUS_SUCCESS) return {};
    return {internal::Answer::kUnknown, result.algo, result.workspaceSize, !usual};
  }

  cublasLtHandle_t handle_{};
  void* workspace_;  // one stream: never used by two products at once
  std::mutex mutex_;
  std::unordered_map<Key, Algorithm, KeyHash> algorithms_;
  ProductStats stats_;
};

Library& library() {
  static auto* instance = new Library;  // never destroyed, as the pool of runtime.cpp
  return *instance;
}

// True if the library wants an epilogue's operands at other addresses. It documents the alignment
// of z. The preferences have no alignment for the vectors, and it may read them 16 bytes at a time.
template <class T>
bool refused(const Gemm<T>& args, const Epilogue<T>& epilogue) {
  for (const T* operand : {epilogue.bias, static_cast<const T*>(epilogue.z)}) {
    if (alignment_of(operand) < 16) return true;  // that of null is 256
  }
  return epilogue.z != nullptr && args.ldc % 8 != 0;
}

}  // namespace

namespace internal {

template <class T>
bool multiply(const Gemm<T>& args, const Epilogue<T>& epilogue) {
  if (refused(args, epilogue)) return false;
  const Timed timed([&] { return name_of_product(args, epilogue); });
  return library().run(args, epilogue);
}

template <class T>
Answer answer_to(const Gemm<T>& args, const Epilogue<T>& epilogue) {
  return refused(args, epilogue) ? Answer::kNo : library().answer_to(args, epilogue);
}

#define TAPESTRY_PRODUCTS(T)                                  \
  template bool multiply(const Gemm<T>&, const Epilogue<T>&); \
  template Answer answer_to(const Gemm<T>&, const Epilogue<T>&);
TAPESTRY_PRODUCTS(float)
TAPESTRY_PRODUCTS(double)
TAPESTRY_PRODUCTS(BFloat16)

}  // namespace internal

ProductStats product_stats() { return library().stats(); }

}  // namespace tapestry::cuda
