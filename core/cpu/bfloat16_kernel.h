// Chooses the instructions that multiply bfloat16 matrices on a CPU.
#pragma once

#include <string>

#include "core/cpu/cpu_traits.h"

namespace tapestry {

/// Their results differ in the order of the sums, so bits are equal on one kernel only.
enum class Bfloat16Kernel {
  kAmx,             ///< tiles: 16 times the rate of float32 on Sapphire Rapids
  kAvx512,          ///< VDPBF16PS: twice the rate of float32 on Zen 4 and 5
  kBfmmla,          ///< BFMMLA of ARM64's FEAT_BF16: 16 products an instruction, FMLA has 4
  kWidened,         ///< float32 products of widened factors, on any processor
  kAmxEmulated,     ///< the bits of kAmx on any processor, very slowly: for tests and bug reports
  kBfmmlaEmulated,  ///< those of kBfmmla
};

/// "amx", "avx512_bf16", "bfmmla", "float32", "amx_emulated", "bfmmla_emulated".
constexpr const char* name_of(Bfloat16Kernel kernel) {
  switch (kernel) {
    case Bfloat16Kernel::kAmx:
      return "amx";
    case Bfloat16Kernel::kAvx512:
      return "avx512_bf16";
    case Bfloat16Kernel::kBfmmla:
      return "bfmmla";
    case Bfloat16Kernel::kWidened:
      return "float32";
    case Bfloat16Kernel::kAmxEmulated:
      return "amx_emulated";
    case Bfloat16Kernel::kBfmmlaEmulated:
      return "bfmmla_emulated";
  }
  return nullptr;
}

/// True if it multiplies operands that are packed in tiles (kernels/cpu/tile_operand.h).
constexpr bool has_tiles(Bfloat16Kernel kernel) { return kernel != Bfloat16Kernel::kWidened; }

/// Chosen by a table of processors, not by timing: two runs on one machine must choose alike.
/// `tiles_allowed`: the system lets this process use tiles. Intel's processors issue VDPBF16PS at
/// half the rate of float32; without tiles float32 products are the faster choice there.
Bfloat16Kernel bfloat16_kernel_for(const CpuTraits& cpu, bool tiles_allowed);

/// The choice for this process, made on the first call and kept. The environment variable
/// TAPESTRY_BFLOAT16 overrides it with one of the names above. Where bits must be portable it is
/// kWidened (portable_bits.h). Throws Error(kConfig) if the variable's value is unknown or
/// impossible here.
Bfloat16Kernel bfloat16_kernel();

/// The kernel that `wanted` (the variable's value) names. Throws as bfloat16_kernel() does.
Bfloat16Kernel forced_bfloat16_kernel(const std::string& wanted, const CpuTraits& cpu,
                                      bool tiles_allowed);

/// True if this process may use tiles. The first call asks the system for them.
bool tiles_allowed();

}  // namespace tapestry
