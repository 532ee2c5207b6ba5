// The optimizer's state for checkpoints, whatever part of it a rank has.
#include <algorithm>
#include <map>

#include "optim/gradient_exchange.h"
#include "optim/optimizer_rules.h"

namespace tapestry {
namespace {

std::map<std::string, Tensor> by_name(const NamedTensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

// What a rank without any piece cannot see in its optimizer's state.
std::span<const char* const> kinds_of(const Optimizer& optimizer) {
  const OptimizerOptions& options = optimizer.options();
  return state_names(rule_of(options.type).step(options, 0, 0, 1));
}

}  // namespace

NamedTensors GradientExchange::gather_state(const Optimizer& optimizer) {
  if (options_.shard == Shard::kNone) return optimizer.state();
  const auto own = by_name(optimizer.state());
  const bool counts = rule_of(optimizer.options().type).reads_t;
  // All pieces of a parameter have the same count; a rank that has none says 0.
  std::vector<int32_t> steps(params_.size(), 0);
  if (counts) {
    for (const Piece& piece : pieces_) {
      steps[piece.param] = *own.at("step/" + piece.name).data<int32_t>();
    }
    const std::string mine(reinterpret_cast<const char*>(steps.data()),
                           steps.size() * sizeof(int32_t));
    for (const std::string& other : communicator_.all_gather(mine)) {
      for (size_t i = 0; i < steps.size(); ++i) {
        int32_t step;
        other.copy(reinterpret_cast<char*>(&step), sizeof step, i * sizeof step);
        steps[i] = std::max(steps[i], step);
      }
    }
  }
  std::map<std::string, Tensor> whole;
  for (const std::string kind : kinds_of(optimizer)) {
    const Tensor flat = Tensor::zeros({elements_}, dtype_, device_);
    for (const Piece& piece : pieces_) {
      flat.slice(piece.begin, piece.end).copy_from(own.at(concat(kind, '/', piece.name)));
    }
    gather_pieces(flat);
    whole[kind] = flat;
  }
  NamedTensors state;
  for (size_t i = 0; i < params_.size(); ++i) {
    const Param& param = params_[i];
    for (const std::string kind : kinds_of(optimizer)) {
      const Tensor values = whole.at(kind).slice(param.begin, param.end);
      state.emplace_back(concat(kind, '/', param.name), values.reshape(param.var.shape()));
    }
    if (counts) state.emplace_back("step/" + param.name, Tensor::from<int32_t>({steps[i]}, {}));
  }
  return state;
}

void GradientExchange::load_state(Optimizer& optimizer, const NamedTensors& whole) const {
  if (options_.shard == Shard::kNone) return optimizer.load_state(whole);
  const auto source = by_name(whole);
  const auto find = [&](const std::string& name) -> const Tensor& {
    const auto found = source.find(name);
    check(found != source.end(), "exchange", "the optimizer's state has no '", name, "'.");
    return found->second;
  };
  NamedTensors own;
  for (const Piece& piece : pieces_) {
    const Param& param = params_[piece.param];
    for (const std::string kind : kinds_of(optimizer)) {
      const Tensor& values = find(concat(kind, '/', param.name));
      check(values.shape() == param.var.shape(), "exchange", kind, '/', param.name, " is ",
            values.shape(), ", the parameter ", param.var.shape(), '.');
      own.emplace_back(concat(kind, '/', piece.name),
                       values.reshape({values.numel()})
                           .slice(piece.begin - param.begin, piece.end - param.begin));
    }
    if (rule_of(optimizer.options().type).reads_t) {
      own.emplace_back("step/" + piece.name, find("step/" + param.name));
    }
  }
  optimizer.load_state(own);
}

}  // namespace tapestry
