// The CUDA language and its device functions on the CPU: see cuda_runtime_api.h.
//
// A launch runs one block after the other. The threads of a block are fibers of one OS thread that
// give way to each other at barriers and warp exchanges, so static shared memory is simply static.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <type_traits>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace cuda_emulation {

/// Runs `body` once for every thread of the grid.
cudaError_t run(const cudaLaunchConfig_t& config, const std::function<void()>& body);

void block_barrier();
/// Returns when every lane of the calling thread's warp has called it.
void warp_barrier();
/// The calling lane's number, and the slots of its warp: 16 bytes per lane, two sets in turn.
int lane();
unsigned char* warp_slots();

/// The value that lane `from` of the warp passes in the same call.
template <class T>
T exchange(T value, int from) {
  static_assert(sizeof(T) <= 16);
  unsigned char* const slots = warp_slots();
  std::memcpy(slots + 16 * lane(), &value, sizeof(T));
  warp_barrier();
  std::memcpy(&value, slots + 16 * from, sizeof(T));
  return value;
}

}  // namespace cuda_emulation

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  if (config->stream != nullptr) {
    const auto held = std::make_shared<std::tuple<Params...>>(args...);
    cuda_emulation::put_on(config->stream, [config = *config, kernel, held] {
      const auto body = [&] { std::apply(kernel, *held); };
      return cuda_emulation::run(config, body), true;
    });
    return cudaSuccess;
  }
  if (!cuda_emulation::is_capturing()) {
    return cuda_emulation::run(*config, [&] { kernel(args...); });
  }
  const auto held = std::make_shared<std::tuple<Params...>>(args...);
  cuda_emulation::put(
      [config = *config, kernel, held] {
        const auto body = [&] { std::apply(kernel, *held); };
        if (cuda_emulation::run(config, body) != cudaSuccess) throw std::logic_error("launch");
      },
      [held](void** from) {
        const auto take = [&](auto& argument) {
          argument = *static_cast<std::remove_reference_t<decltype(argument)>*>(*from++);
        };
        std::apply([&](auto&... arguments) { (take(arguments), ...); }, *held);
      });
  return cudaSuccess;
}

inline void __syncthreads() { cuda_emulation::block_barrier(); }
inline void __syncwarp(unsigned = 0xffffffffu) { cuda_emulation::warp_barrier(); }
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return cuda_emulation::exchange(value, from & 31);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return cuda_emulation::exchange(value, cuda_emulation::lane() ^ mask);
}
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const int from = cuda_emulation::lane() + static_cast<int>(delta);
  return cuda_emulation::exchange(value, from < 32 ? from : cuda_emulation::lane());
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned delta) {
  const int from = cuda_emulation::lane() - static_cast<int>(delta);
  return cuda_emulation::exchange(value, from >= 0 ? from : cuda_emulation::lane());
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  unsigned votes = 0;
  for (int i = 0; i < 32; ++i) {
    // Every lane reads every other lane's vote; one exchange per lane keeps the calls in step.
    votes |= static_cast<unsigned>(cuda_emulation::exchange(predicate != 0, i)) << i;
  }
  return votes;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == 0xffffffffu;
}

/// The lanes that have the calling lane's value.
inline unsigned __match_any_sync(unsigned, int value) {
  unsigned same = 0;
  for (int i = 0; i < 32; ++i) {
    same |= static_cast<unsigned>(cuda_emulation::exchange(value, i) == value) << i;
  }
  return same;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
template <class T>
T __ldg(const T* x) {
  return *x;
}
