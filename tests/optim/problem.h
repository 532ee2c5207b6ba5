// A small problem with a gradient by hand, shared by the tests of this folder.
#pragma once

#include <cmath>
#include <vector>

#include "optim/optimizer.h"

namespace tapestry::testing_optim {

inline void set_gradient(const Var& var, const Tensor& gradient) {
  var.zero_grad();
  Gradient::Target target = var.gradient()->target();
  target.tensor.copy_from(gradient);
}

template <class T = double>
void set_gradient(const Var& var, const std::vector<T>& values) {
  set_gradient(var, Tensor::from(values, var.shape()));
}

/// f(w, b) of tests/fixtures/optim_trajectories.py: w (3, 4), b (4), float64.
struct Problem {
  Var w, b;

  Problem(const std::vector<double>& w_values, const std::vector<double>& b_values)
      : w(Var::parameter(Tensor::from(w_values, {3, 4}))),
        b(Var::parameter(Tensor::from(b_values, {4}))) {}

  NamedVars params() const { return {{"w", w}, {"b", b}}; }

  void backward() const {
    const std::vector<double> x = w.value().to_vector<double>();
    const std::vector<double> y = b.value().to_vector<double>();
    std::vector<double> dw(12), db(4);
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 3; ++i) {
        dw[4 * i + j] = std::cos(x[4 * i + j]) * y[j] + 0.1 * x[4 * i + j];
        db[j] += std::sin(x[4 * i + j]);
      }
      db[j] += 0.4 * y[j] * y[j] * y[j];
    }
    set_gradient(w, dw);
    set_gradient(b, db);
  }
};

inline Problem default_problem() {
  return Problem({0.8, 0.2, 0.1, -0.6, 0.05, -1.4, 0.3, 1.1, -0.2, 0.7, -0.9, 0.4},
                 {0.5, -0.3, 1.2, -0.8});
}

}  // namespace tapestry::testing_optim
