// OpenBLAS names its kernels after processors ("cores"). This file chooses the core for a processor
// and knows what another one costs.
#pragma once

#include <string>

#include "core/cpu/cpu_traits.h"

namespace tapestry {

/// The value of OPENBLAS_CORETYPE for a processor; empty if OpenBLAS's own choice is right.
std::string openblas_core_for(const CpuTraits& cpu);

/// The core that OPENBLAS_CORETYPE names, and the core that the library took.
struct ForcedCore {
  std::string name;     ///< the variable's value, in any case
  std::string loaded;   ///< the core that runs
  std::string library;  ///< "OpenBLAS 0.3.21"
};

/// Throws Error(kConfig) if the library does not know the name (it silently takes another core
/// then) or if `cpu` cannot run the core's instructions.
void check_forced_core(const ForcedCore& core, const CpuTraits& cpu);

/// A warning with the factor that is lost if the kernels of `core` are slower than `cpu` allows,
/// else empty. `forced_by_user`: the user chose `core` with OPENBLAS_CORETYPE.
std::string slow_core_warning(const std::string& core, const CpuTraits& cpu, bool forced_by_user);

}  // namespace tapestry
