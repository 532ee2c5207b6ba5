// Tensor and Var: what operations read and return.
#include "apps/python/tensors.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>

#include "apps/python/calls.h"
#include "autograd/ops.h"

namespace tapestry::python {
namespace {

using nb::literals::operator""_a;

std::optional<DType> dtype_named(const std::string& name) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kBFloat16}) {
    if (name == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

DType checked_dtype(const std::string& name) {
  const std::optional<DType> dtype = dtype_named(name);
  check(dtype.has_value(), "tensor", "dtype must be float32, float64, int32 or bfloat16, got '",
        name, "'.");
  return *dtype;
}

nb::dlpack::dtype dlpack_of(DType dtype) {
  const auto code = dtype == DType::kInt32      ? nb::dlpack::dtype_code::Int
                    : dtype == DType::kBFloat16 ? nb::dlpack::dtype_code::Bfloat
                                                : nb::dlpack::dtype_code::Float;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * size_of(dtype)), 1};
}

// Of the framework F, over the tensor's memory.
template <class F>
nb::object exported(const Tensor& tensor) {
  check(tensor.defined(), "tensor", "an undefined tensor has no elements.");
  check(tensor.device().is_cpu(), "tensor", "expected host memory, got ", tensor.device(),
        "; to(\"cpu\") copies.");
  std::vector<size_t> sizes;
  for (int axis = 0; axis < tensor.shape().rank(); ++axis) {
    sizes.push_back(static_cast<size_t>(tensor.shape()[axis]));
  }
  const nb::capsule owner(new Tensor(tensor),
                          [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  const nb::ndarray<F> array(tensor.raw(), sizes.size(), sizes.data(), owner, nullptr,
                             dlpack_of(tensor.dtype()));
  return nb::cast(array, nb::rv_policy::reference);
}

std::vector<int64_t> sizes_of(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (int axis = 0; axis < shape.rank(); ++axis) sizes.push_back(shape[axis]);
  return sizes;
}

nb::object shape_tuple(const Shape& shape) { return nb::tuple(nb::cast(sizes_of(shape))); }

Device device_named(const std::string& name) { return parse_device(name); }

// The buffer protocol: memoryview(tensor), numpy.frombuffer(tensor), ...
struct BufferSizes {
  Py_ssize_t shape[Shape::kMaxRank], strides[Shape::kMaxRank];
};

int get_buffer(PyObject* exporter, Py_buffer* view, int) {
  const Tensor& tensor = *nb::inst_ptr<Tensor>(exporter);
  const char* const format = !tensor.defined()                   ? nullptr
                             : tensor.dtype() == DType::kFloat32 ? "f"
                             : tensor.dtype() == DType::kFloat64 ? "d"
                             : tensor.dtype() == DType::kInt32   ? "i"
                                                                 : nullptr;
  if (format == nullptr || !tensor.device().is_cpu()) {
    PyErr_SetString(PyExc_BufferError, "only float32, float64 and int32 in host memory have one");
    view->obj = nullptr;
    return -1;
  }
  auto sizes = std::make_unique<BufferSizes>();
  const int rank = tensor.shape().rank();
  Py_ssize_t stride = size_of(tensor.dtype());
  for (int axis = rank - 1; axis >= 0; --axis) {
    sizes->shape[axis] = tensor.shape()[axis];
    sizes->strides[axis] = stride;
    stride *= sizes->shape[axis];
  }
  view->buf = tensor.raw();
  view->len = tensor.bytes();
  view->itemsize = size_of(tensor.dtype());
  view->readonly = 0;
  view->ndim = rank;
  view->format = const_cast<char*>(format);
  view->shape = sizes->shape;
  view->strides = sizes->strides;
  view->suboffsets = nullptr;
  view->internal = sizes.release();
  view->obj = Py_NewRef(exporter);
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) {
  delete static_cast<BufferSizes*>(view->internal);
}

PyType_Slot tensor_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                              {0, nullptr}};

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor", nb::type_slots(tensor_slots),
                     "A dense row-major array of float32, float64, bfloat16 or int32, of at most "
                     "four axes. numpy.asarray(), torch.from_dlpack() and memoryview() of it share "
                     "its memory.")
      .def(
          "__init__",
          [](Tensor* self, const Array& array, const std::optional<std::string>& dtype) {
            new (self)
                Tensor(dtype ? tensor_of(array).to(checked_dtype(*dtype)) : tensor_of(array));
          },
          "array"_a, "dtype"_a = nb::none(),
          "A copy of an array of NumPy, PyTorch or whatever has DLPack or a buffer; int64 becomes "
          "int32.")
      .def_static(
          "zeros",
          [](const std::vector<int64_t>& shape, const std::string& dtype,
             const std::string& device) {
            return Tensor::zeros(shape_of(shape), checked_dtype(dtype), device_named(device));
          },
          "shape"_a, "dtype"_a = "float32", "device"_a = "cpu",
          "Zeros, to be written into through numpy() or torch.from_dlpack().")
      .def_prop_ro(
          "shape", [](const Tensor& tensor) { return shape_tuple(tensor.shape()); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("dtype", [](const Tensor& tensor) { return name_of(tensor.dtype()); })
      .def_prop_ro("device", [](const Tensor& tensor) { return tensor.device().str(); })
      .def(
          "numpy", [](const Tensor& tensor) { return exported<nb::numpy>(tensor); },
          nb::sig("def numpy(self) -> numpy.typing.NDArray"),
          "An array over the same memory; not of bfloat16.")
      .def("item", &Tensor::item, "The value of a tensor with one element.")
      .def("clone", &Tensor::clone, "A copy with its own memory.")
      .def(
          "to",
          [](const Tensor& tensor, const std::string& what) {
            const std::optional<DType> dtype = dtype_named(what);
            return dtype ? tensor.to(*dtype) : tensor.to(device_named(what));
          },
          "what"_a, "In another dtype, or on another device: a copy unless it is there.")
      .def(
          "__dlpack__",
          [](const Tensor& tensor, const nb::kwargs& keywords) {
            return exported<nb::array_api>(tensor).attr("__dlpack__")(**keywords);
          },
          nb::sig("def __dlpack__(self, **kwargs) -> object"))
      .def(
          "__dlpack_device__",
          [](const Tensor& tensor) {
            return exported<nb::array_api>(tensor).attr("__dlpack_device__")();
          },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def(
          "__array__",
          [](const Tensor& tensor, const nb::object& dtype, const nb::object& copy) {
            const nb::object array = exported<nb::numpy>(tensor);
            const bool copies = !copy.is_none() && nb::cast<bool>(copy);
            if (dtype.is_none()) return copies ? array.attr("copy")() : array;
            return array.attr("astype")(dtype, "copy"_a = copies);
          },
          "dtype"_a = nb::none(), "copy"_a = nb::none(),
          nb::sig("def __array__(self, dtype=None, copy=None) -> numpy.typing.NDArray"))
      .def("__repr__", [](const Tensor& tensor) {
        return concat("<tapestry.Tensor of ", tensor.shape(), ' ', tensor.dtype(), " on ",
                      tensor.device(), '>');
      });
}

void bind_var(nb::module_& module) {
  nb::class_<Var>(module, "Var",
                  "A tensor and, if it is a parameter or was computed from one while a Tape "
                  "recorded, its gradient. Where a Var is expected an array or a Tensor is a "
                  "constant, and an operator takes numbers, too.")
      .def(nb::init_implicit<Tensor>(), "tensor"_a)
      .def(
          "__init__", [](Var* self, const Array& array) { new (self) Var(tensor_of(array)); },
          "array"_a, "A constant.")
      .def_static(
          "parameter", [](const Tensor& tensor) { return Var::parameter(tensor); }, "tensor"_a,
          "A leaf that takes a gradient: a trained parameter. It shares the tensor's memory.")
      .def_prop_ro(
          "value", [](const Var& var) { return var.value(); }, "The Tensor.")
      .def_prop_ro(
          "grad",
          [](const Var& var) -> std::optional<Tensor> {
            const Tensor grad = var.grad();
            if (!grad.defined()) return std::nullopt;
            return grad;
          },
          "After Tape.backward(); None if no gradient reached it.")
      .def_prop_ro(
          "shape", [](const Var& var) { return shape_tuple(var.shape()); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("dtype", [](const Var& var) { return name_of(var.dtype()); })
      .def_prop_ro("needs_grad", &Var::needs_grad)
      .def("zero_grad", &Var::zero_grad, "Forgets the gradient.")
      .def("retain_grad", &Var::retain_grad,
           "Keeps an intermediate's gradient readable after backward.")
      .def("set_requires_grad", &Var::set_requires_grad, "on"_a,
           "Freezes a parameter, or unfreezes it.")
      .def("item", [](const Var& var) { return var.value().item(); })
      .def(
          "numpy", [](const Var& var) { return exported<nb::numpy>(var.value()); },
          nb::sig("def numpy(self) -> numpy.typing.NDArray"), "Over the memory of its value.")
      .def("__add__", [](const Var& a, double b) { return a + b; })
      .def("__add__", [](const Var& a, const Var& b) { return a + b; })
      .def("__radd__", [](const Var& a, double b) { return a + b; })
      .def("__sub__", [](const Var& a, double b) { return a + -b; })
      .def("__sub__", [](const Var& a, const Var& b) { return a - b; })
      .def("__rsub__", [](const Var& a, double b) { return affine(a, -1, b); })
      .def("__mul__", [](const Var& a, double b) { return b * a; })
      .def("__mul__", [](const Var& a, const Var& b) { return a * b; })
      .def("__rmul__", [](const Var& a, double b) { return b * a; })
      .def("__truediv__", [](const Var& a, double b) { return (1 / b) * a; })
      .def("__truediv__", [](const Var& a, const Var& b) { return a / b; })
      .def("__neg__", [](const Var& a) { return -a; })
      .def("__matmul__", [](const Var& a, const Var& b) { return matmul(a, b); })
      .def("__repr__", [](const Var& var) {
        return concat("<tapestry.Var of ", var.shape(), ' ', var.dtype(),
                      var.needs_grad() ? ", with a gradient>" : ">");
      });
  nb::implicitly_convertible<Array, Var>();
}

}  // namespace

Shape shape_of(const std::vector<int64_t>& sizes) {
  check(std::ssize(sizes) <= Shape::kMaxRank, "shape", "expected at most ", Shape::kMaxRank,
        " axes, got ", sizes.size(), '.');
  return {sizes.data(), static_cast<int>(sizes.size())};
}

namespace {

template <class... Args>
Shape array_shape(const nb::ndarray<Args...>& array) {
  std::vector<int64_t> sizes;
  for (size_t axis = 0; axis < array.ndim(); ++axis) {
    sizes.push_back(static_cast<int64_t>(array.shape(axis)));
  }
  return shape_of(sizes);
}

}  // namespace

Tensor tensor_of(const Array& array) {
  const Shape shape = array_shape(array);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kBFloat16}) {
    if (array.dtype() != dlpack_of(dtype)) continue;
    Tensor tensor = Tensor::empty(shape, dtype);
    if (tensor.numel() > 0) tensor.copy_from_host(array.data());
    return tensor;
  }
  if (array.dtype() == nb::dtype<int64_t>()) {
    Tensor tensor = Tensor::empty(shape, DType::kInt32);
    const auto* const from = static_cast<const int64_t*>(array.data());
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      check(from[i] >= std::numeric_limits<int32_t>::min() &&
                from[i] <= std::numeric_limits<int32_t>::max(),
            "tensor", "int32 does not hold ", from[i], '.');
      tensor.data<int32_t>()[i] = static_cast<int32_t>(from[i]);
    }
    return tensor;
  }
  throw nb::type_error("expected an array of float32, float64, bfloat16, int32 or int64");
}

