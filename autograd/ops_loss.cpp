#include <cmath>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "core/dispatch_device.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/shapes_only.h"

namespace tapestry {
namespace {

struct Problem {
  CrossEntropyShape shape;
  Tensor targets, weights;            // on the device
  Tensor host_targets, host_weights;  // a copy in host memory
  int64_t tokens = 0;
  double normalizer = 1;

  RowTargets rows() const { return rows_of(targets, weights); }
  RowTargets host_rows() const { return rows_of(host_targets, host_weights); }

 private:
  static RowTargets rows_of(const Tensor& targets, const Tensor& weights) {
    return {targets.data<int32_t>(), data_or_null<float>(weights)};
  }
};

// Checks the targets, counts the real ones and sets the normalizer.
Problem make_problem(const char* who, int64_t rows, int64_t classes, Device device,
                     const Tensor& targets, const CrossEntropyOptions& options) {
  check(targets.defined() && targets.dtype() == DType::kInt32 && targets.numel() == rows, who,
        "expected ", rows, " int32 targets, got ",
        targets.defined() ? targets.shape().str() : "none", '.');
  check(options.label_smoothing >= 0 && options.label_smoothing < 1, who,
        "label smoothing must be in [0, 1), got ", options.label_smoothing, '.');
  check(options.softcap >= 0, who, "the softcap must be at least 0, got ", options.softcap, '.');
  const Tensor& weights = options.weights;
  check(!weights.defined() || (weights.dtype() == DType::kFloat32 && weights.device().is_cpu() &&
                               weights.numel() == rows),
        who, "expected a float32 weight in host memory for each of ", rows, " rows, got ",
        weights.defined() ? weights.shape().str() : "none", '.');
  Problem problem;
  problem.shape = {
      rows,           classes, options.label_smoothing, options.ignore_index, options.precision,
      options.softcap};
  problem.targets = targets.to(device);
  problem.host_targets = targets.to(Device{});
  problem.host_weights = weights;
  if (weights.defined()) problem.weights = weights.to(device);
  const RowTargets row = problem.host_rows();
  const int32_t* const target = row.targets;
  double sum = 0;
  const bool readable = ShapesOnly::has_memory(problem.host_targets.bytes());
  for (int64_t i = 0; readable && i < rows; ++i) {
    if (target[i] == options.ignore_index) continue;
    check(target[i] >= 0 && target[i] < classes, who, "targets must be in [0, ", classes, "), got ",
          target[i], " at row ", i, '.');
    check(row.weight(i) > 0 && std::isfinite(row.weight(i)), who,
          "weights must be positive and finite, got ", row.weight(i), " at row ", i, '.');
    ++problem.tokens;
    sum += row.weight(i);
  }
  problem.normalizer = options.normalizer > 0 ? options.normalizer : problem.tokens > 0 ? sum : 1;
  return problem;
}

// Room for a kernel's sums.
Tensor empty_sums(const Tensor& beside) {
  static_assert(sizeof(CrossEntropySums) == 3 * sizeof(double));
  return Tensor::empty({3}, DType::kFloat64, beside.device());
}
CrossEntropySums* fields(const Tensor& sums) {
  return reinterpret_cast<CrossEntropySums*>(sums.data<double>());
}

CrossEntropy make_result(const Problem& problem, const Tensor& sums, DType dtype) {
  const Tensor loss = Tensor::empty({}, DType::kFloat64, sums.device());
  dispatch(loss, [&](auto device, auto) {
    kernels::affine(device, 1 / problem.normalizer, sums.data<double>(), 0.0, loss.data<double>(),
                    1);
  });
  return {loss.to(dtype), problem.tokens, sums};
}

// Forward computed the gradients for dloss = 1; this scales them.
void deliver(const GradientRef& gradient, Tensor computed, const Tensor& dloss) {
  if (!gradient) return;
  dispatch(computed, [&](auto device, auto type) {
    using T = decltype(type);
    kernels::scale(device, dloss.data<T>(), computed.data<T>(), computed.numel());
  });
  gradient->accept(std::move(computed));
}

}  // namespace

// loss = sum over real rows of w ((1 - e) nll + e (logsumexp(z) - mean(z))) / normalizer.
// dz = w (softmax(z) - (1 - e) one_hot - e / V) / normalizer.
CrossEntropy cross_entropy(const Var& logits, const Tensor& targets,
                           const CrossEntropyOptions& options) {
  const Problem problem =
      make_problem("cross_entropy", logits.shape().rows(), logits.shape().cols(),
                   logits.value().device(), targets, options);
  Tensor dlogits = Tape::records(logits) ? Tensor::empty_like(logits.value()) : Tensor();
  const Tensor sums = empty_sums(logits.value());
  dispatch(logits.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::cross_entropy(device, problem.shape, logits.value().data<T>(), problem.rows(),
                           1.0 / problem.normalizer, data_or_null<T>(dlogits), fields(sums));
  });
  CrossEntropy result = make_result(problem, sums, logits.dtype());
  Tape::record({&logits}, result.loss,
               [dlogits, gradient = gradient_of(logits)](const Tensor& dloss) mutable {
                 deliver(gradient, std::move(dlogits), dloss);
               });
  return result;
}

