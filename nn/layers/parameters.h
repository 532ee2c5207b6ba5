// The parameter store: every tensor of a model's state by its path, which is also its key in a
// checkpoint.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "autograd/var.h"
#include "core/base/enumerators.h"
#include "core/kernels/frozen/frozen_matrix.h"
#include "core/precision.h"
#include "nn/layers/adapter.h"
#include "nn/layers/weight_matrix.h"

namespace tapestry {

/// Initial values of a parameter. Draws depend only on the seed and the parameter's path, so adding
/// a layer does not change the others.
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

/// The next `rows` rows of a parameter, and how they start.
struct InitRows {
  int64_t rows;
  Init init;
};

/// Initial values of a model's matrices. A matrix may hold several projections, one below the other
/// (queries, keys and values; the gate and the rest of a gated network).
enum class Initializer {
  kXavierPacked,   ///< Xavier uniform by the shape of each matrix; embeddings (V, D) are N(0, 1/D)
  kXavierUniform,  ///< U(-b, b), b^2 = 6 / (in + out) of each projection (Glorot and Bengio 2010)
  kXavierNormal,   ///< N(0, 2 / (in + out)) of each projection (the same)
  kKaiming,        ///< N(0, 2 / in) (He et al. 2015)
  kNormal,         ///< N(0, deviation^2)
};

/// "xavier_packed", "xavier_uniform" and so on.
constexpr const char* name_of(Initializer initializer) {
  switch (initializer) {
    case Initializer::kXavierPacked:
      return "xavier_packed";
    case Initializer::kXavierUniform:
      return "xavier_uniform";
    case Initializer::kXavierNormal:
      return "xavier_normal";
    case Initializer::kKaiming:
      return "kaiming";
    case Initializer::kNormal:
      return "normal";
  }
  return nullptr;
}
inline constexpr auto kInitializers = enumerators<Initializer>();

/// Initial values of one matrix.
struct MatrixInit {
  Initializer kind = Initializer::kXavierPacked;
  double deviation = 0;  ///< of kNormal

  static MatrixInit normal(double deviation) { return {Initializer::kNormal, deviation}; }
  /// A projection (out, in).
  Init of(int64_t out, int64_t in) const;
  /// A matrix of projections from `in` numbers, each with its number of rows.
  std::vector<InitRows> of_parts(const std::vector<int64_t>& parts, int64_t in) const;
};

struct Parameter {
  std::string name;
  Shape shape;
  DType dtype;
  Var var;  ///< undefined while its matrix is packed, or has not been loaded yet
  /// Rows of each matrix between layers that it packs, one below the other; empty: it is none, but
  /// a table, a classifier, a vector. Some optimizers treat such matrices in their own way.
  std::vector<int64_t> projections = {};
  /// False: state that forward passes write, like running statistics. It is saved, resumed and
  /// averaged with the others, but has no gradient, so an optimizer does not change it.
  bool trained = true;
  /// Of a matrix of a FrozenBase: it does not learn, and `var` holds its words.
  std::optional<FrozenMatrix> frozen = {};
};

/// A parameter whose first values follow from those of a matrix.
struct DerivedParameter {
  size_t place, matrix;  ///< in ParamStore::parameters()
  std::function<Tensor(const std::string& name)> start;
  /// Keeps what follows from the matrix until the result is gone.
  std::function<std::shared_ptr<void>()> hold;
};

/// How a model with adapters keeps the matrices beside them that do not learn.
struct FrozenBase {
  std::optional<WeightFormat> format = {};  ///< none: as all parameters
  std::vector<std::string> learning = {};   ///< patterns of names that learn all the same
  bool drawn = true;  ///< false: they begin as zeros, since they will be loaded

  /// The format of a matrix with these Parameter::projections, if it is kept in one. int4 is int8
  /// for those without, as by ParamStore::pack().
  std::optional<WeightFormat> format_of(const std::string& name, bool has_projections) const;
};

class ParamScope;

class ParamStore {
 public:
  /// The state of parameters before anybody writes to them.
  enum class Start {
    kDrawn,  ///< by their Init
    kEmpty,  ///< uninitialised, matrices that can be packed without memory: for load()
  };
  /// `precision` holds for the model's dense layers, `lora` selects those that have adapters, and
  /// `base` says how the matrices beside these are kept. With `learns_for` (int8 or int4) the model
  /// computes with matrices and their inputs rounded as pack() would round them. Throws
  /// Error(kConfig) when the device does not have the precision, or cannot multiply by a base in a
  /// format.
  explicit ParamStore(uint64_t seed = 1, DType dtype = DType::kFloat32, Device device = {},
                      Precision precision = Precision::kFull, const LoraOptions& lora = {},
                      Start start = Start::kDrawn, FrozenBase base = {},
                      std::optional<WeightFormat> learns_for = {});
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  ParamScope root();

  /// All parameters in the order of creation.
  const std::deque<Parameter>& parameters() const { return parameters_; }
  /// The parameters in the form of an Optimizer.
  NamedVars named() const;
  /// Throws when there is no such parameter.
  const Parameter& at(const std::string& name) const;
  bool contains(const std::string& name) const { return index_.contains(name); }
  /// Elements of the trained parameters.
  int64_t elements() const;
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  Precision precision() const { return precision_; }
  const LoraOptions& lora() const { return lora_; }

