// Gradients by finite differences.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/var.h"

namespace tapestry {

/// The device and precision of the values of the table's rows.
struct GradcheckPlace {
  Device device;
  DType dtype = DType::kFloat64;
};

/// A differentiable function of some values. `function` is called many times and must be
/// deterministic: it runs under a fresh tape with the same random key each time, so dropout
/// repeats.
struct GradcheckCase {
  std::string name;
  std::vector<Var> inputs;
  std::function<Var()> function;  ///< reads the inputs, returns a value of any shape
  double tolerance = 5e-7;
};

struct GradcheckResult {
  std::string name;
  double worst_error = 0;   ///< relative, see gradcheck()
  std::string worst_place;  ///< "input 1 [17]: tape 0.123, differences 0.124"
  double tolerance = 0;
  int64_t elements = 0;  ///< how many were compared
  bool passed = false;
};

/// The tape's results for a case: f() and the gradient of L = sum(w * f()) by every input, w fixed
/// random weights. A gradient is undefined if none reached the input. All are float64 on the CPU,
/// whatever the case's place.
struct TapeResult {
  Tensor value;
  std::vector<Tensor> gradients;
};
TapeResult evaluate(const GradcheckCase& test);

/// For cases of float64 on the CPU. Compares the tape's gradient of L with central differences,
/// element by element: first with one step, and if they do not agree with many steps, of which an
/// error estimate chooses the best. A relative error of 1e-6 is found. The relative error of an
/// element is |tape - differences| / max(|tape|, |differences|, 1e-3 * the input's largest
/// |gradient|, 1e-5 * the largest |gradient| of all inputs). Compares at most `max_elements`
/// elements of an input, spread over the whole input.
GradcheckResult gradcheck(const GradcheckCase& test, int64_t max_elements = 64);

/// Every operation of the vocabulary, with broadcasting, masks, reuse of an input and frozen
/// inputs.
std::vector<GradcheckCase> operation_gradchecks(const GradcheckPlace& place = {});

}  // namespace tapestry
