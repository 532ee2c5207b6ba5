#include "nn/layers.h"

#include <cmath>

namespace tapestry {

Linear::Linear(const Options& options, const ParamScope& scope)
    : weight(
          scope.create("weight", {options.out, options.in}, Init::xavier(options.out, options.in))),
      bias(options.bias ? scope.create("bias", {options.out}, Init::zeros()) : Var()),
      activation(options.activation) {}

Norm::Norm(int64_t size, const NormOptions& options, const ParamScope& scope)
    : weight(scope.create("weight", {size}, Init::ones())),
      bias(options.kind == NormKind::kLayer ? scope.create("bias", {size}, Init::zeros()) : Var()),
      options(options) {}

FeedForward::FeedForward(const Options& options, const ParamScope& scope)
    : up({.in = options.hidden_size,
          .out = options.intermediate_size,
          .activation = options.activation},
         scope / "up"),
      down({.in = options.intermediate_size, .out = options.hidden_size}, scope / "down"),
      dropout(options.dropout) {}

Residual::Residual(const Options& options, const ParamScope& scope)
    : norm(options.hidden_size, options.norm, scope), position(options.position) {}

Tensor sinusoidal_positions(int64_t length, int64_t size, DType dtype, Device device) {
  Tensor table = Tensor::empty({length, size}, DType::kFloat64);
  double* element = table.data<double>();
  for (int64_t p = 0; p < length; ++p) {
    for (int64_t i = 0; i < size; ++i, ++element) {
      const double frequency = std::pow(10000.0, -static_cast<double>(i / 2 * 2) / size);
      *element = i % 2 == 0 ? std::sin(p * frequency) : std::cos(p * frequency);
    }
  }
  return table.to(dtype).to(device);
}

}  // namespace tapestry
