// From a run-time device and dtype to a kernel overload, without macros or virtual functions:
//
//   dispatch(x, [&](auto device, auto type) {
//     using T = decltype(type);
//     kernels::softmax(device, x.data<T>(), y.data<T>(), rows, cols);
//   });
//
// Kernels are overloads on the device tag. This file holds the only #ifdef of CUDA in a header.
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

/// Calls f(Cpu{}) or f(Cuda{}).
template <class F>
void dispatch_device(Device device, F&& f) {
  if (device.is_cpu()) return f(Cpu{});
#ifdef TAPESTRY_CUDA
  return f(Cuda{});
#else
  fail(ErrorKind::kRuntime, "[dispatch] this build has no CUDA.");
#endif
}

/// Calls f(float{}), f(double{}) or, on a GPU, f(BFloat16{}); throws on any other dtype.
template <class D, class F>
void dispatch_floating(D, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    default:
      break;
  }
  if constexpr (std::is_same_v<D, Cuda>) {
    if (dtype == DType::kBFloat16) return f(BFloat16{});
  }
  fail(ErrorKind::kRuntime,
       "[dispatch] expected a floating dtype that this device computes in, got ", dtype, '.');
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

/// Calls f(device tag, a value of the C++ type) for a floating tensor.
template <class F>
void dispatch(const Tensor& tensor, F&& f) {
  dispatch_device(tensor.device(), [&](auto device) {
    dispatch_floating(device, tensor.dtype(), [&](auto type) { f(device, type); });
  });
}

}  // namespace tapestry