// z = x W^T + b chunk by chunk; dx = dz W, dW = dz^T x and db = column sums of dz are computed in
// the same pass, while a chunk's dz is in memory, so backward only delivers them.
CrossEntropy linear_cross_entropy(const Var& x, const Var& weight, const Var& bias,
                                  const Tensor& targets, const CrossEntropyOptions& options) {
  check_same_kind("linear_cross_entropy", x, weight);
  check_same_kind("linear_cross_entropy", x, bias);
  check(weight.shape().rank() == 2 && x.shape().cols() == weight.shape()[1], "linear_cross_entropy",
        "x is ", x.shape(), ", weight is ", weight.shape(), '.');
  check(!bias.defined() || bias.shape() == Shape{weight.shape()[0]}, "linear_cross_entropy",
        "weight is ", weight.shape(), ", bias is ", bias.shape(), '.');
  const Problem problem = make_problem("linear_cross_entropy", x.shape().rows(), weight.shape()[0],
                                       x.value().device(), targets, options);
  const bool recording = Tape::records(x, weight, bias);
  Tensor dx = recording ? Tensor::empty_like(x.value()) : Tensor();
  // A frozen classifier is often the largest matrix of a model.
  Tensor dw = Tape::records(weight) ? Tensor::empty_like(weight.value()) : Tensor();
  Tensor db = Tape::records(bias) ? Tensor::empty_like(bias.value()) : Tensor();
  const Tensor sums = empty_sums(x.value());
  dispatch(x.value(), [&](auto device, auto type) {
    using T = decltype(type);
    LinearCrossEntropy<T> args;
    args.in = x.shape().cols();
    args.x = x.value().data<T>();
    args.weight = weight.value().data<T>();
    args.bias = data_or_null<T>(bias.value());
    args.targets = problem.rows();
    args.host_targets = problem.host_rows();
    args.grad_scale = 1.0 / problem.normalizer;
    args.dx = data_or_null<T>(dx);
    args.d_weight = data_or_null<T>(dw);
    args.d_bias = data_or_null<T>(db);
    kernels::linear_cross_entropy(device, problem.shape, args, fields(sums));
  });
  CrossEntropy result = make_result(problem, sums, x.dtype());
  Tape::record({&x, &weight, &bias}, result.loss,
               [dx, dw, db, gx = gradient_of(x), gw = gradient_of(weight),
                gb = gradient_of(bias)](const Tensor& dloss) mutable {
                 deliver(gx, std::move(dx), dloss);
                 deliver(gw, std::move(dw), dloss);
                 deliver(gb, std::move(db), dloss);
               });
  return result;
}

}  // namespace tapestry
