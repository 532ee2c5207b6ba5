// The kernels of OpenBLAS have the names of the processors that they were written for, its "cores".
// Which of them suits a processor, and what another one costs.
#pragma once

#include <string>

#include "core/cpu_traits.h"

namespace tapestry {

/// The value of OPENBLAS_CORETYPE for a processor; empty where OpenBLAS's own choice is right.
std::string openblas_core_for(const CpuTraits& cpu);

/// A core that OPENBLAS_CORETYPE names and what the library made of it.
struct ForcedCore {
  std::string name;     ///< the variable's value, in any case
  std::string loaded;   ///< the core that runs
  std::string library;  ///< "OpenBLAS 0.3.21"
};

/// Throws Error(kConfig) where the library does not know the name, for which it silently takes
/// another core, or where `cpu` cannot run the core's instructions.
void check_forced_core(const ForcedCore& core, const CpuTraits& cpu);

/// A warning with the factor that is lost if the kernels of `core` are slower than `cpu` allows,
/// else empty. `forced_by_user`: the user chose `core` with OPENBLAS_CORETYPE.
std::string slow_core_warning(const std::string& core, const CpuTraits& cpu, bool forced_by_user);

}  // namespace tapestry
