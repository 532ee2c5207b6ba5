#include "apps/run/update_cost.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/cpu/parallel.h"
#include "core/gemm_rate.h"

namespace tapestry {
namespace {

double size_of(const Var& var) { return static_cast<double>(var.value().numel()); }

double bytes_of(const Var& value) {
  return value.defined() ? static_cast<double>(value.value().bytes()) : 0;
}

double bytes_of(std::span<const Var* const> values) {
  double bytes = 0;
  for (const Var* value : values) bytes += bytes_of(*value);
  return bytes;
}

// Operations of the forward pass.
double flops_of(const std::string& name, std::span<const Var* const> inputs, const Var& output) {
  const Var& x = *inputs.front();
  if (!x.defined() || x.shape().rank() == 0) return 0;
  if (name == "linear") return 2 * size_of(output) * static_cast<double>(x.shape()[-1]);
  if (name == "linear_cross_entropy") {
    return 2 * size_of(x) * static_cast<double>(inputs[1]->shape()[0]);
  }
  if (name == "matmul") {  // (B, m, k) and (B, k, n), in any order of the last two axes
    const double columns = static_cast<double>(output.shape()[-1]);
    return 2 * size_of(x) * columns;
  }
  if (name == "gru" || name == "gru_step") {  // (B, T, 3H) and (3H, H)
    return 2 * size_of(x) * static_cast<double>(output.shape()[-1]);
  }
  if (name == "attention" && output.shape().rank() == 3) {  // (B, T, D); keys have S tokens
    const Var& keys = inputs.size() > 1 && inputs[1]->defined() ? *inputs[1] : x;
    return 4 * size_of(output) * static_cast<double>(keys.shape()[1]);
  }
  return 0;
}

}  // namespace

// Products go back to both of their factors; all else reads and writes about as much again.
void CostCounter::computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                           std::span<const Var* const> outputs, bool recorded) {
  const std::string name = operation.name.str();
  const double passes = recorded ? 3 : 1;
  const double flops = flops_of(name, inputs, *outputs.front());
  cost_.flops += passes * flops;
  if (flops > 0 && inputs.size() > 1) {  // forward, and each of the two products on the way back
    const double a = bytes_of(*inputs[0]), b = bytes_of(*inputs[1]), c = bytes_of(*outputs.front());
    cost_.largest_factors =
        std::max(cost_.largest_factors, recorded ? a + b + c - std::min({a, b, c}) : a + b);
  }
  if (name != "reshape") cost_.bytes += passes * (bytes_of(inputs) + bytes_of(outputs));
}

MachineRates measure_rates(const Numbers& numbers) {
  constexpr int64_t kBytes = int64_t{64} << 20, kPart = int64_t{1} << 18;
  constexpr int kTimes = 3;
  const auto from = std::make_unique<char[]>(kBytes), to = std::make_unique<char[]>(kBytes);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    const double before = steady_seconds();
    parallel_for(kBytes / kPart, [&](int64_t part) {
      std::memcpy(to.get() + part * kPart, from.get() + part * kPart, kPart);
    });
    best = std::min(best, steady_seconds() - before);
  }
  constexpr double kGiga = 1e9;
  return {.flops_per_s = kGiga * gemm_rate(Device{}, numbers.dtype, numbers.precision),
          .bytes_per_s = 2. * kBytes / best};
}

UpdateSeconds seconds_of(const UpdateCost& cost, const MachineRates& rates) {
  constexpr double kShare = 0.8;  // tests/bench/README.md: 70 to 89 % of the rate, all included
  return {.products = cost.flops / (kShare * rates.flops_per_s),
          .memory = cost.bytes / rates.bytes_per_s};
}

}  // namespace tapestry
