// Kernels for GPUs of compute capability 9.0 only, which need code for sm_90a: can they run, are
// they wanted? Not in builds without CUDA.
#pragma once

#include <cstdint>

namespace tapestry::cuda {

/// True if this GPU has the tensor cores of warpgroups and this build has their code (90a-real in
/// TAPESTRY_CUDA_ARCHITECTURES).
bool has_warpgroup_products();

/// True if bfloat16 attention uses the kernels for these tensor cores. They are unmeasured and have
/// never run on a GPU, so only TAPESTRY_HOPPER_ATTENTION=1 in the environment selects them. Throws
/// Error(kConfig) for a value other than 0 and 1, or if they cannot run.
bool hopper_attention();
/// Least number of (batch element, key/value head) pairs per processor of the GPU from which the
/// backward pass gives each pair one block. Fewer pairs would leave many processors idle at the
/// end.
int64_t hopper_heads_each();

/// For tests: sets both values, without the check.
void choose_hopper_attention(bool wanted, int64_t heads_each = 4);

namespace internal {
/// The meaning of the variable's value, or of null. Calls can_run() only if needed.
bool asks_for_hopper(const char* value, bool (*can_run)());
}  // namespace internal

}  // namespace tapestry::cuda
