// From a run-time device and dtype to a kernel overload, without macros or virtual functions:
//
//   dispatch(x, [&](auto device, auto type) {
//     using T = decltype(type);
//     kernels::softmax(device, x.data<T>(), y.data<T>(), rows, cols);
//   });
//
// Kernels are overloads on the device tag. This file has the tags and the visits of types;
// dispatch() itself, which knows the devices of the build, is in core/dispatch_device.h.
#pragma once

#include "core/tensor.h"

namespace tapestry {

struct Cpu {};

/// A call of a kernel without a Cuda overload goes through this conversion, which throws.
struct Cuda {
  operator Cpu() const {
    throw Error(ErrorKind::kRuntime, "[dispatch] this operation has no CUDA kernel yet.");
  }
};

/// Calls f(float{}) or f(double{}), the types of sums and statistics; throws on any other dtype.
template <class F>
void dispatch_wide(DType dtype, F&& f) {
  if (dtype == DType::kFloat32) return f(float{});
  if (dtype == DType::kFloat64) return f(double{});
  fail(ErrorKind::kRuntime, "[dispatch] expected float32 or float64, got ", dtype, '.');
}

/// Calls f(float{}), f(double{}) or f(BFloat16{}); throws on any other dtype.
template <class F>
void dispatch_floating(DType dtype, F&& f) {
  if (dtype == DType::kBFloat16) return f(BFloat16{});
  if (dtype == DType::kInt32)
    fail(ErrorKind::kRuntime, "[dispatch] expected a floating dtype, got int32.");
  dispatch_wide(dtype, f);
}

/// Calls f(a value of the C++ type) for any dtype.
template <class F>
void dispatch_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    case DType::kInt32:
      return f(int32_t{});
    case DType::kBFloat16:
      return f(BFloat16{});
  }
}

}  // namespace tapestry
