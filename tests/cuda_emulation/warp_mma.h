// core/cuda/ptx/warp_mma.h on the CPU, from the fragment layouts that the PTX ISA gives for
// mma.m16n8k16 and ldmatrix. Copies to shared memory happen only in the wait, so that a kernel
// which forgets to wait reads the old content.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/bfloat16.h"

namespace tapestry {
namespace warp_emulation {

// The values of all lanes. Read them before the next exchange.
template <class T>
const unsigned char* gather(const T& value) {
  static_assert(sizeof(T) <= 16);
  unsigned char* const slots = cuda_emulation::warp_slots();
  std::memcpy(slots + 16 * cuda_emulation::lane(), &value, sizeof(T));
  cuda_emulation::warp_barrier();
  return slots;
}

template <class T>
T of_lane(const unsigned char* slots, int lane, size_t offset = 0) {
  T value;
  std::memcpy(&value, slots + 16 * lane + offset, sizeof(T));
  return value;
}

inline float half_of(uint32_t word, int half) {
  return std::bit_cast<float>(half == 0 ? word << 16 : word & 0xffff0000u);
}

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  bool valid;
};
inline std::vector<Copy>& copies_of_thread() {
  static std::vector<Copy> copies[1024];
  return copies[threadIdx.x];
}

}  // namespace warp_emulation

inline void warp_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  using namespace warp_emulation;
  const int g = cuda_emulation::lane() / 4, q = cuda_emulation::lane() % 4;
  float left[2][16], right[16][2];  // rows g and g + 8 of a, columns 2q and 2q + 1 of b
  const unsigned char* slots = gather(a);
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 16; ++k) {
      const int word = half + 2 * (k / 8), owner = 4 * g + k % 8 / 2;
      left[half][k] = half_of(of_lane<uint32_t>(slots, owner, sizeof(uint32_t) * word), k % 2);
    }
  }
  const uint32_t b[2] = {b0, b1};
  slots = gather(b);
  for (int column = 0; column < 2; ++column) {
    for (int k = 0; k < 16; ++k) {
      const int owner = 4 * (2 * q + column) + k % 8 / 2;
      right[k][column] =
          half_of(of_lane<uint32_t>(slots, owner, sizeof(uint32_t) * (k / 8)), k % 2);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 16; ++k) c[i] += left[i / 2][k] * right[k][i % 2];
  }
}

inline void warp_load_matrices(uint32_t (&words)[4], const void* row) {
  const int g = cuda_emulation::lane() / 4, q = cuda_emulation::lane() % 4;
  const unsigned char* const rows = warp_emulation::gather(row);
  for (int m = 0; m < 4; ++m) {
    const auto* const source = warp_emulation::of_lane<const uint32_t*>(rows, 8 * m + g);
    words[m] = source[q];
  }
}

inline void warp_load_transposed(uint32_t (&words)[4], const void* row) {
  const int g = cuda_emulation::lane() / 4, q = cuda_emulation::lane() % 4;
  const unsigned char* const rows = warp_emulation::gather(row);
  for (int m = 0; m < 4; ++m) {
    const auto* const low = warp_emulation::of_lane<const uint16_t*>(rows, 8 * m + 2 * q);
    const auto* const high = warp_emulation::of_lane<const uint16_t*>(rows, 8 * m + 2 * q + 1);
    words[m] = low[g] | static_cast<uint32_t>(high[g]) << 16;
  }
}

template <int kBytes>
void copy_async(void* shared, const void* global, bool valid) {
  warp_emulation::copies_of_thread().push_back({shared, global, kBytes, valid});
}
inline void wait_for_copies() {
  for (const auto& copy : std::exchange(warp_emulation::copies_of_thread(), {})) {
    if (copy.valid) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      std::memset(copy.to, 0, copy.bytes);
    }
  }
}

inline uint32_t pack_bfloat16(float low, float high) {
  return BFloat16(low).bits | static_cast<uint32_t>(BFloat16(high).bits) << 16;
}

}  // namespace tapestry
