// The processor's name and the vector and tile instructions that it can run.
#pragma once

#include <array>
#include <cstdint>

namespace tapestry {

enum class CpuVendor { kOther, kIntel, kAmd };

/// An instruction set is true if the processor has it and the operating system saves its registers.
/// Users of tiles must do one thing more: on Linux a process asks for them once (arch_prctl with
/// ARCH_REQ_XCOMP_PERM).
struct CpuTraits {
  CpuVendor vendor = CpuVendor::kOther;
  int family = 0;  ///< as CPUID counts: 6 is Intel's, 0x19 AMD's Zen 3 and 4, 0x1a its Zen 5
  int model = 0;   ///< within the family: 143 of family 6 is Sapphire Rapids
  bool avx = false;
  bool avx2 = false;  ///< with FMA
  bool avx_vnni = false;
  bool avx512 = false;  ///< the F, CD, BW, DQ and VL of Skylake-X
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool amx_tile = false;
  bool amx_bf16 = false;  ///< includes amx_tile
  bool amx_int8 = false;  ///< includes amx_tile
  bool dotprod = false;   ///< ARM64's FEAT_DotProd
  bool i8mm = false;      ///< ARM64's FEAT_I8MM: SMMLA
  bool arm_bf16 = false;  ///< ARM64's FEAT_BF16: BFMMLA
};

/// The answers of the instructions CPUID and XGETBV, or of Linux on ARM64.
struct CpuAnswers {
  using Registers = std::array<uint32_t, 4>;  ///< eax, ebx, ecx, edx
  Registers leaf_0{}, leaf_1{}, leaf_7{};
  Registers leaf_7_1{};  ///< the second page of leaf 7
  uint64_t xcr0 = 0;     ///< the registers that the operating system saves
  uint64_t hwcap = 0;    ///< AT_HWCAP of ARM64
  uint64_t hwcap2 = 0;   ///< AT_HWCAP2 of ARM64
};

CpuTraits cpu_traits_of(const CpuAnswers& answers);

/// The traits of the processor that runs this process.
const CpuTraits& cpu_traits();

}  // namespace tapestry
