// Shared by all CUDA kernels: the launch, 16-byte accesses, sums over warps and blocks in a fixed
// order. Only .cu files include this.
//
// Write static shared memory as `static __shared__` and dynamic shared memory as
// dynamic_shared<T>(): the tests' emulation, which runs these kernels on the CPU, provides both.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "core/cuda/graph.h"
#include "core/cuda/runtime.h"
#include "core/cuda/times.h"
#include "core/kernels/common.h"

namespace tapestry {

inline constexpr int kWarp = 32;
inline constexpr int kBlock = 256;  ///< threads of a block, unless a kernel has a reason

extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];

template <class T>
__device__ T* dynamic_shared() {
  return reinterpret_cast<T*>(dynamic_shared_bytes);
}

/// Uninitialised device memory for `count` elements of T, freed at the end of the scope. The next
/// owner's work runs after the kernels launched before that.
template <class T>
class DeviceScratch {
 public:
  explicit DeviceScratch(int64_t count)
      : bytes_(count * static_cast<int64_t>(sizeof(T))),
        data_(static_cast<T*>(cuda::allocate(cuda::current_device(), bytes_))) {}
  ~DeviceScratch() { cuda::free(data_, bytes_); }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  T* data() { return data_; }

 private:
  int64_t bytes_;
  T* data_;
};

struct Launch {
  const char* kernel;  ///< for errors and times
  dim3 grid;
  dim3 block = dim3(kBlock);
  int64_t shared_bytes = 0;
};

template <class... Params>
class KernelCall final : public cuda::internal::Work {
 public:
  KernelCall(const Launch& what, void (*kernel)(Params...), const Params&... args)
      : what_(what), kernel_(kernel), args_(args...) {
    // The compiler may read the last few elements as 16 bytes.
    what_.shared_bytes = (what_.shared_bytes + 15) / 16 * 16;
  }

  void issue() const override {
    allow_shared_bytes();
    cudaLaunchConfig_t config = {};
    config.gridDim = what_.grid;
    config.blockDim = what_.block;
    config.dynamicSmemBytes = static_cast<size_t>(what_.shared_bytes);
    config.stream = static_cast<cudaStream_t>(cuda::internal::stream());
    const cuda::internal::Timed timed([&] { return what_.kernel; });
    const cudaError_t status = std::apply(
        [&](const Params&... args) { return cudaLaunchKernelEx(&config, kernel_, args...); },
        args_);
    cuda::internal::check_launch(status, what_.kernel, {what_.grid.x, what_.grid.y, what_.grid.z},
                                 {what_.block.x, what_.block.y, what_.block.z}, what_.shared_bytes);
  }
  uint64_t shape() const override {
    uint64_t hash = reinterpret_cast<uint64_t>(kernel_);
    for (const dim3& size : {what_.grid, what_.block}) {
      for (const unsigned n : {size.x, size.y, size.z}) hash = cuda::internal::mix(hash, n);
    }
    return cuda::internal::mix(hash, static_cast<uint64_t>(what_.shared_bytes));
  }
  // By bytes, without the padding between members.
  bool equals(const Work& other) const override {
    return equal_arguments(static_cast<const KernelCall&>(other).args_,
                           std::index_sequence_for<Params...>());
  }
  bool update(cudaGraphExec_t graph, cudaGraphNode_t node) const override {
    allow_shared_bytes();
    return std::apply(
        [&](const Params&... args) {
          void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
          cudaKernelNodeParams node_params = {};
          node_params.func = reinterpret_cast<void*>(kernel_);
          node_params.gridDim = what_.grid;
          node_params.blockDim = what_.block;
          node_params.sharedMemBytes = static_cast<unsigned>(what_.shared_bytes);
          node_params.kernelParams = pointers;
          return cuda::internal::accepted(
              cudaGraphExecKernelNodeSetParams(graph, node, &node_params));
        },
        args_);
  }

 private:
  // More than 48 KiB must be requested. That limit includes the kernel's static shared memory: a
  // few KiB that are unknown here.
  void allow_shared_bytes() const {
    if (what_.shared_bytes < 40 * 1024) return;
    cuda::internal::check_status(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_),
                                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      static_cast<int>(what_.shared_bytes)),
                                 what_.kernel);
  }
  template <size_t... kIndex>
  bool equal_arguments(const std::tuple<Params...>& other, std::index_sequence<kIndex...>) const {
    return (same_bytes(std::get<kIndex>(args_), std::get<kIndex>(other)) && ...);
  }
  template <class Argument>
  static bool same_bytes(const Argument& a, const Argument& b) {
    if (std::memcmp(&a, &b, sizeof(Argument)) == 0) return true;
    Argument x = a, y = b;
    __builtin_clear_padding(&x);
    __builtin_clear_padding(&y);
    return std::memcmp(&x, &y, sizeof(Argument)) == 0;
  }

  Launch what_;
  void (*kernel_)(Params...);
  std::tuple<Params...> args_;
};

