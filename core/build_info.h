// Facts about this build and its machine for a bug report, with blas_description()
// (core/cpu/blas.h).
#pragma once

#include <string>

#include "core/device.h"

namespace tapestry {

struct BuildInfo {
  const char* version;   ///< "0.1.0"
  const char* type;      ///< "Release", "Debug with sanitizers"
  const char* devices;   ///< "CPU", "CPU and CUDA", "CPU and emulated CUDA"
  const char* compiler;  ///< "GNU 12.2.0"
};
const BuildInfo& build_info();

/// The processor's own name: "AMD EPYC 9654 96-Core Processor"; empty if it has none.
std::string cpu_name();

/// The device by name: "cuda:0, NVIDIA H200, 132 SMs, compute capability 9.0, 139.8 GiB"; "cpu" for
/// a CPU.
std::string device_name(Device device);

}  // namespace tapestry
