#include "optim/ema.h"

#include <algorithm>

#include "core/dispatch_device.h"
#include "core/kernels/optimizer.h"

namespace tapestry {

Ema::Ema(const EmaOptions& options, NamedVars params, const NamedTensors& masters)
    : options_(options),
      params_(std::move(params)),
      num_updates_(Tensor::zeros({}, DType::kInt32)) {
  if (!(options_.decay >= 0 && options_.decay < 1)) {
    fail(ErrorKind::kConfig, "[ema] decay must be in [0, 1), got ", options_.decay, '.');
  }
  check_parameters("ema", params_);
  for (const auto& [name, var] : params_) {
    const auto master = std::find_if(masters.begin(), masters.end(),
                                     [&](const auto& named) { return named.first == name; });
    const Tensor& source =
        sources_.emplace_back(master == masters.end() ? var.value() : master->second);
    averages_.push_back(source.to(wider(source.dtype())).clone());
  }
}

void Ema::update() {
  check(!swapped_, "ema", "update() while the averages are swapped in.");
  if (params_.empty()) return;
  const double t = ++*num_updates_.data<int32_t>();
  const double decay =
      options_.warmup ? std::min(options_.decay, (1 + t) / (10 + t)) : options_.decay;
  const auto update_those_like = [&](const Tensor& first) {
    dispatch(first, [&](auto device, auto type) {
      using T = decltype(type);
      std::vector<AverageUpdate<T>> updates;
      updates.reserve(params_.size());
      for (size_t i = 0; i < params_.size(); ++i) {
        const Tensor& value = sources_[i];
        if (value.dtype() != first.dtype()) continue;
        updates.push_back({averages_[i].template data<Wider<T>>(), value.data<T>(), value.numel()});
      }
      kernels::moving_average<T>(device, decay, updates);
    });
  };
  const Tensor& first = sources_.front();
  update_those_like(first);
  for (const Tensor& source : sources_) {
    if (source.dtype() != first.dtype()) return update_those_like(source);
  }
}

void Ema::swap() {
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor& value = params_[i].second.value();
    if (swapped_) {
      value.copy_from(trained_[i]);
    } else {
      trained_.push_back(value.clone());
      value.copy_from(averages_[i].to(value.dtype()));
    }
  }
  swapped_ = !swapped_;
  if (!swapped_) trained_.clear();
}

NamedTensors Ema::state() const {
  check(!swapped_, "ema", "state() while the averages are swapped in.");
  NamedTensors state;
  for (size_t i = 0; i < params_.size(); ++i) {
    state.emplace_back("average/" + params_[i].first, averages_[i]);
  }
  state.emplace_back("num_updates", num_updates_);
  return state;
}

void Ema::load_state(const NamedTensors& source) { copy_named("ema", source, state()); }

}  // namespace tapestry
