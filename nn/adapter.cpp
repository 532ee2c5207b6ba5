#include "nn/adapter.h"

#include <algorithm>
#include <cmath>

#include "core/pattern.h"
#include "nn/parameters.h"

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
Adapter::Adapter(int64_t in, int64_t out, const ParamScope& scope)
    : a(scope.create(kDown, {scope.lora().rank, in},
                     {Init::Kind::kUniform, 1 / std::sqrt(static_cast<double>(in))})),
      b(scope.create(kUp, {out, scope.lora().rank}, Init::zeros())),
      scale(scope.lora().alpha / static_cast<double>(scope.lora().rank)),
      dropout(scope.lora().dropout) {}

// The scale costs least where the rows are shortest.
Var Adapter::operator()(const Var& x) const {
  return linear(scale * linear(tapestry::dropout(x, dropout), a, Var()), b, Var());
}

bool is_adapter(const std::string& parameter) {
  return parameter.ends_with(concat('.', kDown)) || parameter.ends_with(concat('.', kUp));
}

void merge_adapters(const ParamStore& store) {
  for (const Parameter& parameter : store.parameters()) {
    if (!parameter.name.ends_with(concat('.', kDown))) continue;
    const std::string path =
        parameter.name.substr(0, parameter.name.size() - std::string(kDown).size());
    const Var up = store.at(path + kUp).var;
    const double scale = store.lora().alpha / static_cast<double>(store.lora().rank);
    Tensor weight = store.at(path + "weight").var.value();
    weight.copy_from((store.at(path + "weight").var + scale * matmul(up, parameter.var)).value());
    up.value().fill(0);
  }
}

}  // namespace tapestry
