#include <algorithm>
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
    return {data_or_null<int32_t>(targets), data_or_null<double>(weights)};
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
  if (weights.defined()) problem.host_weights = weights.to(DType::kFloat64);
  if (weights.defined()) problem.weights = problem.host_weights.to(device);
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

// Rows [begin, end) of the problem.
Problem rows_of(const Problem& all, int64_t begin, int64_t end) {
  const auto part = [&](const Tensor& of_rows) {
    if (!of_rows.defined()) return Tensor();
    return of_rows.reshape({of_rows.numel()}).slice(begin, end);
  };
  Problem problem = all;
  problem.shape.rows = end - begin;
  problem.targets = part(all.targets);
  problem.weights = part(all.weights);
  problem.host_targets = part(all.host_targets);
  problem.host_weights = part(all.host_weights);
  return problem;
}

// Gradients of a classifier, where they are asked for; `x` has to be there for the others.
struct ClassifierGradients {
  Tensor x, weight, bias;
};

void check_classifier(const char* who, const Var& x, const Weight& weight, const Var& bias) {
  check_weight(who, x, weight);
  check_same_kind(who, x, bias);
  check(weight.shape().rank() == 2 && x.shape().cols() == weight.shape()[1], who, "x is ",
        x.shape(), ", weight is ", weight.shape(), '.');
  check(!bias.defined() || bias.shape() == Shape{weight.shape()[0]}, who, "weight is ",
        weight.shape(), ", bias is ", bias.shape(), '.');
}

// z = x W^T + b chunk by chunk; dx = dz W, dW = dz^T x and db = column sums of dz are computed in
// the same pass, while a chunk's dz is in memory.
void run_classifier(const Problem& problem, const Tensor& x, const Weight& weight, const Var& bias,
                    const ClassifierGradients& d, CrossEntropySums* sums) {
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    LinearCrossEntropy<T> args;
    args.in = x.shape().cols();
    args.x = x.data<T>();
    args.weight = weight.numbers<T>();
    args.frozen = weight.frozen_or_null();
    args.bias = data_or_null<T>(bias.value());
    args.targets = problem.rows();
    args.host_targets = problem.host_rows();
    args.grad_scale = 1.0 / problem.normalizer;
    args.dx = data_or_null<T>(d.x);
    args.d_weight = data_or_null<T>(d.weight);
    args.d_bias = data_or_null<T>(d.bias);
    kernels::linear_cross_entropy(device, problem.shape, args, sums);
  });
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

// Forward computes the gradients, too, while logits are in memory, so backward only delivers them.
CrossEntropy linear_cross_entropy(const Var& x, const Weight& w, const Var& bias,
                                  const Tensor& targets, const CrossEntropyOptions& options) {
  check_classifier("linear_cross_entropy", x, w, bias);
  const Var& weight = w.value;
  const Problem problem = make_problem("linear_cross_entropy", x.shape().rows(), weight.shape()[0],
                                       x.value().device(), targets, options);
  const bool recording = Tape::records(x, weight, bias);
  // A frozen classifier is often the largest matrix of a model.
  ClassifierGradients d{recording ? Tensor::empty_like(x.value()) : Tensor(),
                        Tape::records(weight) ? Tensor::empty_like(weight.value()) : Tensor(),
                        Tape::records(bias) ? Tensor::empty_like(bias.value()) : Tensor()};
  const Tensor sums = empty_sums(x.value());
  run_classifier(problem, x.value(), w, bias, d, fields(sums));
  CrossEntropy result = make_result(problem, sums, x.dtype());
  Tape::record({&x, &weight, &bias}, result.loss,
               [d, gx = gradient_of(x), gw = gradient_of(weight),
                gb = gradient_of(bias)](const Tensor& dloss) mutable {
                 deliver(gx, std::move(d.x), dloss);
                 deliver(gw, std::move(d.weight), dloss);
                 deliver(gb, std::move(d.bias), dloss);
               });
  return result;
}

