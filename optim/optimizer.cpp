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

// Muon makes matrices orthogonal; of the other rules a group is a group.
std::vector<ParamGroup> groups_for(const OptimizerOptions& options, const NamedVars& params) {
  if (options.type != OptimizerType::kMuon) return {ParamGroup{params}};
  std::vector<ParamGroup> groups(2);
  groups[0].orthogonalize = true;
  for (const auto& [name, var] : params) {
    groups[var.shape().rank() == 2 ? 0 : 1].params.emplace_back(name, var);
  }
  return groups;
}

// The rows of each matrix of a parameter.
std::vector<int64_t> matrix_rows(const ParamGroup& group, const std::string& name, const Var& var) {
  require(var.shape().rank() == 2, "muon makes matrices orthogonal, '", name, "' is ", var.shape(),
          '.');
  const auto packed = group.packed_rows.find(name);
  if (packed == group.packed_rows.end()) return {var.shape()[0]};
  int64_t sum = 0;
  for (const int64_t rows : packed->second) sum += rows;
  require(sum == var.shape()[0], "'", name, "' has ", var.shape()[0], " rows, ", sum,
          " of them are packed.");
  return packed->second;
}

// Undefined for a parameter that this update does not change.
Tensor gradient_of(const Var& var) { return var.needs_grad() ? var.grad() : Tensor(); }

}  // namespace

std::vector<StateTensor> Optimizer::kinds_of(const Slot& slot) const {
  return state_of(options_, slot.var.shape(), slot.var.dtype(), !slot.rows.empty());
}

void spoil_if_not_finite(std::span<const Tensor> others, const Tensor& sum) {
  for (const Tensor& numbers : others) {
    dispatch_device(sum.device(), [&](auto device) {
      kernels::sum_axis(device, numbers.data<double>(), sum.data<double>(), 1, numbers.numel(), 1,
                        /*scale=*/0.0, Write::kAdd);
    });
  }
}

Optimizer::Optimizer(const OptimizerOptions& options, const NamedVars& params)
    : Optimizer(options, groups_for(options, params)) {}

Optimizer::Optimizer(const OptimizerOptions& options, const std::vector<ParamGroup>& groups)
    : options_(options) {
  validate(options_);
  const bool counts = counts_updates(options_);
  NamedVars all;
  for (const ParamGroup& group : groups) {
    const double weight_decay = group.weight_decay.value_or(options_.weight_decay);
    require(is_positive_or_0(weight_decay), "weight_decay must be 0 or more, got ", weight_decay,
            '.');
    require(is_positive_or_0(group.learning_rate_scale),
            "learning_rate_scale must be 0 or more, got ", group.learning_rate_scale, '.');
    require(!group.orthogonalize || options_.type == OptimizerType::kMuon,
            "only muon makes matrices orthogonal, got ", name_of(options_.type), '.');
    for (const auto& [name, var] : group.params) {
      all.emplace_back(name, var);
      slots_.push_back({name, var, group.learning_rate_scale, weight_decay, {}, {}, {}, {}});
      if (group.orthogonalize) slots_.back().rows = matrix_rows(group, name, var);
    }
  }
  check_parameters("optimizer", all);
  for (Slot& slot : slots_) {
    const Tensor& value = slot.var.value();
    const DType dtype = wider(value.dtype());
    const StateType state_type = options_.state_dtype;
    require(state_type == StateType::kFloat32 || dtype == DType::kFloat32,
            "state_dtype must be float32 beside ", dtype, " parameters, got ", name_of(state_type),
            '.');
    require(state_type != StateType::kFloat8 || value.device().is_cpu(),
            "state_dtype float8 is for a CPU, '", slot.name, "' is on ", value.device(), '.');
    check(value.dtype() == all.front().second.dtype(), "optimizer", "'", slot.name, "' is ",
          value.dtype(), ", '", all.front().first, "' ", all.front().second.dtype(), '.');
    for (const StateTensor& kept : kinds_of(slot)) {
      slot.state.push_back(Tensor::zeros(kept.shape, kept.dtype, value.device()));
    }
    if (value.dtype() != dtype) slot.master = value.to(dtype);
    if (slot.rows.empty() && counts) slot.step = Tensor::zeros({}, DType::kInt32);
  }
}

double ClipOptions::scale() const { return norm ? norm_clip_factor(*norm, max_grad_norm) : 1; }

