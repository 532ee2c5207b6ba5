#include "core/tensor.h"

#include <algorithm>
#include <cstring>

#include "core/allocator.h"

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

void require_cpu(const char* who, Device device) {
  check(device.is_cpu(), who, "tensors on ", device, " are not supported yet.");
}

template <class From, class To>
void convert(const void* source, void* target, int64_t count) {
  const From* from = static_cast<const From*>(source);
  To* to = static_cast<To*>(target);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
}

template <class From>
void convert(const void* source, DType to, void* target, int64_t count) {
  switch (to) {
    case DType::kFloat32: return convert<From, float>(source, target, count);
    case DType::kFloat64: return convert<From, double>(source, target, count);
    case DType::kInt32: return convert<From, int32_t>(source, target, count);
  }
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  require_cpu("tensor", device);
  Tensor tensor;
  auto block = std::allocate_shared<HostBlock>(HostAllocator<HostBlock>(),
                                               shape.numel() * size_of(dtype));
  tensor.pointer_ = block->pointer;
  tensor.storage_ = std::move(block);
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.device_ = device;
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  std::memset(tensor.raw(), 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill(value);
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
  require_cpu("to", device);
  return *this;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor result = empty(shape_, dtype, device_);
  switch (dtype_) {
    case DType::kFloat32: convert<float>(raw(), dtype, result.raw(), numel()); break;
    case DType::kFloat64: convert<double>(raw(), dtype, result.raw(), numel()); break;
    case DType::kInt32: convert<int32_t>(raw(), dtype, result.raw(), numel()); break;
  }
  return result;
}

void Tensor::copy_from(const Tensor& source) const {
  check(source.shape_ == shape_ && source.dtype_ == dtype_, "copy", "the source is ",
        source.dtype_, ' ', source.shape_, ", the target ", dtype_, ' ', shape_, '.');
  copy_from_host(source.raw());
}

void Tensor::copy_from_host(const void* source) const {
  if (bytes() > 0) std::memmove(raw(), source, bytes());
}

void Tensor::fill(double value) const {
  switch (dtype_) {
    case DType::kFloat32: std::fill_n(data<float>(), numel(), static_cast<float>(value)); break;
    case DType::kFloat64: std::fill_n(data<double>(), numel(), value); break;
    case DType::kInt32: std::fill_n(data<int32_t>(), numel(), static_cast<int32_t>(value)); break;
  }
}

double Tensor::item() const {
  check(defined() && numel() == 1, "item", "expected one element, got ", shape_, '.');
  return to_vector<double>()[0];
}

}  // namespace tapestry