Var linear_log_probabilities(const Var& x, const Weight& w, const Var& bias, const Tensor& targets,
                             const std::vector<int64_t>& ends, const CrossEntropyOptions& options) {
  const char* const who = "linear_log_probabilities";
  check_classifier(who, x, w, bias);
  const Var& weight = w.value;
  const CrossEntropyOptions plain{.ignore_index = options.ignore_index,
                                  .normalizer = 1,
                                  .precision = options.precision,
                                  .softcap = options.softcap};
  Problem problem =
      make_problem(who, x.shape().rows(), weight.shape()[0], x.value().device(), targets, plain);
  check(!ends.empty() && ends.back() == problem.shape.rows, who, "expected groups of ",
        problem.shape.rows, " rows, got ends up to ", ends.empty() ? 0 : ends.back(), '.');
  const auto groups = std::ssize(ends);
  const Tensor rows = x.value().reshape({problem.shape.rows, x.shape().cols()});
  std::vector<Var> sums;
  const Tensor group_of_row = Tensor::empty({1, problem.shape.rows}, DType::kInt32);
  // Without values one group is as good as many.
  const bool readable = ShapesOnly::has_memory(problem.host_targets.bytes());
  if (!readable) sums.emplace_back(Tensor::empty({groups}, DType::kFloat64, x.value().device()));
  for (int64_t group = 0, begin = 0; readable && group < groups; ++group) {
    const int64_t end = ends[static_cast<size_t>(group)];
    check(end > begin, who, "group ", group, " has no row.");
    const Problem part = rows_of(problem, begin, end);
    const Tensor of_group = empty_sums(x.value());
    run_classifier(part, rows.slice(begin, end), w, bias, {}, fields(of_group));
    sums.emplace_back(of_group.slice(1, 2));
    std::fill(group_of_row.data<int32_t>() + begin, group_of_row.data<int32_t>() + end,
              static_cast<int32_t>(group));
    begin = end;
  }
  const DType wide = x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  Var result = [&] {
    const NoTape constants;
    return Var(affine(concat(sums, 0), -1, 0).value().to(wide));
  }();
  Tape::record(
      {&x, &weight, &bias}, result,
      [problem, x_value = x.value(), w, bias, gx = gradient_of(x), gw = gradient_of(weight),
       gb = gradient_of(bias), group_of_row](const Tensor& dy) mutable {
        // The derivative of a row's loss is that of its group, negated.
        const NoTape constants;
        const Var by_group = reshape(Var(dy.to(DType::kFloat64)), {dy.numel(), 1});
        problem.host_targets = Tensor();  // they would need weights beside them
        problem.weights = affine(embedding(group_of_row.to(dy.device()), by_group), -1, 0).value();
        const auto room = [](const GradientRef& gradient, const Tensor& like) {
          return gradient ? Tensor::empty_like(like) : Tensor();
        };
        const ClassifierGradients d{Tensor::empty_like(x_value), room(gw, w.value.value()),
                                    room(gb, bias.value())};
        run_classifier(problem, x_value, w, bias, d, fields(empty_sums(x_value)));
        if (gx) gx->accept(d.x);
        if (gw) gw->accept(d.weight);
        if (gb) gb->accept(d.bias);
      });
  return result;
}

