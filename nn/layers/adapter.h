// Low-rank adapters: small matrices beside large ones that stay as they are (Hu et al. 2021).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "core/base/option_report.h"

namespace tapestry {

class ParamScope;

/// Selects the layers that have an adapter, and its kind. Names follow PEFT.
struct LoraOptions {
  int64_t rank = 0;    ///< r; 0: the model has no adapters
  double alpha = 16;   ///< an adapter's output is multiplied by alpha / r
  double dropout = 0;  ///< of an adapter's input
  /// Paths of linear layers, as "layers.0.self_attention.qkv"; `*` stands for any characters.
  std::vector<std::string> target = {"*attention.*"};

  double scale() const { return alpha / static_cast<double>(rank); }
  bool adapts(const std::string& path) const;
  void validate(const OptionReport& report = OptionReport::throwing("lora")) const;
};

/// (alpha / r) B A dropout(x), A (r, in) "<scope>.lora_A", B (out, r) "<scope>.lora_B". B starts
/// at 0, so the model starts as it is without.
struct Adapter {
  /// `parts` are the rows of each projection that the matrix beside it packs.
  Adapter(int64_t in, const std::vector<int64_t>& parts, const ParamScope& scope);
  /// (..., in) -> (..., out)
  Var operator()(const Var& x) const;
  /// (out, in): the matrix that is added to the layer's own.
  Var matrix() const { return scale * matmul(b, a); }

  Var a, b;
  double scale = 1, dropout = 0;
};

/// True if a parameter of that name is a part of an adapter.
bool is_adapter(const std::string& parameter);

/// The matrix "<layer>.weight" with its adapter added, if `part` finds one, as the layer computes
/// with it. Other parameters come back as they are. `part` gives a parameter by its name.
Tensor with_adapter(const Tensor& value, const std::string& name, const LoraOptions& options,
                    const std::function<std::optional<Tensor>(const std::string& name)>& part);

}  // namespace tapestry
