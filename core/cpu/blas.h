// The BLAS behind the CPU's matrix products, as programs see it.
#pragma once

#include <string>

namespace tapestry {

/// Name and core of the BLAS: "OpenBLAS 0.3.21, core Haswell". The first call loads it. Throws
/// Error(kRuntime) if it cannot be loaded, and Error(kConfig) if OPENBLAS_CORETYPE asks for kernels
/// that it does not have or that this processor cannot run.
std::string blas_description();

/// A warning to print if the loaded BLAS is slower than this processor allows, with the factor;
/// else empty.
std::string blas_warning();

}  // namespace tapestry
