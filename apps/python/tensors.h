// Arrays of other libraries as tensors, and back.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "autograd/var.h"
#include "core/tensor.h"

namespace tapestry::python {

namespace nb = nanobind;

/// What NumPy, PyTorch and others give by DLPack or the buffer protocol, in host memory.
using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

/// A copy, of the same type; int64 becomes int32. Throws nb::type_error for other types, and
/// Error(kRuntime) for more than four axes and for numbers that int32 does not hold.
Tensor tensor_of(const Array& array);

/// Over the same memory, which the result keeps alive. Throws nb::type_error where that cannot be.
Tensor tensor_over(const nb::object& array);

/// Over the same memory, which lives as long as the result.
nb::object array_of(const Tensor& tensor);

Shape shape_of(const std::vector<int64_t>& sizes);

void bind_tensors(nb::module_& module);
void bind_tapes(nb::module_& module);
void bind_operations(nb::module_& module);

}  // namespace tapestry::python
