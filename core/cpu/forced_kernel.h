// Kernels that an environment variable names.
#pragma once

#include <string>

#include "core/base/enumerators.h"
#include "core/base/error.h"

namespace tapestry {

/// The Kernel that is called `wanted`, the value of `variable`. Throws Error(kConfig), which names
/// all and those for which `can_run` is true, if there is none or it cannot run.
template <class Kernel, class CanRun>
Kernel forced_kernel(const char* variable, const std::string& wanted, CanRun can_run) {
  std::string names, possible;
  for (const Kernel kernel : enumerators<Kernel>()) {
    const bool runs = can_run(kernel);
    if (wanted == name_of(kernel) && runs) return kernel;
    names += concat(names.empty() ? "" : ", ", name_of(kernel));
    if (runs) possible += concat(possible.empty() ? "" : ", ", name_of(kernel));
  }
  fail(ErrorKind::kConfig, '[', variable, "] expected one of ", names, ", got '", wanted,
       "'; this processor can run ", possible, '.');
}

}  // namespace tapestry
