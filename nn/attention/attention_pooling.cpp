#include "nn/attention/attention_pooling.h"

#include <cmath>

namespace tapestry {
namespace {

Var make_inverse_width(const AttentionPooling::Options& options, const ParamScope& scope) {
  options.validate();
  if (options.learned) {
    return scope.create("inverse_width", {1}, {Init::Kind::kConstant, 1 / options.width});
  }
  return Tensor::full({1}, 1 / options.width, scope.dtype(), scope.device());
}

// u^2 of each pair: (N, M). Squares the differences, since |q|^2 + |k|^2 - 2 q k would lose the
// digits of close pairs.
Var squared_distances(const Var& queries, const Var& keys, const Var& inverse_width) {
  const int64_t size = keys.shape()[1];
  const Var difference = reshape(queries, {queries.shape()[0], 1, size}) - keys;
  const Var u = difference * inverse_width;
  return sum(u * u, 2);
}

// 1 if the distance is below 1: a constant.
Var within(const Tensor& squares) {
  std::vector<double> inside = squares.to_vector<double>();
  for (double& u : inside) u = u < 1 ? 1 : 0;
  return Tensor::from(inside, squares.shape()).to(squares.dtype()).to(squares.device());
}

// Each row divided by its sum; a row of zeros stays zero. Any other row has a sum of at least an
// epsilon, so the bound max(total, kLeast) changes no weight that matters.
Var divided_by_sum(const Var& similarity) {
  constexpr double kLeast = 1e-15;
  const Var total = relu(sum(similarity, 1) + -kLeast) + kLeast;
  return similarity / reshape(total, {similarity.shape()[0], 1});
}

}  // namespace

void AttentionPooling::Options::validate(const OptionReport& report) const {
  report.expect(width > 0 && std::isfinite(width), "width", "must be positive, got ", width, '.');
  report.expect(!learned || kernel != SimilarityKernel::kBoxcar, "learned",
                "must be false for a boxcar: its width has no gradient.");
}

AttentionPooling::AttentionPooling(const Options& options, const ParamScope& scope)
    : kernel(options.kernel), inverse_width(make_inverse_width(options, scope)) {}

Var AttentionPooling::weights(const Var& queries, const Var& keys, const Tensor& mask) const {
  check(queries.shape().rank() == 2 && keys.shape().rank() == 2 &&
            queries.shape()[1] == keys.shape()[1],
        "attention_pooling", "queries and keys must be matrices of one width, got ",
        queries.shape(), " and ", keys.shape(), '.');
  const auto masked = [&](const Var& x, double value) {
    return mask.defined() ? masked_fill(x, mask, value) : x;
  };
  const Var squares = squared_distances(queries, keys, inverse_width);
  switch (kernel) {
    case SimilarityKernel::kGaussian:
      return softmax(masked(-0.5 * squares, -INFINITY));
    case SimilarityKernel::kBoxcar:
      return divided_by_sum(masked(within(squares.value()), 0));
    case SimilarityKernel::kEpanechnikov:
      return divided_by_sum(masked(relu(affine(squares, -1, 1)), 0));
  }
  fail(ErrorKind::kConfig, "[attention_pooling] there is no such kernel.");
}

}  // namespace tapestry