  /// Gives the parameters that follow from matrices their first values again, if `fresh` says so of
  /// their names: for matrices that have other values by now.
  void derive(const std::function<bool(const std::string& name)>& fresh) const;

  /// Has every parameter read, and with a format packs it as pack(). A matrix takes memory when its
  /// turn comes, and is packed before the next one does, so that the unpacked model is never in
  /// memory as a whole.
  void load(const std::function<void(const Parameter&)>& read,
            std::optional<WeightFormat> format = {});
  /// Packs the matrices of create_matrix() for inference: float32 those that layers multiply by,
  /// another format all of them, but int4 is int8 for those without projections: what is rounded in
  /// a table or a classifier is not made good by other layers. Their parameters have no values
  /// afterwards, and their memory is freed. On a GPU, or for another type than float32, float32
  /// packs nothing, and the others throw Error(kConfig).
  void pack(WeightFormat format);
  /// What pack() is for if nobody asks for a format: the one that the model learns for where it can
  /// be packed, else float32.
  WeightFormat usual_format() const;
  /// Memory of the matrices that layers multiply by, packed or not: the bytes that a language model
  /// reads for one token.
  int64_t multiplied_bytes() const;

 private:
  friend class ParamScope;
  friend class PackedScope;
  bool can_be_packed() const;
  // True if the format can be packed here; throws if the format requires it and it cannot.
  bool can_be_packed(WeightFormat format) const;
  void pack(const WeightMatrix& matrix, size_t place, WeightFormat format);
  Parameter& create(const std::string& name, const Shape& shape, const std::vector<InitRows>& init,
                    DType dtype);
  // Registers a matrix in a format, drawn a few rows at a time.
  FrozenMatrix create_frozen(const std::string& name, const Shape& shape,
                             const std::vector<InitRows>& init, WeightFormat format);
  // Checks and registers a parameter like create(), without values.
  Parameter& add(const std::string& name, const Shape& shape, const std::vector<InitRows>& init,
                 DType dtype);

  uint64_t seed_;
  DType dtype_;
  Device device_;
  Precision precision_;
  LoraOptions lora_;
  Start start_;
  FrozenBase base_;
  std::optional<WeightFormat> learns_for_;
  std::deque<Parameter> parameters_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<std::pair<WeightMatrix, size_t>> matrices_;  // and their places in parameters_
  std::vector<DerivedParameter> derived_;
  std::vector<std::shared_ptr<void>> held_;  // since load() or pack()
};

/// While it lives, the matrices that layers multiply by are packed beside their parameters, whose
/// values must not change, and what follows from them is held: for a search between two updates.
/// Packs nothing that is packed already, that ParamStore::pack() would not, if memory is short, or
/// without `packs`.
class PackedScope {
 public:
  explicit PackedScope(const ParamStore& store, bool packs = true);

 private:
  struct Unpack {
    void operator()(const WeightMatrix* matrix) const { matrix->unpack(); }
  };
  std::vector<std::unique_ptr<const WeightMatrix, Unpack>> packed_;
  std::vector<std::shared_ptr<void>> held_;
};

/// A prefix in a store: scope / "encoder" / 0 names "encoder.0".
class ParamScope {
 public:
  ParamScope operator/(std::string_view name) const;
  ParamScope operator/(int64_t index) const { return *this / std::to_string(index); }

  /// A new parameter "<prefix>.<name>". Throws when the name is taken.
  Var create(std::string_view name, const Shape& shape, const Init& init) const;
  /// Creates a parameter whose ranges of rows start in different ways.
  Var create(std::string_view name, const Shape& shape, const std::vector<InitRows>& init) const;
  /// Creates a matrix that only WeightMatrix reads, so that it can be packed or frozen.
  WeightMatrix create_matrix(std::string_view name, const Shape& shape,
                             const std::vector<InitRows>& init,
                             const std::vector<int64_t>& projections = {}) const;
  /// Creates a parameter that follows from the matrix "<prefix>.<matrix>" (DerivedParameter).
  Var create_derived(std::string_view name, const Shape& shape, std::string_view matrix,
                     std::function<Tensor(const std::string&)> start,
                     std::function<std::shared_ptr<void>()> hold) const;
  /// Creates state that is not trained. It is float32 in a bfloat16 model: small steps of a running
  /// average would vanish.
  Tensor create_buffer(std::string_view name, const Shape& shape, const Init& init) const;
  /// Says what Parameter::projections of "<prefix>.<name>" are.
  void declare_projections(std::string_view name, const std::vector<int64_t>& rows) const;

  DType dtype() const { return store_->dtype(); }
  Device device() const { return store_->device(); }
  Precision precision() const { return store_->precision(); }
  const LoraOptions& lora() const { return store_->lora(); }
  /// True if a layer of this name shall have an adapter.
  bool has_adapter() const { return lora().adapts(prefix_); }

 private:
  friend class ParamStore;
  ParamScope(ParamStore* store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}

  ParamStore* store_;
  std::string prefix_;
};

}  // namespace tapestry