/// Puts the kernel on the process's stream. Throws Error(kRuntime) with the sizes if that fails.
template <class... Params, class... Args>
void launch(const Launch& what, void (*kernel)(Params...), const Args&... args) {
  if (what.grid.x == 0 || what.grid.y == 0 || what.grid.z == 0) return;
  cuda::internal::put_on_stream(KernelCall<Params...>(what, kernel, static_cast<Params>(args)...));
}

/// The number of blocks of `block` threads for n items with a thread each, but at most `limit`:
/// then the kernel needs a grid-stride loop.
inline unsigned blocks_for(int64_t n, int64_t block = kBlock, int64_t limit = 1 << 20) {
  const int64_t blocks = (n + block - 1) / block;
  return static_cast<unsigned>(blocks < limit ? blocks : limit);
}

/// The thread's index in a one-dimensional grid, and the number of threads.
__device__ inline int64_t global_thread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t global_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// N elements that are loaded and stored in one access of at most 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// Whether arrays with rows of `stride` elements can be read in Packs of 16 bytes. True for null.
template <class T, class... Pointers>
bool can_pack(int64_t stride, Pointers... pointers) {
  return stride % kPack<T> == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

/// Arithmetic on elements is done in Wider<T>.
template <class T>
__device__ Wider<T> widen(T x) {
  return static_cast<Wider<T>>(x);
}
template <class T>
__device__ T narrow(Wider<T> x) {
  return static_cast<T>(x);
}

/// y (=|+=) value.
template <class T>
__device__ void deliver(T* y, Wider<T> value, Write write) {
  *y = narrow<T>(write == Write::kAdd ? widen(*y) + value : value);
}

/// Functors for the reductions below.
struct SumOf {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct MaxOf {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

/// Gives every lane the same result, by a butterfly: the order is always the same.
template <class T, class Op>
__device__ T warp_reduce(T value, Op op) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  }
  return value;
}
template <class T>
__device__ T warp_sum(T value) {
  return warp_reduce(value, SumOf());
}

/// Gives every thread of a one-dimensional block the same result. The block size is a multiple of
/// kWarp. `identity` is op's neutral element. All threads must call it.
template <class T, class Op>
__device__ T block_reduce(T value, Op op, T identity) {
  static __shared__ T warps[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  value = warp_reduce(value, op);
  __syncthreads();  // everyone has read the previous call's result
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  const int count = static_cast<int>(blockDim.x) / kWarp;
  return warp_reduce(lane < count ? warps[lane] : identity, op);
}
template <class T>
__device__ T block_sum(T value) {
  return block_reduce(value, SumOf(), T(0));
}

/// The factors of dropout, drawn on request.
template <class T>
struct DropoutFactors {
  explicit DropoutFactors(const Dropout& dropout)
      : key(dropout.key), on(dropout.p > 0), factor(1 / (1 - static_cast<double>(dropout.p))) {
    // Draws up to this one are below p * 2^32.
    const double limit = std::ceil(static_cast<double>(dropout.p) * 0x1p32);
    last_dropped = on ? static_cast<uint32_t>(static_cast<uint64_t>(limit) - 1) : 0;
  }
  /// 0 or 1 / (1 - p) for element `index`; 1 without dropout.
  __device__ Wider<T> at(uint64_t index) const {
    if (!on) return 1;
    return philox_bits(key, index) > last_dropped ? factor : Wider<T>(0);
  }
  /// at(4 * block + i) in v[i]: one generator call for four elements.
  __device__ void four(uint64_t block, Wider<T> (&v)[4]) const {
    const Philox4 bits = on ? philox(key, block) : Philox4{};
    for (int i = 0; i < 4; ++i) {
      v[i] = !on ? Wider<T>(1) : bits.v[i] > last_dropped ? factor : Wider<T>(0);
    }
  }

  PhiloxKey key;
  bool on;
  uint32_t last_dropped;
  Wider<T> factor;
};

}  // namespace tapestry
