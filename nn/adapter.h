// Low-rank adapters: small matrices beside large ones that stay as they are (Hu et al. 2021).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "core/option_report.h"

namespace tapestry {

class ParamScope;
class ParamStore;

/// Which layers of a model have an adapter, and of what kind. Names follow PEFT.
struct LoraOptions {
  int64_t rank = 0;    ///< r; 0: the model has no adapters
  double alpha = 16;   ///< an adapter's output is multiplied by alpha / r
  double dropout = 0;  ///< of an adapter's input
  /// Paths of linear layers, as "layers.0.self_attention.qkv"; `*` stands for any characters.
  std::vector<std::string> target = {"*attention.*"};

  bool adapts(const std::string& path) const;
  void validate(const OptionReport& report = OptionReport::throwing("lora")) const;
};

/// (alpha / r) B A dropout(x), A (r, in) "<scope>.lora_A", B (out, r) "<scope>.lora_B". B starts
/// at 0, so the model starts as it is without.
struct Adapter {
  Adapter(int64_t in, int64_t out, const ParamScope& scope);
  /// (..., in) -> (..., out)
  Var operator()(const Var& x) const;
  /// (out, in): what it adds to the matrix beside it.
  Var matrix() const { return scale * matmul(b, a); }

  Var a, b;
  double scale = 1, dropout = 0;
};

/// Whether a parameter of that name is a part of an adapter.
bool is_adapter(const std::string& parameter);

/// Adds each adapter to the matrix beside it and sets it to 0: the model computes the same.
void merge_adapters(const ParamStore& store);

}  // namespace tapestry
