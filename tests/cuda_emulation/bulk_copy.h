// core/cuda/ptx/bulk_copy.h on the CPU: async.cpp. An address in shared memory is its offset there.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <warp_mma.h>

#include <cstdint>

namespace tapestry {

unsigned char* tile_memory();
uint32_t shared_address(const void* shared);

using TransferBarrier = uint64_t;

void init_barrier(TransferBarrier* barrier, unsigned arrivals);
inline void barriers_are_ready() {}
void arrive(TransferBarrier* barrier);
void arrive_expecting(TransferBarrier* barrier, unsigned bytes);
void wait_for(TransferBarrier* barrier, unsigned parity);
void copy_box_async(void* shared, const CUtensorMap& map, int c0, int c1, int c2, int c3,
                    TransferBarrier* barrier);
inline void publish_to_async() {}
void sync_group(int barrier, int threads);
void arrive_at_group(int barrier, int threads);

}  // namespace tapestry
