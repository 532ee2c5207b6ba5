#include "nn/layers/layers.h"

#include <cmath>

#include "core/shapes_only.h"

namespace tapestry {

namespace {

std::vector<int64_t> projections_of(const Linear::Options& o) {
  return o.parts.empty() ? std::vector{o.out} : o.parts;
}

WeightMatrix make_weight(const Linear::Options& o, const ParamScope& scope) {
  const Shape shape{o.out, o.in};
  const std::vector<int64_t> parts = projections_of(o);
  const auto init = o.init.of_parts(parts, o.in);
  if (o.packable) {
    return scope.create_matrix("weight", shape, init, o.hidden ? parts : std::vector<int64_t>());
  }
  WeightMatrix matrix(scope.create("weight", shape, init));
  if (o.hidden) scope.declare_projections("weight", parts);
  return matrix;
}

}  // namespace

Linear::Linear(const Options& options, const ParamScope& scope)
    : weight(make_weight(options, scope)),
      bias(options.bias ? scope.create("bias", {options.out}, Init::zeros()) : Var()),
      activation(options.activation),
      precision(scope.precision()) {
  weight.will_multiply();
  if (options.adaptable && scope.has_adapter())
    adapter.emplace(options.in, projections_of(options), weight, scope);
}

Linear Linear::rows(std::span<const int32_t> rows) const {
  check(!adapter, "linear", "expected a layer without an adapter.");
  Linear chosen = *this;
  chosen.weight = weight.rows(rows);
  if (!bias.defined()) return chosen;
  const std::vector<int32_t> ids(rows.begin(), rows.end());
  const Var column = reshape(bias, {bias.shape()[0], 1});
  chosen.bias = reshape(embedding(Tensor::from(ids, {1, std::ssize(ids)}, weight.device()), column),
                        {std::ssize(ids)});
  return chosen;
}

Var Linear::operator()(const Var& x) const {
  return softcap > 0 ? tapestry::softcap(product(x), softcap) : product(x);
}

Var Linear::product(const Var& x) const {
  if (!adapter) return weight.multiply(x, bias, {activation, precision});
  const bool scaled = adapter->has_gain();  // in front of the bias
  Var sum = weight.multiply(x, scaled ? Var() : bias, {.precision = precision}) + (*adapter)(x);
  if (scaled) sum = sum * adapter->gain();
  if (scaled && bias.defined()) sum = sum + bias;
  return activation == Activation::kNone ? sum : activate(activation, sum);
}

Norm::Norm(int64_t size, const Options& options, const ParamScope& scope)
    : weight(scope.create("weight", {size}, options.unit_offset ? Init::zeros() : Init::ones())),
      bias(options.kind != NormKind::kRms && options.bias
               ? scope.create("bias", {size}, Init::zeros())
               : Var()),
      options(options) {
  if (options.kind != NormKind::kBatch) return;
  running_mean = scope.create_buffer("running_mean", {size}, Init::zeros());
  running_var = scope.create_buffer("running_var", {size}, Init::ones());
}

Var Norm::operator()(const Var& x) const {
  if (options.kind != NormKind::kBatch) return norm(x, gamma(), bias, options);
  return batch_norm(x, gamma(), bias, running_mean, running_var,
                    {.eps = options.eps,
                     .momentum = options.running_momentum,
                     .biased = options.biased_running_variance});
}

Var Norm::operator()(const Var& x, const Var& residual) const {
  if (options.kind == NormKind::kBatch) return (*this)(residual + dropout(x, options.dropout));
  return residual_norm(x, residual, gamma(), bias, options).normed;
}

const char* name_of(const HiddenAct& act) {
  const ActivationNames names = names_of(act.activation);
  return act.gated ? names.gated : names.name;
}

std::vector<HiddenAct> hidden_acts() {
  std::vector<HiddenAct> acts;
  for (const bool gated : {false, true}) {
    for (const Activation activation : kActivations) {
      const HiddenAct act(activation, gated);
      if (activation != Activation::kNone && name_of(act) != nullptr) acts.push_back(act);
    }
  }
  return acts;
}

FeedForward::FeedForward(const Options& options, const ParamScope& scope)
    : act(options.act),
      up({.in = options.hidden_size,
          .out = (act.gated ? 2 : 1) * options.intermediate_size,
          .bias = options.bias,
          .activation = act.gated ? Activation::kNone : act.activation,
          .init = options.up_init,
          .parts = std::vector<int64_t>(act.gated ? 2 : 1, options.intermediate_size)},
         scope / "up"),
      down({.in = options.intermediate_size,
            .out = options.hidden_size,
            .bias = options.bias,
            .init = options.down_init},
           scope / "down"),
      dropout(options.dropout) {}

Var FeedForward::operator()(const Var& x) const {
  const Var h = act.gated ? glu(act.activation, up(x)) : up(x);
  return down(tapestry::dropout(h, dropout));
}

Residual::Residual(const Options& options, const ParamScope& scope)
    : position(options.position), dropout(options.norm.dropout) {
  const bool sandwich = position == NormPosition::kSandwich;
  if (position == NormPosition::kPost || position == NormPosition::kPre || sandwich) {
    norm.emplace(options.hidden_size, options.norm, scope);
  }
  if (position == NormPosition::kBranch || sandwich) {
    out_norm.emplace(options.hidden_size, options.norm, sandwich ? scope / "out" : scope);
  }
}

Tensor sinusoidal_positions(int64_t length, int64_t size, DType dtype, Device device) {
  Tensor table = Tensor::empty({length, size}, DType::kFloat64);
  if (!ShapesOnly::has_memory(table.bytes())) return Tensor::empty({length, size}, dtype, device);
  double* element = table.data<double>();
  for (int64_t p = 0; p < length; ++p) {
    for (int64_t i = 0; i < size; ++i, ++element) {
      const double frequency = std::pow(10000.0, -static_cast<double>(i - i % 2) / size);
      *element = i % 2 == 0 ? std::sin(p * frequency) : std::cos(p * frequency);
    }
  }
  return table.to(dtype).to(device);
}

Tensor fairseq_positions(int64_t length, int64_t size, DType dtype, Device device) {
  constexpr int64_t kFirst = 2;
  Tensor table = Tensor::empty({length, size}, DType::kFloat64);
  if (!ShapesOnly::has_memory(table.bytes())) return Tensor::empty({length, size}, dtype, device);
  const int64_t half = size / 2;
  for (int64_t p = 0; p < length; ++p) {
    double* const row = table.data<double>() + p * size;
    for (int64_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half - 1));
      const double angle = static_cast<double>(p + kFirst) * frequency;
      row[i] = std::sin(angle);
      row[half + i] = std::cos(angle);
    }
  }
  return table.to(dtype).to(device);
}

Tensor rope_table(int64_t length, int64_t size, const RopeFrequencies& w, DType dtype,
                  Device device) {
  Tensor table = Tensor::empty({length, size}, DType::kFloat64);
  if (!ShapesOnly::has_memory(table.bytes())) {
    return Tensor::empty({length, size}, wider(dtype), device);
  }
  const double factor = w.attention_factor();
  for (int64_t p = 0; p < length; ++p) {
    double* const row = table.data<double>() + p * size;
    for (int64_t i = 0; i < size / 2; ++i) {
      const double angle = static_cast<double>(p) * w(i, size);
      row[i] = factor * std::cos(angle);
      row[size / 2 + i] = factor * std::sin(angle);
    }
  }
  return table.to(wider(dtype)).to(device);
}

}  // namespace tapestry
