// The module tapestry._tapestry.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "apps/python/calls.h"
#include "apps/python/tensors.h"
#include "core/build_info.h"
#include "core/cpu/parallel.h"
#include "core/cpu/vector_target.h"

NB_MODULE(_tapestry, module) {
  using namespace tapestry;
  module.doc() = "The part of tapestry that is C++.";
  limit_vector_target();
  python::bind_errors();
  module.def(
      "set_num_threads",
      [](int threads) {
        const nanobind::gil_scoped_release released;
        set_num_threads(threads);
      },
      nanobind::arg("threads"),
      "Sets the threads that compute, of all models together; 0: all cores. Results do not depend "
      "on their number. No other thread may compute meanwhile.");
  module.def("num_threads", &num_threads, "The threads that compute.");
  module.def(
      "version", [] { return std::string(build_info().version); }, "The version of the package.");
  python::bind_models(module);
  python::bind_training(module);
  python::bind_tensors(module);
  python::bind_tapes(module);
  python::bind_operations(module);
}
