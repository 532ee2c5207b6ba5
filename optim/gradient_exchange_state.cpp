// The optimizer's state for checkpoints, whatever part of it a rank has.
#include <algorithm>
#include <map>

#include "optim/gradient_exchange.h"
#include "optim/named.h"
#include "optim/optimizer_rules.h"

namespace tapestry {
namespace {

std::map<std::string, Tensor> by_name(const NamedTensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

// States of parameters that are cut, which a rank without any piece cannot see in its optimizer.
std::vector<StateTensor> kinds_of(const Optimizer& optimizer, DType dtype) {
  return state_of(optimizer.options(), {}, dtype, /*orthogonalized=*/false);
}

}  // namespace

NamedTensors GradientExchange::gather_state(const Optimizer& optimizer) {
  if (options_.shard == Shard::kNone) return optimizer.state();
  const auto own = by_name(optimizer.state());
  const bool counts = counts_updates(optimizer.options());
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
  for (const auto& [kind, shape, dtype] : kinds_of(optimizer, dtype_))
    whole[kind] = gather(own, kind + '/');
  NamedTensors state;
  for (size_t i = 0; i < params_.size(); ++i) {
    const Param& param = params_[i];
    if (param.owner >= 0) {
      for (const auto& [kind, shape, dtype] :
           state_of(optimizer.options(), param.var.shape(), dtype_, true)) {
        const std::string name = concat(kind, '/', param.name);
        state.emplace_back(name, gather_whole(own, name, shape));
      }
      continue;
    }
    for (const auto& [kind, shape, dtype] : kinds_of(optimizer, dtype_)) {
      const Tensor values = whole.at(kind).slice(param.begin, param.end);
      state.emplace_back(concat(kind, '/', param.name),
                         values.to(dtype).reshape(param.var.shape()));
    }
    if (counts) state.emplace_back("step/" + param.name, Tensor::from<int32_t>({steps[i]}, {}));
  }
  return state;
}

// Gathers a tensor that one rank has.
Tensor GradientExchange::gather_whole(const std::map<std::string, Tensor>& own,
                                      const std::string& name, const Shape& shape) {
  std::string mine;
  if (const auto found = own.find(name); found != own.end()) {
    const Tensor host = found->second.to(Device{});
    mine.assign(static_cast<const char*>(host.raw()), static_cast<size_t>(host.bytes()));
  }
  const Tensor tensor = Tensor::zeros(shape, sum_dtype_);
  for (const std::string& bytes : communicator_.all_gather(mine)) {
    if (bytes.empty()) continue;
    check(std::ssize(bytes) == tensor.bytes(), "exchange", "expected ", tensor.bytes(),
          " bytes of '", name, "' from another rank, got ", bytes.size(), '.');
    tensor.copy_from_host(bytes.data());
  }
  return tensor.to(device_);
}

// Gathers the pieces of all ranks into a flat array; they are named `prefix` + the piece's name.
Tensor GradientExchange::gather(const std::map<std::string, Tensor>& own,
                                const std::string& prefix) {
  const Tensor flat = Tensor::zeros({elements_}, sum_dtype_, device_);
  for (const Piece& piece : pieces_) {
    flat.slice(piece.begin, piece.end).copy_from(own.at(prefix + piece.name).to(sum_dtype_));
  }
  gather_pieces(flat);
  return flat;
}

NamedTensors GradientExchange::gather_masters(const Optimizer& optimizer) {
  if (options_.shard == Shard::kNone) return optimizer.masters();
  NamedTensors masters;
  if (dtype_ == sum_dtype_) return masters;
  const auto own = by_name(optimizer.masters());
  const Tensor flat = gather(own, "");
  for (const Param& param : params_) {
    if (param.owner >= 0) {
      masters.emplace_back(param.name, gather_whole(own, param.name, param.var.shape()));
      continue;
    }
    masters.emplace_back(param.name, flat.slice(param.begin, param.end).reshape(param.var.shape()));
  }
  return masters;
}

void GradientExchange::load_masters(const Optimizer& optimizer, const NamedTensors& whole) const {
  if (options_.shard == Shard::kNone) {
    return copy_named("exchange", whole, optimizer.masters());
  }
  if (dtype_ == sum_dtype_) return;
  const auto source = by_name(whole);
  const auto find = [&](const Param& param) -> const Tensor& {
    const auto found = source.find(param.name);
    check(found != source.end() && found->second.shape() == param.var.shape(), "exchange",
          "expected the master of ", param.name, ", ", param.var.shape(), '.');
    return found->second;
  };
  NamedTensors own;
  for (const Piece& piece : pieces_) {
    const Param& param = params_[piece.param];
    own.emplace_back(piece.name, find(param)
                                     .reshape({param.end - param.begin})
                                     .slice(piece.begin - param.begin, piece.end - param.begin));
  }
  for (const Param& param : params_) {
    if (is_mine(param)) own.emplace_back(param.name, find(param));
  }
  copy_named("exchange", own, optimizer.masters());
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
    for (const auto& [kind, shape, dtype] : kinds_of(optimizer, dtype_)) {
      const Tensor& values = find(concat(kind, '/', param.name));
      check(values.shape() == param.var.shape(), "exchange", kind, '/', param.name, " is ",
            values.shape(), ", the parameter ", param.var.shape(), '.');
      own.emplace_back(concat(kind, '/', piece.name),
                       values.reshape({values.numel()})
                           .slice(piece.begin - param.begin, piece.end - param.begin));
    }
    if (counts_updates(optimizer.options())) {
      own.emplace_back("step/" + piece.name, find("step/" + param.name));
    }
  }
  for (const Param& param : params_) {
    if (!is_mine(param)) continue;
    for (const auto& [kind, shape, dtype] :
         state_of(optimizer.options(), param.var.shape(), dtype_, true)) {
      const std::string name = concat(kind, '/', param.name);
      own.emplace_back(name, find(name));
    }
  }
  optimizer.load_state(own);
}

}  // namespace tapestry
