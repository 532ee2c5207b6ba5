// Kernels for GPUs of compute capability 9.0 only, which need code for sm_90a: whether they can run
// and whether they are wanted. Not in builds without CUDA.
#pragma once

#include <cstdint>

namespace tapestry::cuda {

/// Whether this GPU has tensor cores that warpgroups multiply on, and this build the code for them
/// (90a-real among TAPESTRY_CUDA_ARCHITECTURES).
bool has_warpgroup_products();

/// Whether attention in bfloat16 takes the kernels for these tensor cores where they fit. They are
/// unmeasured and have never run on a GPU, so only TAPESTRY_HOPPER_ATTENTION=1 in the environment
/// asks for them. Throws Error(kConfig) for a value other than 0 and 1, or if they cannot run.
bool hopper_attention();
/// From so many (batch element, key/value head) for each processor of the GPU on, the backward pass
/// gives each of them one block. Fewer would leave many processors idle at the end.
int64_t hopper_heads_each();

/// For tests: both from now on, without the check.
void choose_hopper_attention(bool wanted, int64_t heads_each = 4);

namespace internal {
/// What a value of the variable, or null, means; can_run() is asked only where it matters.
bool asks_for_hopper(const char* value, bool (*can_run)());
}  // namespace internal

}  // namespace tapestry::cuda
