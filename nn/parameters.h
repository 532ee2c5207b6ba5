// The parameter store: every tensor of a model's state by its path, which is also its key in a
// checkpoint.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "autograd/var.h"
#include "core/precision.h"

namespace tapestry {

/// How a parameter starts. Draws depend on the seed and the parameter's path alone, so adding a
/// layer does not change the others.
struct Init {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind;
  double value;  ///< the constant, the standard deviation, or the bound of U(-bound, bound)

  static Init zeros() { return {Kind::kConstant, 0}; }
  static Init ones() { return {Kind::kConstant, 1}; }
  static Init normal(double deviation) { return {Kind::kNormal, deviation}; }
  /// Xavier / Glorot uniform for a weight (out, in): bound sqrt(6 / (in + out)).
  static Init xavier(int64_t out, int64_t in);
};

struct Parameter {
  std::string name;
  Var var;
  /// False: state that forward passes write, like running statistics. It is saved, resumed and
  /// averaged with the others, but asks for no gradient, so an optimizer leaves it alone.
  bool trained = true;
};

class ParamScope;

class ParamStore {
 public:
  /// `precision` is that of the model's dense layers. Throws Error(kConfig) when the device does
  /// not have it.
  explicit ParamStore(uint64_t seed = 1, DType dtype = DType::kFloat32, Device device = {},
                      Precision precision = Precision::kFull);
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  ParamScope root();

  /// In the order of creation.
  const std::deque<Parameter>& parameters() const { return parameters_; }
  /// The same as an Optimizer takes them.
  NamedVars named() const;
  /// Throws when there is no such parameter.
  const Parameter& at(const std::string& name) const;
  bool contains(const std::string& name) const { return index_.contains(name); }
  /// Of the trained parameters.
  int64_t elements() const;
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  Precision precision() const { return precision_; }

 private:
  friend class ParamScope;
  Parameter& create(const std::string& name, const Shape& shape, const Init& init, DType dtype);

  uint64_t seed_;
  DType dtype_;
  Device device_;
  Precision precision_;
  std::deque<Parameter> parameters_;
  std::unordered_map<std::string, size_t> index_;
};

/// A prefix in a store: scope / "encoder" / 0 names "encoder.0".
class ParamScope {
 public:
  ParamScope operator/(std::string_view name) const;
  ParamScope operator/(int64_t index) const { return *this / std::to_string(index); }

  /// A new parameter "<prefix>.<name>". Throws when the name is taken.
  Var create(std::string_view name, const Shape& shape, const Init& init) const;
  /// Likewise for state that is not trained. A bfloat16 model's is float32: small steps of a
  /// running average would vanish.
  Tensor create_buffer(std::string_view name, const Shape& shape, const Init& init) const;

  DType dtype() const { return store_->dtype(); }
  Device device() const { return store_->device(); }
  Precision precision() const { return store_->precision(); }

 private:
  friend class ParamStore;
  ParamScope(ParamStore* store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}

  ParamStore* store_;
  std::string prefix_;
};

}  // namespace tapestry
