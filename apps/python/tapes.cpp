// Tape, gradcheck() and Optimizer: what a notebook trains a layer with.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "apps/python/calls.h"
#include "apps/python/tensors.h"
#include "autograd/gradcheck.h"
#include "autograd/tape.h"
#include "optim/optimizer.h"

namespace tapestry::python {
namespace {

using nb::literals::operator""_a;

// A tape that records between __enter__ and __exit__.
class TapeScope {
 public:
  TapeScope(uint64_t seed, uint32_t step) : key_{.seed = seed, .step = step} {}

  void enter() {
    check(!tape_, "tape", "it records already.");
    tape_ = std::make_unique<Tape>(key_);
  }
  void exit() {
    check(tape_ != nullptr && Tape::current() == tape_.get(), "tape",
          "tapes end in the reverse order of their beginnings, on the thread that began them.");
    tape_.reset();
  }
  Tape& recording() const {
    check(tape_ != nullptr, "tape", "it records within `with Tape() as tape`, not outside.");
    return *tape_;
  }

 private:
  PhiloxKey key_;
  std::unique_ptr<Tape> tape_;
};

GradcheckResult check_gradients(const nb::callable& function, const std::vector<Var>& inputs,
                                double tolerance, int64_t max_elements) {
  for (const Var& input : inputs) {
    check(input.dtype() == DType::kFloat64 && input.gradient() != nullptr, "gradcheck",
          "expected parameters of float64, got ",
          input.gradient() == nullptr ? "a constant" : name_of(input.dtype()), '.');
  }
  const GradcheckCase test{.name = "function",
                           .inputs = inputs,
                           .function = [&] { return nb::cast<Var>(function()); },
                           .tolerance = tolerance};
  return gradcheck(test, max_elements);
}

OptimizerType optimizer_named(const std::string& name) {
  std::string names;
  for (const OptimizerType type : kOptimizerTypes) {
    if (name == name_of(type)) return type;
    names += concat(names.empty() ? "" : ", ", name_of(type));
  }
  fail(ErrorKind::kConfig, "[optimizer] name must be one of ", names, ", got '", name, "'.");
}

void make_optimizer(Optimizer* self, const nb::dict& parameters, const std::string& name,
                    std::optional<double> weight_decay, std::optional<double> eps, double momentum,
                    std::array<double, 2> betas, double alpha, double rho) {
  NamedVars params;
  for (const auto& [key, value] : parameters) {
    params.emplace_back(nb::str(key).c_str(), nb::cast<Var>(value));
  }
  OptimizerOptions options = optimizer_defaults(optimizer_named(name));
  options.weight_decay = weight_decay.value_or(options.weight_decay);
  options.eps = eps.value_or(options.eps);
  options.momentum = momentum;
  options.betas = betas;
  options.alpha = alpha;
  options.rho = rho;
  new (self) Optimizer(options, params);
}

void check_norm(const ClipOptions& clip) {
  if (!clip.norm) return;
  if (clip.max_grad_norm == 0) {
    fail(ErrorKind::kConfig, "[optimizer] norm has no effect without max_grad_norm, got ",
         *clip.norm, '.');
  }
  if (*clip.norm >= 0) return;
  fail(ErrorKind::kConfig, "[optimizer] norm must be at least 0, got ", *clip.norm, '.');
}

void bind_tape(nb::module_& module) {
  nb::class_<TapeScope>(
      module, "Tape",
      "Records what is computed within `with Tape() as tape`, so that tape.backward(loss) gives "
      "each parameter its gradient. Dropout is on exactly there; its draws are a function of seed, "
      "step and their order.")
      .def(nb::init<uint64_t, uint32_t>(), "seed"_a = 0, "step"_a = 0)
      .def(
          "__enter__",
          [](TapeScope& scope) -> TapeScope& {
            scope.enter();
            return scope;
          },
          nb::rv_policy::reference)
      .def(
          "__exit__",
          [](TapeScope& scope, const nb::object&, const nb::object&, const nb::object&) {
            scope.exit();
          },
          "type"_a.none(), "value"_a.none(), "traceback"_a.none())
      .def(
          "backward",
          [](TapeScope& scope, const Var& loss, double seed) {
            Tape& tape = scope.recording();
            const nb::gil_scoped_release released;
            tape.backward(loss, seed);
          },
          "loss"_a, "seed"_a = 1.0,
          "Adds the gradient of a loss of one element to those of the parameters; the tape is "
          "empty afterwards.")
      .def(
          "backward_from",
          [](TapeScope& scope, const Var& output, const Var& gradient) {
            Tape& tape = scope.recording();
            const nb::gil_scoped_release released;
            tape.backward(output, gradient.value());
          },
          "output"_a, "gradient"_a, "The same from any value, with the gradient that reaches it.")
      .def_prop_ro(
          "size", [](const TapeScope& scope) { return scope.recording().size(); },
          "Operations that are recorded.");
}

void bind_training_parts(nb::module_& module) {
  nb::class_<GradcheckResult>(module, "GradcheckResult",
                              "How a gradient compares with finite differences.")
      .def_ro("passed", &GradcheckResult::passed)
      .def_ro("worst_error", &GradcheckResult::worst_error, "Relative.")
      .def_ro("worst_place", &GradcheckResult::worst_place)
      .def_ro("tolerance", &GradcheckResult::tolerance)
      .def_ro("elements", &GradcheckResult::elements, "How many were compared.")
      .def("__bool__", [](const GradcheckResult& result) { return result.passed; })
      .def("__repr__", [](const GradcheckResult& result) {
        return concat("<tapestry.GradcheckResult: ", result.passed ? "passed" : "FAILED",
                      ", largest relative error ", result.worst_error, " of ", result.elements,
                      " elements: ", result.worst_place, '>');
      });
  module.def("gradcheck", &check_gradients, "function"_a, "inputs"_a, "tolerance"_a = 5e-7,
             "max_elements"_a = 64,
             nb::sig("def gradcheck(function: collections.abc.Callable[[], Var], inputs: "
                     "collections.abc.Sequence[Var], tolerance: float = 5e-07, max_elements: int = "
                     "64) -> GradcheckResult"),
             "Compares the tape's gradient of a function, which reads the inputs and returns a Var "
             "of any shape, with central differences. The inputs are parameters of float64, which "
             "it changes meanwhile; the function runs many times with the same draws.");
  nb::class_<Optimizer>(module, "Optimizer",
                        "sgd, momentum, nesterov, adagrad, rmsprop, adadelta, adam, adamw or muon: "
                        "one fused pass over all parameters, equal to PyTorch's.")
      .def(
          "__init__", &make_optimizer, "parameters"_a, "name"_a = "adamw", nb::kw_only(),
          "weight_decay"_a = nb::none(), "eps"_a = nb::none(), "momentum"_a = 0.9,
          "betas"_a = std::array<double, 2>{0.9, 0.999}, "alpha"_a = 0.99, "rho"_a = 0.9,
          nb::sig("def __init__(self, parameters: dict[str, Var], name: str = 'adamw', *, "
                  "weight_decay: float | None = None, eps: float | None = None, momentum: float = "
                  "0.9, betas: tuple[float, float] = (0.9, 0.999), alpha: float = 0.99, rho: float "
                  "= 0.9) -> None"),
          "weight_decay is 0 by default, of adamw 0.01; eps 1e-8, of adadelta 1e-6.")
      .def(
          "step",
          [](Optimizer& optimizer, double learning_rate, double max_grad_norm, double clip_value,
             double gradient_scale, std::optional<double> norm) {
            const ClipOptions clip{max_grad_norm, clip_value, norm};
            check_norm(clip);
            const nb::gil_scoped_release released;
            const StepResult result = optimizer.step(learning_rate, clip, gradient_scale);
            return std::pair(result.grad_norm, result.finite);
          },
          "learning_rate"_a, "max_grad_norm"_a = 0.0, "clip_value"_a = 0.0,
          "gradient_scale"_a = 1.0, "norm"_a = nb::none(),
          "One update of every parameter that has a gradient. Returns the norm of the gradients "
          "before clipping, and whether all were finite: else nothing changed. max_grad_norm clips "
          "by that norm, or by `norm`, as that of the update before (max_grad_norm_of: former; 0: "
          "the first update is not clipped).")
      .def("zero_grad", &Optimizer::zero_grad, "Forgets the gradients.")
      .def(
          "state",
          [](const Optimizer& optimizer) {
            nb::dict state;
            for (const auto& [name, tensor] : optimizer.state()) {
              state[nb::str(name.c_str())] = nb::cast(tensor);
            }
            return state;
          },
          nb::sig("def state(self) -> dict[str, Tensor]"),
          "What a resumed training needs, named as in PyTorch; over the same memory.");
}

}  // namespace

void bind_tapes(nb::module_& module) {
  bind_tape(module);
  bind_training_parts(module);
}

}  // namespace tapestry::python
