#include "autograd/gradcheck.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "autograd/ops.h"

namespace tapestry {
namespace {

constexpr PhiloxKey kFunctionDraws{.seed = 11, .step = 1, .stream = 0};
constexpr PhiloxKey kWeights{.seed = 12, .step = 1, .stream = 0};
constexpr PhiloxKey kSamples{.seed = 13, .step = 1, .stream = 0};

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

// A derivative by differences, and about how far it is from the true one.
struct Estimate {
  double value = 0;
  double error = 0;
};

class Differences {
 public:
  Differences(const GradcheckCase& test, const Tensor& weights) : test_(test), weights_(weights) {}

  // The derivative of L by one element, as a fourth-order central difference: right for most
  // functions.
  double at(double& element) const {
    const double step = 1e-3 * std::max(1.0, std::abs(element));
    return (4 * central(element, step) - central(element, 2 * step)) / 3;
  }

  // The same by Richardson's extrapolation of central differences with ever smaller steps (Ridders
  // 1982). Neighbours in the table that differ show how wrong an entry is, so the best entry is
  // chosen without looking at the tape. Some functions bend so much that only tiny steps are right;
  // for others tiny steps are lost in rounding.
  Estimate best_at(double& element) const {
    constexpr int kSteps = 17;
    constexpr double kRatio = 1.7;  // halves would meet a wave at the same phase again and again
    const double rounding = std::numeric_limits<double>::epsilon() * magnitude();
    double step = 4e-3 * std::max(1.0, std::abs(element));
    std::array<double, kSteps> above{}, row{};
    Estimate best{0, std::numeric_limits<double>::infinity()};
    for (int i = 0; i < kSteps; ++i, step /= kRatio) {
      row[0] = central(element, step);
      double power = 1;
      for (int j = 1; j <= std::min(i, kOrders); ++j) {
        power *= kRatio * kRatio;
        row[j] = row[j - 1] + (row[j - 1] - above[j - 1]) / (power - 1);
        const double error =
            std::max(std::abs(row[j] - row[j - 1]), std::abs(row[j] - above[j - 1])) +
            rounding / step;
        if (error < best.error) best = {row[j], error};
      }
      above = row;
    }
    return best;
  }

 private:
  static constexpr int kOrders = 4;  // of the error that are taken away

  double central(double& element, double step) const {
    const double saved = element;
    const auto moved = [&](double offset) {
      element = saved + offset;
      return loss();
    };
    const double difference = moved(step) - moved(-step);
    element = saved;
    return difference / (2 * step);
  }

  double loss() const {
    Tape tape(kFunctionDraws);
    return project(test_.function().value(), weights_);
  }

  // The sum of the magnitudes of L's terms, which bounds its rounding error.
  double magnitude() const {
    Tape tape(kFunctionDraws);
    const Tensor value = test_.function().value();
    double total = 0;
    for (int64_t i = 0; i < value.numel(); ++i) {
      total += std::abs(value.data<double>()[i] * weights_.data<double>()[i]);
    }
    return total;
  }

  const GradcheckCase& test_;
  const Tensor& weights_;
};

double largest_magnitude(const Tensor& x) {
  double largest = 0;
  if (!x.defined()) return largest;
  for (int64_t i = 0; i < x.numel(); ++i)
    largest = std::max(largest, std::abs(x.data<double>()[i]));
  return largest;
}

// One element of each of `samples` equal ranges, at a random place in the range: a fixed stride
// could hit the same columns in every row.
int64_t sampled_element(int64_t elements, int64_t samples, int64_t sample) {
  const int64_t begin = sample * elements / samples, end = (sample + 1) * elements / samples;
  return begin + static_cast<int64_t>(philox_below(kSamples, sample, end - begin));
}

}  // namespace

TapeResult evaluate(const GradcheckCase& test) {
  const auto widened = [](const Tensor& x) {
    return x.defined() ? x.to(Device{}).to(DType::kFloat64).clone() : Tensor();
  };
  for (const Var& input : test.inputs) input.zero_grad();
  Tape tape(kFunctionDraws);
  const Var y = test.function();
  TapeResult result{widened(y.value()), {}};
  tape.backward(y, projection(y.shape()).to(y.dtype()).to(y.value().device()));
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const Var& input = test.inputs[i];
    check(input.needs_grad() || !input.grad().defined(), "gradcheck", test.name, ": frozen input ",
          i, " received a gradient.");
    result.gradients.push_back(widened(input.grad()));
    input.zero_grad();
  }
  return result;
}

GradcheckResult gradcheck(const GradcheckCase& test, int64_t max_elements) {
  GradcheckResult result{test.name, 0, "", test.tolerance, 0, true};
  for (const Var& input : test.inputs) {
    check(input.dtype() == DType::kFloat64 && input.value().device().is_cpu(), "gradcheck",
          test.name, ": inputs must be float64 on the CPU.");
  }
  const auto [value, gradients] = evaluate(test);
  const Tensor weights = projection(value.shape());
  double largest_of_all = 0;
  for (const Tensor& gradient : gradients) {
    largest_of_all = std::max(largest_of_all, largest_magnitude(gradient));
  }
  const Differences differences(test, weights);
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const Var& input = test.inputs[i];
    if (!input.needs_grad()) continue;
    const double floor =
        std::max({1e-3 * largest_magnitude(gradients[i]), 1e-5 * largest_of_all, 1e-12});
    const int64_t samples = std::min(max_elements, input.value().numel());
    for (int64_t sample = 0; sample < samples; ++sample) {
      const int64_t j = sampled_element(input.value().numel(), samples, sample);
      const double from_tape = gradients[i].defined() ? gradients[i].data<double>()[j] : 0;
      double& element = input.value().data<double>()[j];
      double numeric = differences.at(element);
      const auto error_of = [&] {
        return std::abs(from_tape - numeric) /
               std::max({std::abs(from_tape), std::abs(numeric), floor});
      };
      double error = error_of();
      // Many steps cost eight times as much, so they are used only if one step does not agree.
      if (!(error <= test.tolerance)) {
        numeric = differences.best_at(element).value;
        error = error_of();
      }
      ++result.elements;
      if (!(error <= result.worst_error) || result.worst_place.empty()) {
        result.worst_error = error;
        result.worst_place =
            concat("input ", i, " [", j, "]: tape ", from_tape, ", differences ", numeric);
      }
    }
  }
  result.passed = result.elements > 0 && result.worst_error <= test.tolerance;
  return result;
}

}  // namespace tapestry
