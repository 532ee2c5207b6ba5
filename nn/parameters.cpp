#include "nn/parameters.h"

#include <cmath>

namespace tapestry {

Init Init::xavier(int64_t out, int64_t in) {
  return {Kind::kUniform, std::sqrt(6.0 / static_cast<double>(in + out))};
}

ParamStore::ParamStore(uint64_t seed, DType dtype, Device device, Precision precision)
    : seed_(seed), dtype_(dtype), device_(device), precision_(precision) {
  check_precision(precision, device);
}

ParamScope ParamStore::root() { return ParamScope(this, ""); }

const Parameter& ParamStore::at(const std::string& name) const {
  const auto found = index_.find(name);
  check(found != index_.end(), "parameters", "there is no parameter '", name, "'.");
  return parameters_[found->second];
}

NamedVars ParamStore::named() const {
  NamedVars named;
  for (const Parameter& parameter : parameters_) named.emplace_back(parameter.name, parameter.var);
  return named;
}

int64_t ParamStore::elements() const {
  int64_t total = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.trained) total += parameter.var.value().numel();
  }
  return total;
}

Parameter& ParamStore::create(const std::string& name, const Shape& shape, const Init& init,
                              DType dtype) {
  check(!index_.contains(name), "parameters", "'", name, "' is created twice.");
  // Drawn in float64 and rounded, so float32 and float64 models start at the same point.
  Tensor value = Tensor::full(shape, init.value, DType::kFloat64);
  if (init.kind != Init::Kind::kConstant) {
    const PhiloxKey key{seed_, 0, stream_of(name.data(), name.size())};
    double* element = value.data<double>();
    for (int64_t i = 0; i < value.numel(); ++i) {
      if (init.kind == Init::Kind::kNormal) {
        element[i] = init.value * philox_normal(key, i);
      } else {
        const Philox4 bits = philox(key, i);
        element[i] = init.value * (2 * to_uniform(bits.v[0], bits.v[1]) - 1);
      }
    }
  }
  index_[name] = parameters_.size();
  parameters_.push_back({name, Var::parameter(value.to(dtype).to(device_))});
  return parameters_.back();
}

ParamScope ParamScope::operator/(std::string_view name) const {
  return ParamScope(store_,
                    prefix_.empty() ? std::string(name) : prefix_ + '.' + std::string(name));
}

Var ParamScope::create(std::string_view name, const Shape& shape, const Init& init) const {
  return store_->create((*this / name).prefix_, shape, init, dtype()).var;
}

Tensor ParamScope::create_buffer(std::string_view name, const Shape& shape,
                                 const Init& init) const {
  Parameter& buffer = store_->create((*this / name).prefix_, shape, init, wider(dtype()));
  buffer.trained = false;
  buffer.var.set_requires_grad(false);
  return buffer.var.value();
}

}  // namespace tapestry
