// Low-rank adapters: small matrices beside large ones that stay as they are (Hu et al. 2021).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "core/base/option_report.h"
#include "nn/layers/weight_matrix.h"

namespace tapestry {

class ParamScope;

/// Selects the layers that have an adapter, and its kind. Names follow PEFT.
struct LoraOptions {
  int64_t rank = 0;    ///< r; 0: the model has no adapters
  double alpha = 16;   ///< an adapter's output is multiplied by alpha / r
  double dropout = 0;  ///< of an adapter's input
  bool dora = false;   ///< the lengths of rows learn by themselves (Adapter::magnitude)
  /// Paths of linear layers, as "layers.0.self_attention.qkv"; `*` stands for any characters.
  std::vector<std::string> target = {"*attention.*"};

  double scale() const { return alpha / static_cast<double>(rank); }
  bool adapts(const std::string& path) const;
  void validate(const OptionReport& report = OptionReport::throwing("lora")) const;
};

/// (alpha / r) B A dropout(x), A (r, in) "<scope>.lora_A", B (out, r) "<scope>.lora_B". B starts
/// at 0, so the model starts as it is without.
/// With LoraOptions::dora (Liu et al. 2024) the rows of W + (alpha / r) B A give directions alone,
/// and "<scope>.lora_magnitude" (out) has their lengths; it starts as the lengths that they have.
class Adapter {
 public:
  /// `parts` are the rows of each projection that `weight`, the matrix W beside it, packs.
  Adapter(int64_t in, const std::vector<int64_t>& parts, const WeightMatrix& weight,
          const ParamScope& scope);
  /// (..., in) -> (..., out)
  Var operator()(const Var& x) const;
  bool has_gain() const { return magnitude.defined(); }
  /// The factors (out) of W x + (*this)(x): magnitude / lengths of rows. The lengths count as
  /// constants in its gradient, as the paper has it.
  Var gain() const;

  Var a, b, magnitude;
  double scale = 1, dropout = 0;

 private:
  struct Lengths;
  /// Of the rows of W + (alpha / r) B A; `squares` (out) are those of W's rows.
  Tensor lengths(const Tensor& squares) const;
  Tensor first_magnitude(const std::string& name) const;
  /// Computes the lengths once for all calls while the result lives: nothing may change meanwhile.
  std::shared_ptr<void> hold() const;

  WeightMatrix weight_;
  Precision precision_;
  std::shared_ptr<Lengths> lengths_;
};

/// sqrt(sum_k w_nk^2) of a matrix (N, K): (N), in its type.
Tensor row_lengths(const Tensor& matrix);

/// True if a parameter of that name is a part of an adapter.
bool is_adapter(const std::string& parameter);
/// True for the lengths of rows, which follow from the matrix.
bool is_magnitude(const std::string& parameter);

/// The matrix "<layer>.weight" with its adapter added, if `part` finds one, as the layer computes
/// with it. Other parameters come back as they are. `part` gives a parameter by its name.
Tensor with_adapter(const Tensor& value, const std::string& name, const LoraOptions& options,
                    const std::function<std::optional<Tensor>(const std::string& name)>& part);

}  // namespace tapestry
