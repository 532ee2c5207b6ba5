#include "core/tensor.h"

#include <cstring>

#include "core/allocator.h"
#include "core/cuda/runtime.h"
#include "core/dispatch_device.h"
#include "core/kernels/elementwise/convert.h"
#include "core/shapes_only.h"

namespace tapestry {
namespace {

// Keeps one block of host memory alive.
struct HostBlock {
  explicit HostBlock(int64_t size) : bytes(size), pointer(host_allocate(size)) {}
  ~HostBlock() { host_free(pointer, bytes); }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  int64_t bytes;
  void* pointer;
};

// A block of a GPU's memory.
struct CudaBlock {
  CudaBlock(int index, int64_t size) : bytes(size), pointer(cuda::allocate(index, size)) {}
  ~CudaBlock() { cuda::free(pointer, bytes); }
  CudaBlock(const CudaBlock&) = delete;
  CudaBlock& operator=(const CudaBlock&) = delete;

  int64_t bytes;
  void* pointer;
};

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor tensor;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(shape.numel(), int64_t{size_of(dtype)}, &bytes)) {
    fail(ErrorKind::kOutOfMemory, "[tensor] ", shape, " has more bytes than 64 bits count.");
  }
  const auto hold = [&](auto block) {
    tensor.pointer_ = block->pointer;
    tensor.storage_ = std::move(block);
  };
  if (device.is_cpu()) {
    hold(std::allocate_shared<HostBlock>(HostAllocator<HostBlock>(), bytes));
  } else {
    hold(std::allocate_shared<CudaBlock>(HostAllocator<CudaBlock>(), device.index, bytes));
  }
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.device_ = device;
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  if (device.is_cpu()) {
    if (!ShapesOnly::has_memory(tensor.bytes())) return tensor;
    std::memset(tensor.raw(), 0, static_cast<size_t>(tensor.bytes()));
  } else {
    cuda::fill_zero(tensor.raw(), tensor.bytes());
  }
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill(value);
  return tensor;
}

Tensor Tensor::over(void* elements, std::shared_ptr<void> owner, const Shape& shape, DType dtype) {
  const auto address = reinterpret_cast<uintptr_t>(elements);
  check(owner != nullptr && (elements != nullptr || shape.numel() == 0), "tensor",
        "memory without an owner, or none.");
  check(address % static_cast<uintptr_t>(size_of(dtype)) == 0, "tensor",
        "expected elements at multiples of ", size_of(dtype), " bytes, got an odd address.");
  Tensor tensor;
  tensor.storage_ = std::move(owner);
  tensor.pointer_ = elements;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  return tensor;
}

Tensor Tensor::reshape(const Shape& shape) const {
  check(shape.numel() == numel(), "reshape", "element counts differ: ", shape_, " to ", shape, '.');
  Tensor result = *this;
  result.shape_ = shape;
  return result;
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  check(shape_.rank() > 0 && 0 <= begin && begin <= end && end <= shape_[0], "slice", "rows [",
        begin, ", ", end, ") are not in ", shape_, '.');
  Tensor result = *this;
  result.shape_ = shape_.with(0, end - begin);
  const int64_t row_bytes = shape_[0] == 0 ? 0 : bytes() / shape_[0];
  result.pointer_ = static_cast<char*>(pointer_) + begin * row_bytes;
  return result;
}

Tensor Tensor::clone() const {
  Tensor copy = empty_like(*this);
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::to(Device device) const {
  if (device == device_) return *this;
  Tensor result = empty(shape_, dtype_, device);
  result.copy_from(*this);
  return result;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor result = empty(shape_, dtype, device_);
  dispatch_device(device_, [&](auto device) {
    dispatch_dtype(dtype_, [&](auto from) {
      dispatch_dtype(dtype, [&](auto to) {
        kernels::convert(device, data<decltype(from)>(), result.data<decltype(to)>(), numel());
      });
    });
  });
  return result;
}

void Tensor::copy_from(const Tensor& source) const {
  check(source.shape_ == shape_ && source.dtype_ == dtype_, "copy", "the source is ", source.dtype_,
        ' ', source.shape_, ", the target ", dtype_, ' ', shape_, '.');
  if (source.device_.is_cpu()) return copy_from_host(source.raw());
  if (device_.is_cpu()) return cuda::download(raw(), source.raw(), bytes());
  cuda::copy(raw(), source.raw(), bytes());
}

void Tensor::copy_from_host(const void* source) const {
  if (bytes() == 0 || !ShapesOnly::has_memory(bytes())) return;
  if (device_.is_cpu()) {
    std::memmove(raw(), source, static_cast<size_t>(bytes()));
  } else {
    cuda::upload(raw(), source, bytes());
  }
}

void Tensor::fill(double value) const {
  dispatch_device(device_, [&](auto device) {
    dispatch_dtype(dtype_, [&](auto type) {
      using T = decltype(type);
      kernels::fill(device, element_cast<T>(value), data<T>(), numel());
    });
  });
}

double Tensor::item() const {
  check(defined() && numel() == 1, "item", "expected one element, got ", shape_, '.');
  return to_vector<double>()[0];
}

}  // namespace tapestry
