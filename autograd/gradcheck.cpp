#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"

namespace tapestry {
namespace {

constexpr PhiloxKey kFunctionDraws{.seed = 11, .step = 1, .stream = 0};
constexpr PhiloxKey kWeights{.seed = 12, .step = 1, .stream = 0};

// Fixed random projection weights in +-[0.5, 1.5): a plain sum would hide errors that cancel, such
// as a softmax whose backward is zero.
Tensor projection(const Shape& shape) {
  Tensor weights = Tensor::empty(shape, DType::kFloat64);
  double* w = weights.data<double>();
  for (int64_t i = 0; i < weights.numel(); ++i) {
    const uint32_t bits = philox_bits(kWeights, i);
    w[i] = (bits & 1 ? 1 : -1) * (0.5 + to_uniform(bits));
  }
  return weights;
}

double project(const Tensor& value, const Tensor& weights) {
  const double* y = value.data<double>();
  const double* w = weights.data<double>();
  double total = 0;
  for (int64_t i = 0; i < value.numel(); ++i) total += y[i] * w[i];
  return total;
}

class Differences {
 public:
  Differences(const GradcheckCase& test, const Tensor& weights) : test_(test), weights_(weights) {}

  // Fourth-order central difference of L by one element.
  double at(double& element) const {
    const double saved = element;
    const double step = 1e-3 * std::max(1.0, std::abs(saved));
    const auto moved = [&](double offset) {
      element = saved + offset;
      return loss();
    };
    const double near = moved(step) - moved(-step);
    const double far = moved(2 * step) - moved(-2 * step);
    element = saved;
    return (8 * near - far) / (12 * step);
  }

 private:
  double loss() const {
    Tape tape(kFunctionDraws);
    return project(test_.function().value(), weights_);
  }

  const GradcheckCase& test_;
  const Tensor& weights_;
};

}  // namespace

GradcheckResult gradcheck(const GradcheckCase& test, int64_t max_elements) {
  GradcheckResult result{test.name, 0, "", test.tolerance, 0, true};
  for (const Var& input : test.inputs) {
    check(input.dtype() == DType::kFloat64, "gradcheck", test.name, ": inputs must be float64.");
    input.zero_grad();
  }
  Tensor weights;
  {
    Tape tape(kFunctionDraws);
    const Var y = test.function();
    weights = projection(y.shape());
    tape.backward(y, weights.clone());
  }
  const Differences differences(test, weights);
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const Var& input = test.inputs[i];
    if (!input.needs_grad()) {
      check(!input.grad().defined(), "gradcheck", test.name, ": frozen input ", i,
            " received a gradient.");
      continue;
    }
    const Tensor gradient =
        input.grad().defined() ? input.grad().clone() : Tensor::zeros(input.shape(), DType::kFloat64);
    const double* tape_gradient = gradient.data<double>();
    double largest = 0;
    for (int64_t j = 0; j < gradient.numel(); ++j) {
      largest = std::max(largest, std::abs(tape_gradient[j]));
    }
    const int64_t stride = std::max<int64_t>(1, gradient.numel() / max_elements);
    for (int64_t j = 0; j < gradient.numel(); j += stride) {
      const double numeric = differences.at(input.value().data<double>()[j]);
      const double scale =
          std::max({std::abs(tape_gradient[j]), std::abs(numeric), 1e-3 * largest, 1e-12});
      const double error = std::abs(tape_gradient[j] - numeric) / scale;
      ++result.elements;
      if (!(error <= result.worst_error) || result.worst_place.empty()) {
        result.worst_error = error;
        result.worst_place = concat("input ", i, " [", j, "]: tape ", tape_gradient[j],
                                    ", differences ", numeric);
      }
    }
    input.zero_grad();
  }
  result.passed = result.elements > 0 && result.worst_error <= test.tolerance;
  return result;
}

}  // namespace tapestry
