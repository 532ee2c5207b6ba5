#include "nn/models/r_drop.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/shapes_only.h"

namespace tapestry {
namespace {

// The weight of each row in the divergence: 0 without a target. A column (R, 1) of the kind of what
// it weights.
struct RowWeights {
  RowWeights(const Tensor& targets, const CrossEntropyOptions& options) {
    const Tensor host = targets.to(Device{});
    values.assign(static_cast<size_t>(host.numel()), 1);
    if (!ShapesOnly::has_memory(host.bytes())) return;
    for (int64_t row = 0; row < host.numel(); ++row) {
      double& weight = values[static_cast<size_t>(row)];
      if (host.data<int32_t>()[row] == options.ignore_index) {
        weight = 0;
      } else if (options.weights.defined()) {
        weight = static_cast<double>(options.weights.data<float>()[row]);
      }
      sum += weight;
    }
  }
  Var column(const Var& beside) const {
    const Tensor rows = Tensor::from(values, {std::ssize(values), 1});
    return Var(rows.to(beside.dtype()).to(beside.value().device()));
  }

  std::vector<double> values;
  double sum = 0;
};

}  // namespace

Tensor twice(const Tensor& rows) {
  if (!rows.defined()) return rows;
  check(rows.device().is_cpu(), "r_drop", "rows are doubled in host memory, got some on ",
        rows.device(), '.');
  Tensor both = Tensor::empty(rows.shape().with(0, 2 * rows.shape()[0]), rows.dtype());
  if (ShapesOnly::has_memory(both.bytes())) {
    auto* const bytes = static_cast<std::byte*>(both.raw());
    std::memcpy(bytes, rows.raw(), static_cast<size_t>(rows.bytes()));
    std::memcpy(bytes + rows.bytes(), rows.raw(), static_cast<size_t>(rows.bytes()));
  }
  return both;
}

// KL(p || q) + KL(q || p) = sum (p - q) (log p - log q) = sum (p - q) (z_p - z_q), since the
// normalizers of the softmaxes are constants of a row and p - q sums to 0. Two passes differ
// little, so bfloat16 is widened before it is subtracted.
CrossEntropy r_drop_of_logits(const Var& logits, const Tensor& targets,
                              const CrossEntropyOptions& options, double alpha) {
  const int64_t rows = targets.numel(), classes = logits.shape().cols();
  check(logits.shape().rows() == 2 * rows, "r_drop", "expected logits of twice ", rows,
        " rows, got ", logits.shape(), '.');
  const RowWeights weights(targets, options);
  const double all = options.normalizer > 0 ? options.normalizer : std::max(weights.sum, 1.0);
  CrossEntropyOptions both = options;
  both.normalizer = 2 * all;
  both.weights = twice(options.weights);
  const Var z = reshape(logits, {2 * rows, classes});
  CrossEntropy result = cross_entropy(z, twice(targets), both);
  result.tokens /= 2;
  result.sums = affine(Var(result.sums), 0.5, 0).value();
  const Var wide = convert(z, z.dtype() == DType::kBFloat16 ? DType::kFloat32 : z.dtype());
  const Var first = slice(wide, 0, 0, rows), second = slice(wide, 0, rows, 2 * rows);
  const Var apart = (softmax(first) - softmax(second)) * (first - second);
  const Var divergence = alpha / (4 * all) * sum(apart * weights.column(wide));
  result.loss = result.loss + convert(divergence, z.dtype());
  return result;
}

}  // namespace tapestry
