// Kernels for GPUs of compute capability 9.0 only, which need code for sm_90a: can they run, and
// where are they used? Not in builds without CUDA.
#pragma once

namespace tapestry::cuda {

/// True if this GPU has the tensor cores of warpgroups and this build has their code (90a-real in
/// TAPESTRY_CUDA_ARCHITECTURES).
bool has_warpgroup_products();

/// Where attention in bfloat16 uses the kernels for these tensor cores.
enum class HopperAttention {
  kNowhere,
  kByShape,     ///< where they are the fastest ones
  kTwoKernels,  ///< wherever they can; backward by a kernel for keys and one for queries
  kHeads,       ///< wherever they can; backward with a block for each head if it can
};

/// kByShape if has_warpgroup_products(), else kNowhere.
HopperAttention hopper_attention();

/// For tests and measurements: the next choice, without the check.
void choose_hopper_attention(HopperAttention choice);

}  // namespace tapestry::cuda
