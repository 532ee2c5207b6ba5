// Chooses the instructions that multiply matrices of bytes on a CPU.
#pragma once

#include <string>

#include "core/cpu/cpu_traits.h"

namespace tapestry {

/// All give the same bits; of int4 those that fuse multiply-adds, as all do on processors with AVX2
/// and on ARM64.
enum class Int8Kernel {
  kAmx,           ///< TDPBUSD of AMX-INT8; of few rows kAvx512Vnni
  kAvx512Vnni,    ///< VPDPBUSD of AVX512-VNNI
  kAvxVnni,       ///< VPDPBUSD of AVX-VNNI, 256 bits
  kI8mm,          ///< SMMLA of ARM64's FEAT_I8MM: 32 products an instruction; of one row kDotProd
  kDotProd,       ///< SDOT of ARM64's FEAT_DotProd: 16 products an instruction
  kPlain,         ///< products of 16 bits, on every processor
  kAmxEmulated,   ///< the loop of kAmx on any processor, very slowly: for tests
  kI8mmEmulated,  ///< that of kI8mm
};

/// "amx", "avx512_vnni", "avx_vnni", "i8mm", "dotprod", "plain", "amx_emulated", "i8mm_emulated".
constexpr const char* name_of(Int8Kernel kernel) {
  switch (kernel) {
    case Int8Kernel::kAmx:
      return "amx";
    case Int8Kernel::kAvx512Vnni:
      return "avx512_vnni";
    case Int8Kernel::kAvxVnni:
      return "avx_vnni";
    case Int8Kernel::kI8mm:
      return "i8mm";
    case Int8Kernel::kDotProd:
      return "dotprod";
    case Int8Kernel::kPlain:
      return "plain";
    case Int8Kernel::kAmxEmulated:
      return "amx_emulated";
    case Int8Kernel::kI8mmEmulated:
      return "i8mm_emulated";
  }
  return nullptr;
}

/// `tiles_allowed`: the system lets this process use tiles (bfloat16_kernel.h).
bool can_run(Int8Kernel kernel, const CpuTraits& cpu, bool tiles_allowed);
/// The same of this processor.
bool can_run(Int8Kernel kernel);

/// The first of the enumeration that the processor can run.
Int8Kernel int8_kernel_for(const CpuTraits& cpu, bool tiles_allowed);

/// The choice for this process, made on the first call and kept. The environment variable
/// TAPESTRY_INT8 overrides it with one of the names above. Throws Error(kConfig) if that is unknown
/// or impossible here.
Int8Kernel int8_kernel();

/// The kernel that `wanted` (the variable's value) names. Throws as int8_kernel() does.
Int8Kernel forced_int8_kernel(const std::string& wanted, const CpuTraits& cpu, bool tiles_allowed);

}  // namespace tapestry
