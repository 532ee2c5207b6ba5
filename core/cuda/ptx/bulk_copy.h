// The PTX instructions by which one thread fills shared memory with a box of a tensor (TMA), and
// the barriers that tell other threads of it (PTX ISA, "Data movement and conversion instructions",
// "Parallel synchronization and communication instructions"; sm_90). Kernels that use them check
// kHasWgmma (warpgroup_mma.h). The tests run the kernels with functions of the same names that
// compute on the CPU.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <warp_mma.h>

#include <cstdint>

namespace tapestry {

/// Dynamic shared memory, aligned as tiles of swizzled rows need it.
__device__ inline unsigned char* tile_memory() {
  extern __shared__ __align__(1024) unsigned char tile_memory_bytes[];
  return tile_memory_bytes;
}

/// An mbarrier: it has phases 0, 1, 2 ... A phase ends when all arrivals and all announced bytes
/// have come; the next phase begins with the same number of arrivals.
using TransferBarrier = uint64_t;

/// Call from one thread. Others may use the barrier after barriers_are_ready() and __syncthreads().
__device__ inline void init_barrier(TransferBarrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
/// Call from the same thread.
__device__ inline void barriers_are_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(TransferBarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
/// One arrival that announces `bytes`.
__device__ inline void arrive_expecting(TransferBarrier* barrier, unsigned bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
/// Waits until the phase of this parity (0 or 1), the present one or the one before it, has ended:
/// of a barrier in its phase 0, parity 1 has.
__device__ inline void wait_for(TransferBarrier* barrier, unsigned parity) {
  unsigned ended = 0;
  do {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}\n"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (ended == 0);
}

/// Starts to copy a box of `map` (core/cuda/tensor_map.h) to shared memory, from the element with
/// these coordinates on; elements outside of the tensor become 0. The barrier then counts the box's
/// bytes.
__device__ inline void copy_box_async(void* shared, const CUtensorMap& map, int c0, int c1, int c2,
                                      int c3, TransferBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(shared)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(c0), "r"(c1), "r"(c2), "r"(c3),
      "r"(shared_address(barrier))
      : "memory");
}

/// Makes this thread's writes to shared memory visible to copies and products that start after the
/// next barrier.
__device__ inline void publish_to_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Barriers of `threads` threads of a block, by number (1 to 15), each in whole warps: sync_group()
/// waits for all, arrive_at_group() does not wait.
__device__ inline void sync_group(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void arrive_at_group(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace tapestry
