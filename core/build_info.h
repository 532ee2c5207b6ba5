// How this library was built and what it runs on: what a bug report needs, with blas_description()
// (core/blas.h).
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

/// As the processor calls itself: "AMD EPYC 9654 96-Core Processor"; empty where it does not say.
std::string cpu_name();

/// What computes there: "cuda:0, NVIDIA H200, 132 SMs, compute capability 9.0, 139.8 GiB"; of a CPU
/// only "cpu".
std::string device_name(Device device);

/// The vector instructions that the CPU kernels use here, in Highway's words: "AVX2", "AVX3".
std::string vector_target();

}  // namespace tapestry
