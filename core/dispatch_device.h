// From a run-time device to a kernel overload. Only this header asks for the build's devices; all
// other code is compiled the same for every build. CMake finds the sources of the libraries that
// include this when it configures; other targets link tapestry_devices (installed:
// tapestry::devices).
#pragma once

#include "core/dispatch.h"
#include "core/tensor.h"

#if !defined(TAPESTRY_CUDA) || (TAPESTRY_CUDA != 0 && TAPESTRY_CUDA != 1)
#error "TAPESTRY_CUDA must be 0 or 1 here: run cmake again, or link its target tapestry_devices"
#endif

namespace tapestry {

/// Calls f(Cpu{}) or f(Cuda{}).
template <class F>
void dispatch_device(Device device, F&& f) {
  if (device.is_cpu()) return f(Cpu{});
#if TAPESTRY_CUDA
  return f(Cuda{});
#else
  fail(ErrorKind::kRuntime, "[dispatch] this build has no CUDA.");
#endif
}

/// Calls f(device tag, a value of the C++ type) for a floating tensor.
template <class F>
void dispatch(const Tensor& tensor, F&& f) {
  dispatch_device(tensor.device(), [&](auto device) {
    dispatch_floating(tensor.dtype(), [&](auto type) { f(device, type); });
  });
}

}  // namespace tapestry
