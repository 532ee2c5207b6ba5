#include "core/cpu/int8_kernel.h"

#include <cstdlib>

#include "core/cpu/bfloat16_kernel.h"
#include "core/cpu/forced_kernel.h"

namespace tapestry {
namespace {

constexpr const char* kInt8Variable = "TAPESTRY_INT8";

}  // namespace

bool can_run(Int8Kernel kernel, const CpuTraits& cpu, bool tiles_allowed) {
  switch (kernel) {
    case Int8Kernel::kAmx:
      return cpu.amx_int8 && cpu.avx512_vnni && tiles_allowed;
    case Int8Kernel::kAvx512Vnni:
      return cpu.avx512_vnni;
    case Int8Kernel::kAvxVnni:
      return cpu.avx_vnni;
    case Int8Kernel::kI8mm:
      return cpu.i8mm && cpu.dotprod;
    case Int8Kernel::kDotProd:
      return cpu.dotprod;
    case Int8Kernel::kPlain:
    case Int8Kernel::kAmxEmulated:
    case Int8Kernel::kI8mmEmulated:
      return true;
  }
  return false;
}

bool can_run(Int8Kernel kernel) { return can_run(kernel, cpu_traits(), tiles_allowed()); }

Int8Kernel int8_kernel_for(const CpuTraits& cpu, bool tiles_allowed) {
  for (const Int8Kernel kernel : enumerators<Int8Kernel>()) {
    if (can_run(kernel, cpu, tiles_allowed)) return kernel;
  }
  return Int8Kernel::kPlain;
}

Int8Kernel forced_int8_kernel(const std::string& wanted, const CpuTraits& cpu, bool tiles_allowed) {
  return forced_kernel<Int8Kernel>(kInt8Variable, wanted, [&](Int8Kernel kernel) {
    return can_run(kernel, cpu, tiles_allowed);
  });
}

Int8Kernel int8_kernel() {
  static const Int8Kernel chosen = [] {
    const char* const wanted = std::getenv(kInt8Variable);
    return wanted != nullptr ? forced_int8_kernel(wanted, cpu_traits(), tiles_allowed())
                             : int8_kernel_for(cpu_traits(), tiles_allowed());
  }();
  return chosen;
}

}  // namespace tapestry
