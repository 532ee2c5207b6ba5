#include <limits>

#include "core/kernels/attention/additive_attention.h"
#include "core/kernels/cuda/column_sums.cuh"

namespace tapestry {
namespace {

__device__ inline int64_t real_keys(const AdditiveAttentionShape& s, int64_t b) {
  if (s.key_lengths == nullptr) return s.keys;
  const int64_t length = s.key_lengths[b];
  return length < 0 ? 0 : length < s.keys ? length : s.keys;
}

// Calls f(j) for the keys of the calling thread's warp, with all lanes together.
template <class F>
__device__ void each_key_of_warp(int64_t keys, F f) {
  for (int64_t j = threadIdx.x / kWarp; j < keys; j += blockDim.x / kWarp) f(j);
}

// The sum of term(i) over i < n, by the lanes of a warp.
template <class W, class F>
__device__ W warp_sum_of(int64_t n, F term) {
  W sum = 0;
  for (int64_t i = threadIdx.x % kWarp; i < n; i += kWarp) sum += term(i);
  return warp_sum(sum);
}

// q (B, T, A), k (B, S, A), values (B, S, E) -> weights (B, T, S), out (B, T, E): a block for each
// (b, t). First each warp computes scores of keys, then each thread a column of out.
template <class T>
__global__ void forward(AdditiveAttentionShape s, AdditiveAttentionForward<T> args) {
  using W = Wider<T>;
  W* const weights = dynamic_shared<W>();  // (S)
  const int64_t row = blockIdx.x, b = s.memory(row / s.queries), real = real_keys(s, b);
  const T *const q = args.q + row * s.size, *const k = args.k + b * s.keys * s.size;
  each_key_of_warp(real, [&](int64_t j) {
    const W score = warp_sum_of<W>(s.size, [&](int64_t i) {
      return widen(args.v[i]) * std::tanh(widen(q[i]) + widen(k[j * s.size + i]));
    });
    if (threadIdx.x % kWarp == 0) weights[j] = score;
  });
  __syncthreads();
  W largest = -std::numeric_limits<W>::infinity();
  for (int64_t j = threadIdx.x; j < real; j += blockDim.x) {
    if (weights[j] > largest) largest = weights[j];
  }
  largest = block_reduce(largest, MaxOf(), -std::numeric_limits<W>::infinity());
  W sum = 0;
  for (int64_t j = threadIdx.x; j < real; j += blockDim.x) {
    sum += weights[j] = std::exp(weights[j] - largest);
  }
  sum = block_sum(sum);
  for (int64_t j = threadIdx.x; j < s.keys; j += blockDim.x) {
    const W weight = j < real ? weights[j] / sum : W(0);
    if (j < real) weights[j] = weight;
    args.weights[row * s.keys + j] = narrow<T>(weight);
  }
  __syncthreads();
  const T* const values = args.values + b * s.keys * s.value_size;
  for (int64_t e = threadIdx.x; e < s.value_size; e += blockDim.x) {
    W out = 0;
    for (int64_t j = 0; j < real; ++j) out += weights[j] * widen(values[j * s.value_size + e]);
    args.out[row * s.value_size + e] = narrow<T>(out);
  }
}

// A block for each (b, t) computes ds (B, T, S) of its keys, dq (B, T, A) or null, and its part of
// dv (B * T, A).
template <class T>
__global__ void backward_query(AdditiveAttentionShape s, AdditiveAttentionBackward<T> args,
                               Wider<T>* ds, Wider<T>* dv_parts) {
  using W = Wider<T>;
  W* const slopes = dynamic_shared<W>();  // (S): dw, then ds
  const int64_t row = blockIdx.x, b = row / s.queries, real = real_keys(s, b);
  const T* const d_out = args.d_out + row * s.value_size;
  const T* const values = args.values + b * s.keys * s.value_size;
  each_key_of_warp(real, [&](int64_t j) {
    const W dw = warp_sum_of<W>(s.value_size, [&](int64_t e) {
      return widen(d_out[e]) * widen(values[j * s.value_size + e]);
    });
    if (threadIdx.x % kWarp == 0) slopes[j] = dw;
  });
  __syncthreads();
  const T* const weights = args.weights + row * s.keys;
  W mean = 0;
  for (int64_t j = threadIdx.x; j < real; j += blockDim.x) mean += widen(weights[j]) * slopes[j];
  mean = block_sum(mean);
  for (int64_t j = threadIdx.x; j < real; j += blockDim.x) {
    slopes[j] = widen(weights[j]) * (slopes[j] - mean);
    ds[row * s.keys + j] = slopes[j];
  }
  __syncthreads();
  const T* const k = args.k + b * s.keys * s.size;
  for (int64_t i = threadIdx.x; i < s.size; i += blockDim.x) {
    const W q = widen(args.q[row * s.size + i]);
    W dq = 0, dv = 0;
    for (int64_t j = 0; j < real; ++j) {
      const W t = std::tanh(q + widen(k[j * s.size + i]));
      dq += slopes[j] * (1 - t * t);
      dv += slopes[j] * t;
    }
    if (args.dq != nullptr) {
      deliver(args.dq + row * s.size + i, dq * widen(args.v[i]), args.dq_write);
    }
    dv_parts[row * s.size + i] = dv;
  }
}

// A block for each (b, j) sums dk (B, S, A) and d_values (B, S, E) over the queries in order;
// either may be null.
template <class T>
__global__ void backward_key(AdditiveAttentionShape s, AdditiveAttentionBackward<T> args,
                             const Wider<T>* ds) {
  using W = Wider<T>;
  const int64_t key = blockIdx.x, b = key / s.keys, j = key % s.keys;
  const int64_t first = b * s.queries, end = j < real_keys(s, b) ? first + s.queries : first;
  for (int64_t i = threadIdx.x; args.dk != nullptr && i < s.size; i += blockDim.x) {
    const W k = widen(args.k[key * s.size + i]);
    W dk = 0;
    for (int64_t row = first; row < end; ++row) {
      const W t = std::tanh(widen(args.q[row * s.size + i]) + k);
      dk += ds[row * s.keys + j] * (1 - t * t);
    }
    deliver(args.dk + key * s.size + i, dk * widen(args.v[i]), args.dk_write);
  }
  for (int64_t e = threadIdx.x; args.d_values != nullptr && e < s.value_size; e += blockDim.x) {
    W sum = 0;
    for (int64_t row = first; row < end; ++row) {
      sum += widen(args.weights[row * s.keys + j]) * widen(args.d_out[row * s.value_size + e]);
    }
    deliver(args.d_values + key * s.value_size + e, sum, args.d_values_write);
  }
}

}  // namespace

namespace kernels {

template <class T>
void additive_attention(Cuda, const AdditiveAttentionShape& s,
                        const AdditiveAttentionForward<T>& args) {
  launch({.kernel = "additive_attention",
          .grid = blocks_for(s.batch * s.queries, 1, INT32_MAX),
          .shared_bytes = s.keys * static_cast<int64_t>(sizeof(Wider<T>))},
         forward<T>, s, args);
}

template <class T>
void additive_attention_backward(Cuda, const AdditiveAttentionShape& s,
                                 const AdditiveAttentionBackward<T>& args) {
  using W = Wider<T>;
  const int64_t rows = s.batch * s.queries;
  DeviceScratch<W> ds(rows * s.keys), dv_parts(rows * s.size);
  launch({.kernel = "additive_attention_backward",
          .grid = blocks_for(rows, 1, INT32_MAX),
          .shared_bytes = s.keys * static_cast<int64_t>(sizeof(W))},
         backward_query<T>, s, args, ds.data(), dv_parts.data());
  if (args.dk != nullptr || args.d_values != nullptr) {
    launch({.kernel = "additive_attention_backward",
            .grid = blocks_for(s.batch * s.keys, 1, INT32_MAX)},
           backward_key<T>, s, args, ds.data());
  }
  if (args.dv != nullptr) {
    sum_parts(dv_parts.data(), rows, s.size, W(1), args.dv, args.dv_write);
  }
}

#define TAPESTRY_ADDITIVE_ATTENTION(T)                                           \
  template void additive_attention(Cuda, const AdditiveAttentionShape&,          \
                                   const AdditiveAttentionForward<T>&);          \
  template void additive_attention_backward(Cuda, const AdditiveAttentionShape&, \
                                            const AdditiveAttentionBackward<T>&);
TAPESTRY_ADDITIVE_ATTENTION(float)
TAPESTRY_ADDITIVE_ATTENTION(double)
TAPESTRY_ADDITIVE_ATTENTION(BFloat16)

}  // namespace kernels
}  // namespace tapestry
