// How Python calls the libraries: without the GIL, and so that Ctrl-C ends it.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/search_overrides.h"
#include "core/base/interruption.h"

namespace tapestry::python {

namespace nb = nanobind;

/// Asks Python's own handlers, from a thread without the GIL, at most every 50 ms.
class PythonSignals {
 public:
  /// True after Ctrl-C, or once a callback failed.
  bool pending();
  bool failed() const { return error_.has_value(); }
  /// Keeps the exception of a callback, to be raised when the work has stopped.
  void keep(nb::python_error error);
  /// Raises it; called with the GIL.
  void raise();

 private:
  double last_ = 0;
  std::optional<nb::python_error> error_;
};

/// f() without the GIL. Ctrl-C ends it where the libraries stop_if_asked(), as KeyboardInterrupt.
template <class F>
auto without_gil(F f) {
  PythonSignals signals;
  const auto run = [&]() -> std::optional<decltype(f())> {
    const nb::gil_scoped_release released;
    const Interruptible interruptible([&] { return signals.pending(); });
    try {
      return f();
    } catch (const Interrupted&) {
      return std::nullopt;
    }
  };
  auto result = run();
  if (!result) signals.raise();
  return std::move(*result);
}

/// Keyword arguments as keys of `generation`: num_beams=4, do_sample=True, ...; `seed` is one, too.
/// Throws Error(kConfig) for values out of their bounds.
SearchArguments search_arguments(const nb::kwargs& keywords, int64_t n_best);

void bind_errors();
void bind_models(nb::module_& module);
void bind_training(nb::module_& module);

}  // namespace tapestry::python
