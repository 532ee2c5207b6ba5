// The PTX instructions behind the tensor-core kernels (PTX ISA, "Warp-level matrix instructions"
// and "Data movement and conversion instructions"; sm_80 and later). Every lane of the warp must
// call the functions whose names begin with warp_. The tests run the kernels with functions of the
// same names that compute on the CPU.
//
// Fragments of mma.m16n8k16, with g = lane / 4 and q = lane % 4; two bfloat16 in a word, the first
// in the lower half:
//
// a (16 x 16):  a[0] = (g, 2q..), a[1] = (g + 8, 2q..), a[2] = (g, 2q + 8..),
//               a[3] = (g + 8, 2q + 8..)
// b (16 x 8):   b0 = (2q.., g), b1 = (2q + 8.., g)
// c (16 x 8):   c[0], c[1] = (g, 2q..), c[2], c[3] = (g + 8, 2q..)
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tapestry {

/// c += a b
__device__ inline void warp_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/// Four 8 x 8 matrices of 16-bit elements: lane 8 m + r gives the address of row r of matrix m (16
/// bytes in shared memory); word m of a lane is elements (g, 2q..) of matrix m.
__device__ inline void warp_load_matrices(uint32_t (&words)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
}
/// The same for the transposed matrices: elements (2q.., g).
__device__ inline void warp_load_transposed(uint32_t (&words)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Starts a copy of kBytes (4 or 16) from global to shared memory; writes zeros unless `valid`. The
/// global address must be readable in both cases.
template <int kBytes>
__device__ inline void copy_async(void* shared, const void* global, bool valid) {
  static_assert(kBytes == 4 || kBytes == 16);
  const int bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes)
                 : "memory");
  }
}
/// Waits for all copies that this thread has started.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Two bfloat16, rounded to nearest even.
__device__ inline uint32_t pack_bfloat16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

}  // namespace tapestry