Tensor tensor_over(const nb::object& array) {
  using Writable = nb::ndarray<nb::c_contig, nb::device::cpu>;
  Writable held;
  if (nb::try_cast(array, held, /*convert=*/false)) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kBFloat16}) {
      if (held.dtype() != dlpack_of(dtype)) continue;
      // A tensor may end where the GIL is not held, and after Python has ended.
      const std::shared_ptr<void> owner(new Writable(held), [](void* p) {
        if (Py_IsInitialized() == 0) return;
        const nb::gil_scoped_acquire acquired;
        delete static_cast<Writable*>(p);
      });
      return Tensor::over(held.data(), owner, array_shape(held), dtype);
    }
  }
  throw nb::type_error(
      "expected a contiguous array of float32, float64, bfloat16 or int32 that may be written, in "
      "host memory; Tensor(array) copies others");
}

nb::object array_of(const Tensor& tensor) { return exported<nb::numpy>(tensor); }

void bind_tensors(nb::module_& module) {
  bind_tensor(module);
  module.def("from_dlpack", tensor_over, "array"_a,
             nb::sig("def from_dlpack(array: object) -> Tensor"),
             "A Tensor over the memory of an array of NumPy, PyTorch or whatever has DLPack or a "
             "buffer: what is written into one is seen in the other. TypeError where it would have "
             "to be copied.");
  bind_var(module);
}

}  // namespace tapestry::python