void Optimizer::launch(double learning_rate, const ClipOptions& clip, double gradient_scale,
                       std::span<const Tensor> also_finite, const Tensor& squares) {
  expect_launch(learning_rate);
  if (squares.defined() && !figures_.empty()) sum_of_squares();
  const Tensor squared = squares.defined() ? squares.clone() : sum_of_squares();
  spoil_if_not_finite(also_finite, squared);
  launched_ = Launched{HostCopy(squared), gradient_scale, {}, 0, {}};
  GradientTransform transform;
  transform.scale = gradient_scale * clip.scale();
  if (clip.clip_value > 0) transform.limit = clip.clip_value;
  transform.squared_norm = squared.data<double>();
  transform.max_norm = clip.max_own_norm();
  launched_->updated = update(slots_, learning_rate, transform);
}

void Optimizer::expect_launch(double learning_rate) const {
  check(is_positive_or_0(learning_rate), "optimizer", "expected a learning rate of 0 or more, got ",
        learning_rate, '.');
  check(!launched_, "optimizer", "the outcome of the last launch was not asked for.");
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
  StepResult result{norm, finite, launched_->updated_before, std::move(launched_->culprit)};
  launched_.reset();
  return result;
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

std::vector<const Optimizer::Slot*> Optimizer::update(std::span<const Slot> slots,
                                                      double learning_rate,
                                                      const GradientTransform& transform) const {
  std::vector<const Slot*> updated;
  if (slots.empty()) return updated;
  if (options_.type == OptimizerType::kMuon) {
    update_matrices(slots, learning_rate, transform, updated);
  }
  const OptimizerRule rule = rule_of(elementwise_type(options_.type));
  dispatch(slots.front().var.value(), [&](auto device, auto type) {
    using T = decltype(type);
    using W = Wider<T>;
    std::vector<ParameterUpdate<T>> updates;
    updates.reserve(slots.size());
    for (const Slot& slot : slots) {
      const Tensor gradient = gradient_of(slot.var);
      if (!gradient.defined() || !slot.rows.empty()) continue;
      const double t = slot.step.defined() ? ++*slot.step.data<int32_t>() : 0;
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
      update.number = static_cast<uint32_t>(t);
      const bool in_blocks = options_.state_dtype == StateType::kFloat8;
      for (size_t k = 0; k < slot.state.size() / (in_blocks ? 2 : 1); ++k) {
        if (in_blocks) {
          update.codes[k] = static_cast<uint8_t*>(slot.state[2 * k].raw());
          update.scales[k] = slot.state[2 * k + 1].template data<float>();
        } else if (slot.state[k].dtype() == DType::kBFloat16) {
          update.rounded_state[k] = slot.state[k].template data<BFloat16>();
        } else {
          update.state[k] = slot.state[k].template data<W>();
        }
      }
      if (slot.master.defined()) update.master = slot.master.template data<W>();
      updated.push_back(&slot);
    }
    kernels::optimizer_step<T>(device, updates, transform);
  });
  return updated;
}

void Optimizer::update_matrices(std::span<const Slot> slots, double learning_rate,
                                const GradientTransform& transform,
                                std::vector<const Slot*>& updated) const {
  std::vector<MuonMatrix> matrices;
  for (const Slot& slot : slots) {
    Tensor gradient = gradient_of(slot.var);
    if (!gradient.defined() || slot.rows.empty()) continue;
    gradient = gradient.reshape(slot.var.shape());
    int64_t begin = 0;
    for (const int64_t rows : slot.rows) {
      const auto part = [&, end = begin + rows](const Tensor& whole) {
        return whole.defined() ? whole.slice(begin, end) : Tensor();
      };
      MuonMatrix& matrix = matrices.emplace_back();
      matrix.param = part(slot.var.value());
      matrix.master = part(slot.master);
      matrix.gradient = part(gradient);
      matrix.momentum = part(slot.state[0]);
      if (options_.muon.scales_rows()) matrix.row_squares = part(slot.state[1]);
      matrix.learning_rate = learning_rate * slot.learning_rate_scale;
      matrix.weight_decay = slot.weight_decay;
      begin += rows;
    }
    updated.push_back(&slot);
  }
  muon_step(matrices, options_.momentum, options_.muon, transform);
}

double Optimizer::product_flops() const {
  double flops = 0;
  for (const Slot& slot : slots_) {
    for (const int64_t rows : slot.rows) {
      flops += orthogonal_flops(rows, slot.var.shape()[1], options_.muon);
    }
  }
  return flops;
}

void Optimizer::zero_grad() const {
  for (const Slot& slot : slots_) slot.var.zero_grad();
}

NamedTensors Optimizer::state() const {
  NamedTensors state;
  for (const Slot& slot : slots_) {
    size_t k = 0;
    for (const StateTensor& kept : kinds_of(slot)) {
      state.emplace_back(concat(kept.kind, '/', slot.name), slot.state[k++]);
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
