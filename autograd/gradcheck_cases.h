// What the table of gradcheck's operations is made of; private to autograd/.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"

namespace tapestry {

using Cases = std::vector<GradcheckCase>;

/// Distinct random inputs for the table: uniform in [low, high).
class OperandDraws {
 public:
  explicit OperandDraws(const GradcheckPlace& place) : place_(place) {}

  Var draw(const Shape& shape, double low = -1.5, double high = 1.5) {
    return given(uniform(shape, low, high));
  }
  /// At least `gap` away from every kink: differences across one are no gradient.
  Var draw_off(std::span<const double> kinks, double gap, const Shape& shape, double low,
               double high) {
    const Tensor value = uniform(shape, low, high);
    for (double& x : std::span(value.data<double>(), value.numel())) {
      for (const double kink : kinks) {
        if (std::abs(x - kink) < gap) x = x < kink ? kink - gap : kink + gap;
      }
    }
    return given(value);
  }
  /// Statistics and tables: never narrower than float.
  Tensor draw_constant(const Shape& shape, double low = -1.5, double high = 1.5) {
    return uniform(shape, low, high).to(wider(place_.dtype)).to(place_.device);
  }
  Var given(const Tensor& value) const {
    return Var::parameter(value.to(place_.dtype).to(place_.device));
  }
  Tensor ints(const std::vector<int32_t>& values, const Shape& shape) const {
    return Tensor::from<int32_t>(values, shape, place_.device);
  }

 private:
  Tensor uniform(const Shape& shape, double low, double high) {
    Tensor value = Tensor::empty(shape, DType::kFloat64);
    double* x = value.data<double>();
    for (int64_t i = 0; i < value.numel(); ++i) {
      x[i] = low + (high - low) * to_uniform(philox_bits({21, 0, stream_}, i));
    }
    ++stream_;
    return value;
  }

  GradcheckPlace place_;
  uint32_t stream_ = 0;
};

/// Attention in both forms and all layouts.
void add_attention_cases(Cases& cases, OperandDraws& in);
/// Attention with masks, a window, a softcap and biases.
void add_attention_mask_cases(Cases& cases, OperandDraws& in);

}  // namespace tapestry
