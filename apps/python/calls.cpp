#include "apps/python/calls.h"

#include "core/base/clock.h"
#include "core/base/error.h"

namespace tapestry::python {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kConfig:
      return "ConfigError";
    case ErrorKind::kData:
      return "DataError";
    case ErrorKind::kDiverged:
      return "DivergedError";
    case ErrorKind::kOutOfMemory:
      return "OutOfMemoryError";
    default:
      return "Error";
  }
}

void translate_error(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    const nb::object type = nb::module_::import_("tapestry.errors").attr(class_of(error.kind()));
    PyErr_SetString(type.ptr(), error.what());
  }
}

// A keyword's value as a config has it.
std::string yaml_of(const nb::handle& value) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value) ? "true" : "false";
  return nb::str(value).c_str();
}

}  // namespace

bool PythonSignals::pending() {
  constexpr double kSeconds = 0.05;
  const double now = steady_seconds();
  if (error_ || now - last_ < kSeconds) return error_.has_value();
  last_ = now;
  const nb::gil_scoped_acquire acquired;
  if (PyErr_CheckSignals() != 0) error_.emplace();  // takes the exception that is set
  return error_.has_value();
}

void PythonSignals::keep(nb::python_error error) {
  if (!error_) error_.emplace(std::move(error));
}

void PythonSignals::raise() {
  if (error_) throw std::move(*error_);
}

SearchArguments search_arguments(const nb::kwargs& keywords, int64_t n_best) {
  SearchArguments search{.n_best = n_best, .named_by_keys = true};
  for (const auto& [name, value] : keywords) {
    const std::string key = nb::str(name).c_str();
    if (key == "seed") {
      search.seed = nb::cast<uint64_t>(value);
    } else {
      search.overrides.push_back({concat(key, " ="), key, yaml_of(value)});
    }
  }
  search.validate();
  return search;
}

void bind_errors() { nb::register_exception_translator(translate_error); }

}  // namespace tapestry::python
