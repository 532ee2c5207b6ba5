// The rate of a device's matrix products, the yardstick of benchmarks.
#pragma once

#include "core/device.h"
#include "core/dtype.h"
#include "core/precision.h"

namespace tapestry {

/// GFLOP/s of square products on all threads, the best of 0.3 s, five at least: 1024^3 on a CPU,
/// 8192^3 on a GPU. Throws Error(kRuntime) unless `dtype` is a floating one that the device
/// computes in.
double gemm_rate(Device device, DType dtype, Precision precision);

}  // namespace tapestry
