#include "core/cpu/bfloat16_kernel.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "core/cpu/forced_kernel.h"
#include "core/cpu/portable_bits.h"

namespace tapestry {
namespace {

constexpr const char* kBfloat16Variable = "TAPESTRY_BFLOAT16";

bool can_run(Bfloat16Kernel kernel, const CpuTraits& cpu, bool tiles_allowed) {
  switch (kernel) {
    case Bfloat16Kernel::kAmx:
      return cpu.amx_bf16 && cpu.avx512_bf16 && tiles_allowed;
    case Bfloat16Kernel::kAvx512:
      return cpu.avx512_bf16;
    case Bfloat16Kernel::kBfmmla:
      return cpu.arm_bf16;
    case Bfloat16Kernel::kWidened:
    case Bfloat16Kernel::kAmxEmulated:
    case Bfloat16Kernel::kBfmmlaEmulated:
      return true;
  }
  return false;
}

bool ask_for_tiles() {
#ifdef __x86_64__
  // Values from the Linux kernel's documentation of x86's extended states; older libc headers lack
  // them.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return cpu_traits().amx_tile && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

bool tiles_allowed() {
  static const bool allowed = ask_for_tiles();
  return allowed;
}

Bfloat16Kernel bfloat16_kernel_for(const CpuTraits& cpu, bool tiles_allowed) {
  for (const auto kernel : {Bfloat16Kernel::kAmx, Bfloat16Kernel::kBfmmla}) {
    if (can_run(kernel, cpu, tiles_allowed)) return kernel;
  }
  const bool pairs = can_run(Bfloat16Kernel::kAvx512, cpu, tiles_allowed);
  return pairs && cpu.vendor != CpuVendor::kIntel ? Bfloat16Kernel::kAvx512
                                                  : Bfloat16Kernel::kWidened;
}

Bfloat16Kernel forced_bfloat16_kernel(const std::string& wanted, const CpuTraits& cpu,
                                      bool tiles_allowed) {
  return forced_kernel<Bfloat16Kernel>(kBfloat16Variable, wanted, [&](Bfloat16Kernel kernel) {
    return can_run(kernel, cpu, tiles_allowed);
  });
}

Bfloat16Kernel bfloat16_kernel() {
  static const Bfloat16Kernel chosen = [] {
    const char* const wanted = std::getenv(kBfloat16Variable);
    return wanted != nullptr ? forced_bfloat16_kernel(wanted, cpu_traits(), tiles_allowed())
                             : bfloat16_kernel_for(cpu_traits(), tiles_allowed());
  }();
  return has_portable_bits() ? Bfloat16Kernel::kWidened : chosen;
}

}  // namespace tapestry
