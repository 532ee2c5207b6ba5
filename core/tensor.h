// Dense, contiguous, row-major tensors of rank 0 to 4 with shared storage. No strides, no views
// except reshape() and leading-axis slices. Gradients are in autograd/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace tapestry {

class Tensor {
 public:
  /// An undefined tensor: defined() is false, and only defined() may be called.
  Tensor() = default;

  /// Uninitialised elements.
  static Tensor empty(const Shape& shape, DType dtype = DType::kFloat32, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype = DType::kFloat32, Device device = {});
  static Tensor full(const Shape& shape, double value, DType dtype = DType::kFloat32,
                     Device device = {});
  static Tensor empty_like(const Tensor& other) {
    return empty(other.shape(), other.dtype(), other.device());
  }
  /// Copies `values` (row-major). Throws when their count is not the shape's.
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = {}) {
    check(static_cast<int64_t>(values.size()) == shape.numel(), "tensor", "shape ", shape,
          " needs ", shape.numel(), " values, got ", values.size(), '.');
    Tensor tensor = empty(shape, dtype_of<T>, device);
    tensor.copy_from_host(values.data());
    return tensor;
  }

  /// Over row-major host memory that `owner` keeps alive; nothing is copied. Throws unless the
  /// elements are aligned.
  static Tensor over(void* elements, std::shared_ptr<void> owner, const Shape& shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }

  /// The elements; on the device that holds them. Throws when T is not the dtype.
  template <class T>
  T* data() const {
    check(defined() && dtype_ == dtype_of<T>, "tensor", "expected ", dtype_of<T>, " elements, got ",
          defined() ? name_of(dtype_) : "an undefined tensor", '.');
    return static_cast<T*>(raw());
  }
  /// The first byte, whatever the dtype.
  void* raw() const { return pointer_; }

  /// True if another tensor has the same storage.
  bool shared() const { return storage_.use_count() > 1; }

  /// Same storage, other shape. Throws when the element counts differ.
  Tensor reshape(const Shape& shape) const;
  /// Rows [begin, end) of the first axis; shares storage.
  Tensor slice(int64_t begin, int64_t end) const;

  /// A copy with its own storage.
  Tensor clone() const;
  /// This tensor if it already has that device or dtype, else a copy.
  Tensor to(Device device) const;
  Tensor to(DType dtype) const;

  /// Overwrites the elements with those of a tensor of the same shape and dtype, or with row-major
  /// host memory.
  void copy_from(const Tensor& source) const;
  void copy_from_host(const void* source) const;
  void fill(double value) const;

  template <class T>
  std::vector<T> to_vector() const {
    std::vector<T> values(static_cast<size_t>(numel()));
    const Tensor host = to(dtype_of<T>).to(Device{});
    std::copy_n(host.data<T>(), values.size(), values.begin());
    return values;
  }
  /// The value of a tensor with one element.
  double item() const;

 private:
  std::shared_ptr<void> storage_;
  void* pointer_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::kFloat32;
  Device device_;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

}  // namespace tapestry
