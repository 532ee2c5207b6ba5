#include "nn/layers/adapter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/pattern.h"
#include "nn/layers/parameters.h"

namespace tapestry {
namespace {

constexpr const char* kDown = "lora_A";
constexpr const char* kUp = "lora_B";

}  // namespace

bool LoraOptions::adapts(const std::string& path) const {
  return rank > 0 && std::any_of(target.begin(), target.end(),
                                 [&](const auto& pattern) { return matches(path, pattern); });
}

void LoraOptions::validate(const OptionReport& report) const {
  report.expect(rank >= 0, "rank", "must be at least 0, got ", rank, '.');
  report.expect(alpha > 0, "alpha", "must be positive, got ", alpha, '.');
  report.expect(dropout >= 0 && dropout < 1, "dropout", "must be from 0 to below 1, got ", dropout,
                '.');
  report.expect(!target.empty(), "target", "must name layers, got none.");
}

// A starts as PEFT's and PyTorch's linear layers do: U(-b, b), b = 1 / sqrt(in).
Adapter::Adapter(int64_t in, const std::vector<int64_t>& parts, const ParamScope& scope)
    : a(scope.create(kDown, {scope.lora().rank, in},
                     {Init::Kind::kUniform, 1 / std::sqrt(static_cast<double>(in))})),
      b(scope.create(kUp,
                     {std::accumulate(parts.begin(), parts.end(), int64_t{0}), scope.lora().rank},
                     Init::zeros())),
      scale(scope.lora().scale()),
      dropout(scope.lora().dropout) {
  scope.declare_projections(kDown, {scope.lora().rank});
  scope.declare_projections(kUp, parts);
}

// The scale is applied where rows are shortest, which costs least.
Var Adapter::operator()(const Var& x) const {
  return linear(scale * linear(tapestry::dropout(x, dropout), a, Var()), b, Var());
}

bool is_adapter(const std::string& parameter) {
  return parameter.ends_with(concat('.', kDown)) || parameter.ends_with(concat('.', kUp));
}

Tensor with_adapter(const Tensor& value, const std::string& name, const LoraOptions& options,
                    const std::function<std::optional<Tensor>(const std::string& name)>& part) {
  constexpr std::string_view kWeight = ".weight";
  if (options.rank == 0 || !name.ends_with(kWeight)) return value;
  const std::string layer = name.substr(0, name.size() - kWeight.size() + 1);
  const std::optional<Tensor> down = part(layer + kDown), up = part(layer + kUp);
  if (!down || !up) return value;
  return (Var(value) + options.scale() * matmul(Var(*up), Var(*down))).value();
}

}  // namespace tapestry