namespace {

// Logits of a chunk of distilled_cross_entropy(): on a CPU they stay in its caches, more or less.
constexpr int64_t kChunkElements = int64_t{1} << 20, kDeviceChunkElements = int64_t{1} << 26;

// The cross-entropy of logits, by their own values only.
struct PlainCrossEntropy {
  PlainCrossEntropy(const Problem& problem, const Tensor& logits, double grad_scale)
      : gradient(Tensor::empty_like(logits)), sums(empty_sums(logits)) {
    dispatch(logits, [&](auto device, auto type) {
      using T = decltype(type);
      kernels::cross_entropy(device, problem.shape, logits.data<T>(), problem.rows(), grad_scale,
                             gradient.value().data<T>(), fields(sums));
    });
  }
  Var gradient;  // times grad_scale
  Tensor sums;
};

// sum over all elements of a * b, added up in float64 by rows.
Var dot(const Var& a, const Var& b) { return sum(Var(sum(a * b, 1).value().to(DType::kFloat64))); }

// A chunk of logits z and the teacher's t: dz, and the sums of distilled_cross_entropy(). With the
// target distribution q of a cross-entropy ce, whose gradient is g = softmax - q:
//   KL(p_t || p_z) = <g(t), t - z> + ce(z) - ce(t)  and  dKL/dz = g(z) - g(t)
// for any q, so that the kernel of the cross-entropy does all of it; ignored rows give 0.
struct DistilledChunk {
  DistilledChunk(const Problem& problem, const Tensor& z, const Tensor& t, double weight,
                 double temperature) {
    // At temperature 1 both parts have the student's softmax in common.
    const bool shared = temperature == 1;
    const double soft = weight * temperature / problem.normalizer;
    const double hard = shared ? 1 / problem.normalizer : (1 - weight) / problem.normalizer;
    const PlainCrossEntropy truth(problem, z, hard);
    const Var soft_z = shared ? Var(z) : affine(z, 1 / temperature, 0);
    const Var soft_t = shared ? Var(t) : affine(t, 1 / temperature, 0);
    const PlainCrossEntropy teacher(problem, soft_t.value(), soft);
    Var dz = truth.gradient - teacher.gradient;
    Tensor student_sums = truth.sums;
    if (!shared) {
      const PlainCrossEntropy student(problem, soft_z.value(), soft);
      dz = dz + student.gradient;
      student_sums = student.sums;
    }
    gradient = dz.value();
    const Var apart = affine(dot(teacher.gradient, soft_t - soft_z), 1 / soft, 0);
    const Var losses = slice(Var(student_sums) - Var(teacher.sums), 0, 0, 1);
    sums = concat({Var(truth.sums), reshape(apart, {1}) + losses}, 0);
  }
  Tensor gradient;
  Var sums;  // (4) float64
};

}  // namespace

CrossEntropy distilled_cross_entropy(const Var& logits, const Tensor& targets,
                                     const CrossEntropyOptions& options,
                                     const Distillation& teacher) {
  const char* const who = "distilled_cross_entropy";
  const int64_t rows = logits.shape().rows(), classes = logits.shape().cols();
  check(teacher.weight > 0 && teacher.weight <= 1, who, "the weight must be in (0, 1], got ",
        teacher.weight, '.');
  check(teacher.temperature > 0, who, "the temperature must be positive, got ", teacher.temperature,
        '.');
  const Problem problem =
      make_problem(who, rows, classes, logits.value().device(), targets, options);
  const DType type = logits.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const Tensor z = logits.value().reshape({rows, classes});
  const Tensor dlogits = Tape::records(logits) ? Tensor::empty_like(z) : Tensor();
  // Without a tape, since the gradient is computed here.
  Var sums = Tensor::zeros({4}, DType::kFloat64, z.device());
  {
    const NoTape constants;
    const int64_t most = std::max<int64_t>(
        1, (z.device().is_cpu() ? kChunkElements : kDeviceChunkElements) / classes);
    for (int64_t begin = 0; begin < rows; begin += most) {
      const int64_t end = std::min(rows, begin + most);
      const Tensor t = teacher.logits(begin, end).to(type);
      check(t.shape() == Shape({end - begin, classes}), who, "expected the teacher's logits (",
            end - begin, ", ", classes, "), got ", t.shape(), '.');
      const DistilledChunk chunk(rows_of(problem, begin, end), z.slice(begin, end).to(type), t,
                                 teacher.weight, teacher.temperature);
      sums = sums + chunk.sums;
      if (dlogits.defined()) {
        dlogits.slice(begin, end).copy_from(chunk.gradient.to(logits.dtype()));
      }
    }
  }
  const double by_t = teacher.weight * teacher.temperature * teacher.temperature;
  CrossEntropy result;
  {
    const NoTape constants;
    const Var loss = affine(slice(sums, 0, 0, 1), (1 - teacher.weight) / problem.normalizer, 0) +
                     affine(slice(sums, 0, 3, 4), by_t / problem.normalizer, 0);
    result = {reshape(loss, {}).value().to(logits.dtype()), problem.tokens, sums.value()};
  }
  Tape::record({&logits}, result.loss,
               [dlogits = dlogits.defined() ? dlogits.reshape(logits.shape()) : Tensor(),
                gradient = gradient_of(logits)](const Tensor& dloss) mutable {
                 deliver(gradient, std::move(dlogits), dloss);
               });
  return result;
}

}  // namespace tapestry
