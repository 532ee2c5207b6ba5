#include "optim/optimizer.h"

#include <cmath>

#include "core/dispatch_device.h"
#include "core/kernels/reduce.h"
#include "core/kernels/sum_squares.h"
#include "optim/optimizer_rules.h"

namespace tapestry {
namespace {

template <class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) fail(ErrorKind::kConfig, "[optimizer] ", parts...);
}

bool is_positive_or_0(double x) { return std::isfinite(x) && x >= 0; }

// The names of a rule's state tensors, which the numbers of its step do not change.
std::span<const char* const> state_names(const OptimizerOptions& options) {
  return state_names(rule_of(options.type).step(options, 0, 0, 1));
}

// Undefined for a parameter that this update does not change.
Tensor gradient_of(const Var& var) { return var.needs_grad() ? var.grad() : Tensor(); }

}  // namespace

Optimizer::Optimizer(const OptimizerOptions& options, const std::vector<ParamGroup>& groups)
    : options_(options) {
  validate(options_);
  const size_t states = state_names(options_).size();
  const bool reads_t = rule_of(options_.type).reads_t;
  NamedVars all;
  for (const ParamGroup& group : groups) {
    const double weight_decay = group.weight_decay.value_or(options_.weight_decay);
    require(is_positive_or_0(weight_decay), "weight_decay must be 0 or more, got ", weight_decay,
            '.');
    require(is_positive_or_0(group.learning_rate_scale),
            "learning_rate_scale must be 0 or more, got ", group.learning_rate_scale, '.');
    for (const auto& [name, var] : group.params) {
      all.emplace_back(name, var);
      slots_.push_back({name, var, group.learning_rate_scale, weight_decay, {}, {}, {}});
    }
  }
  check_parameters("optimizer", all);
  for (Slot& slot : slots_) {
    const Tensor& value = slot.var.value();
    const DType dtype = wider(value.dtype());
    check(value.dtype() == all.front().second.dtype(), "optimizer", "'", slot.name, "' is ",
          value.dtype(), ", '", all.front().first, "' ", all.front().second.dtype(), '.');
    for (size_t k = 0; k < states; ++k) {
      slot.state.push_back(Tensor::zeros(value.shape(), dtype, value.device()));
    }
    if (value.dtype() != dtype) slot.master = value.to(dtype);
    if (reads_t) slot.step = Tensor::zeros({}, DType::kInt32);
  }
}

void Optimizer::launch(double learning_rate, const ClipOptions& clip, double gradient_scale,
                       std::span<const Tensor> also_finite, const Tensor& squares) {
  check(is_positive_or_0(learning_rate), "optimizer", "expected a learning rate of 0 or more, got ",
        learning_rate, '.');
  check(!launched_, "optimizer", "the outcome of the last launch was not asked for.");
  if (squares.defined() && !figures_.empty()) sum_of_squares();
  const Tensor squared = squares.defined() ? squares.clone() : sum_of_squares();
  // Becomes not finite if one of the others is not.
  for (const Tensor& numbers : also_finite) {
    dispatch_device(squared.device(), [&](auto device) {
      kernels::sum_axis(device, numbers.data<double>(), squared.data<double>(), 1, numbers.numel(),
                        1, /*scale=*/0.0, Write::kAdd);
    });
  }
  launched_ = Launched{HostCopy(squared), gradient_scale, {}};
  GradientTransform transform;
  transform.scale = gradient_scale;
  if (clip.clip_value > 0) transform.limit = clip.clip_value;
  transform.squared_norm = squared.data<double>();
  transform.max_norm = clip.max_grad_norm;
  update(learning_rate, transform);
}

StepResult Optimizer::outcome() {
  check(launched_.has_value(), "optimizer", "outcome() without a launch.");
  const double squared = launched_->squared_norm.wait().item();
  const double norm = std::abs(launched_->gradient_scale) * std::sqrt(squared);
  const bool finite = std::isfinite(norm);
  if (!finite) {
    for (const Slot* slot : launched_->updated) {
      if (slot->step.defined()) --*slot->step.data<int32_t>();
    }
  }
  launched_.reset();
  return {norm, finite};
}

void Optimizer::count_figures() {
  if (slots_.empty() || !slots_.front().var.value().device().is_cpu()) return;
  for (const Slot& slot : slots_) figures_.push_back({.name = slot.name});
}

Tensor Optimizer::sum_of_squares() {
  if (slots_.empty()) return Tensor::zeros({}, DType::kFloat64);
  // All gradients are of one type, which may be the wider one of the parameters (accept()).
  Tensor like = slots_.front().var.value();
  for (const Slot& slot : slots_) {
    if (const Tensor gradient = gradient_of(slot.var); gradient.defined()) like = gradient;
  }
  Tensor sum = Tensor::empty({}, DType::kFloat64, like.device());
  dispatch(like, [&](auto device, auto type) {
    using T = decltype(type);
    std::vector<ElementSpan<T>> gradients;
    gradients.reserve(slots_.size());
    for (const Slot& slot : slots_) {
      const Tensor gradient = gradient_of(slot.var);
      if (!gradient.defined()) continue;
      check(gradient.shape() == slot.var.shape(), "optimizer", "the gradient of ", slot.name,
            " is ", gradient.shape(), ", the parameter ", slot.var.shape(), '.');
      gradients.push_back({gradient.data<T>(), gradient.numel()});
    }
    if constexpr (std::is_same_v<decltype(device), Cpu>) {
      if (!figures_.empty()) return sum_and_count(gradients, sum.data<double>());
    }
    kernels::sum_squares<T>(device, gradients, sum.data<double>());
  });
  return sum;
}

template <class T>
void Optimizer::sum_and_count(const std::vector<ElementSpan<T>>& gradients, double* sum) {
  std::vector<kernels::TensorSquares> each(gradients.size());
  kernels::sum_squares<T>(Cpu{}, gradients, sum, each);
  size_t next = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    GradientFigures& figures = figures_[i];
    figures.elements = 0;
    if (!gradient_of(slots_[i].var).defined()) continue;
    figures.squares = each[next].squares;
    figures.zeros = each[next].zeros;
    figures.elements = gradients[next++].n;
  }
}

void Optimizer::update(double learning_rate, const GradientTransform& transform) {
  if (slots_.empty()) return;
  const OptimizerRule rule = rule_of(options_.type);
  dispatch(slots_.front().var.value(), [&](auto device, auto type) {
    using T = decltype(type);
    using W = Wider<T>;
    std::vector<ParameterUpdate<T>> updates;
    updates.reserve(slots_.size());
    for (const Slot& slot : slots_) {
      const Tensor gradient = gradient_of(slot.var);
      if (!gradient.defined()) continue;
      const double t = rule.reads_t ? ++*slot.step.data<int32_t>() : 0;
      ParameterUpdate<T>& update = updates.emplace_back();
      update.step =
          rule.step(options_, learning_rate * slot.learning_rate_scale, slot.weight_decay, t);
      update.param = slot.var.value().template data<T>();
      if (gradient.dtype() == slot.var.dtype()) {
        update.grad = gradient.data<T>();
      } else {
        update.wide_grad = gradient.data<W>();
      }
      update.n = gradient.numel();
      for (size_t k = 0; k < slot.state.size(); ++k) {
        update.state[k] = slot.state[k].template data<W>();
      }
      if (slot.master.defined()) update.master = slot.master.template data<W>();
      launched_->updated.push_back(&slot);
    }
    kernels::optimizer_step<T>(device, updates, transform);
  });
}

void Optimizer::zero_grad() const {
  for (const Slot& slot : slots_) slot.var.zero_grad();
}

NamedTensors Optimizer::state() const {
  const std::span<const char* const> names = state_names(options_);
  NamedTensors state;
  for (const Slot& slot : slots_) {
    for (size_t k = 0; k < names.size(); ++k) {
      state.emplace_back(concat(names[k], '/', slot.name), slot.state[k]);
    }
    if (slot.step.defined()) state.emplace_back("step/" + slot.name, slot.step);
  }
  return state;
}

NamedTensors Optimizer::masters() const {
  NamedTensors masters;
  for (const Slot& slot : slots_) {
    if (slot.master.defined()) masters.emplace_back(slot.name, slot.master);
  }
  return masters;
}

void Optimizer::load_state(const NamedTensors& source) { copy_named("optimizer", source, state()); }

}  // namespace tapestry
