#include "nn/layers/parameters.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/allocator.h"
#include "core/base/pattern.h"
#include "core/cpu/parallel.h"
#include "core/dispatch.h"
#include "core/kernels/elementwise/convert.h"
#include "core/scratch.h"
#include "core/shapes_only.h"

namespace tapestry {

Init Init::xavier(int64_t out, int64_t in) {
  return {Kind::kUniform, std::sqrt(6.0 / static_cast<double>(in + out))};
}

Init MatrixInit::of(int64_t out, int64_t in) const {
  switch (kind) {
    case Initializer::kXavierPacked:
    case Initializer::kXavierUniform:
      return Init::xavier(out, in);
    case Initializer::kXavierNormal:
      return Init::normal(std::sqrt(2.0 / static_cast<double>(in + out)));
    case Initializer::kKaiming:
      return Init::normal(std::sqrt(2.0 / static_cast<double>(in)));
    case Initializer::kNormal:
      break;
  }
  return Init::normal(deviation);
}

std::vector<InitRows> MatrixInit::of_parts(const std::vector<int64_t>& parts, int64_t in) const {
  const int64_t rows = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  if (kind == Initializer::kXavierPacked) return {{rows, of(rows, in)}};
  std::vector<InitRows> each;
  for (const int64_t part : parts) each.push_back({part, of(part, in)});
  return each;
}

namespace {

int64_t rows_of(const Shape& shape) { return shape.rank() == 0 ? 1 : shape[0]; }

// Element i of a parameter is draw i of its key.
double drawn(const Init& init, const PhiloxKey& key, int64_t i) {
  switch (init.kind) {
    case Init::Kind::kNormal:
      return init.value * philox_normal(key, i);
    case Init::Kind::kUniform: {
      const Philox4 bits = philox(key, i);
      return init.value * (2 * to_uniform(bits.v[0], bits.v[1]) - 1);
    }
    case Init::Kind::kConstant:
      break;
  }
  return init.value;
}

// Elements [begin, end) of `values`: drawn in float64 and rounded, so float32 and float64 models
// start at the same point.
void draw(const Init& init, const PhiloxKey& key, int64_t begin, int64_t end,
          const Tensor& values) {
  constexpr int64_t kGrain = 1 << 14;
  dispatch_dtype(values.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const element = values.data<T>() + begin;
    parallel_ranges(end - begin, kGrain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        element[i] = element_cast<T>(drawn(init, key, begin + i));
      }
    });
  });
}

// Rows [begin, end) of a matrix, as draw() would have them in float32.
void draw(const Init& init, const PhiloxKey& key, int64_t begin, int64_t end,
          const FrozenMatrix& matrix) {
  constexpr int64_t kRows = 16;
  const int64_t cols = matrix.cols();
  parallel_ranges(end - begin, kRows, [&](int64_t first, int64_t last) {
    Scratch<float> rows((last - first) * cols);
    for (int64_t i = 0; i < (last - first) * cols; ++i) {
      rows[i] = static_cast<float>(drawn(init, key, (begin + first) * cols + i));
    }
    matrix.store(begin + first, last - first, rows.data());
  });
}

// Of a matrix whose model is rounded to `format`: what is rounded in a table or a classifier is not
// made good by other layers.
WeightFormat rounded_format(WeightFormat format, bool has_projections) {
  return format == WeightFormat::kInt4 && !has_projections ? WeightFormat::kInt8 : format;
}

}  // namespace

std::optional<WeightFormat> FrozenBase::format_of(const std::string& name,
                                                  bool has_projections) const {
  const bool learns = std::ranges::any_of(
      learning, [&](const std::string& pattern) { return matches(name, pattern); });
  if (!format || learns) return std::nullopt;
  return rounded_format(*format, has_projections);
}

ParamStore::ParamStore(uint64_t seed, DType dtype, Device device, Precision precision,
                       const LoraOptions& lora, Start start, FrozenBase base,
                       std::optional<WeightFormat> learns_for)
    : seed_(seed),
      dtype_(dtype),
      device_(device),
      precision_(precision),
      lora_(lora),
      start_(start),
      base_(std::move(base)),
      learns_for_(learns_for) {
  check_precision(precision, device);
  lora.validate();
  if (base_.format && !device.is_cpu()) {
    fail(ErrorKind::kConfig, "[weights] training.lora.base: ", name_of(*base_.format),
         " is for device: cpu, got ", device, '.');
  }
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
    if (parameter.trained && parameter.var.defined()) total += parameter.shape.numel();
  }
  return total;
}

bool ParamStore::can_be_packed() const { return device_.is_cpu() && dtype_ == DType::kFloat32; }

bool ParamStore::can_be_packed(WeightFormat format) const {
  if (can_be_packed()) return true;
  if (format == WeightFormat::kFloat32) return false;
  fail(ErrorKind::kConfig, "[weights] ", name_of(format),
       " needs a model of float32 on a CPU, got ", dtype_, " on ", device_, '.');
}

void ParamStore::pack(const WeightMatrix& matrix, size_t place, WeightFormat format) {
  if (matrix.packed() || (format == WeightFormat::kFloat32 && !matrix.multiplies())) return;
  Parameter& parameter = parameters_[place];
  parameter.var = Var();
  matrix.pack(rounded_format(format, !parameter.projections.empty()));
}

WeightFormat ParamStore::usual_format() const {
  return learns_for_ && can_be_packed() ? *learns_for_ : WeightFormat::kFloat32;
}

void ParamStore::pack(WeightFormat format) {
  if (!can_be_packed(format)) return;
  for (const DerivedParameter& derived : derived_) held_.push_back(derived.hold());
  for (const auto& [matrix, place] : matrices_) pack(matrix, place, format);
  release_free_memory();
}

void ParamStore::derive(const std::function<bool(const std::string&)>& fresh) const {
  for (const DerivedParameter& derived : derived_) {
    const Parameter& parameter = parameters_[derived.place];
    if (fresh(parameter.name)) parameter.var.value().copy_from(derived.start(parameter.name));
  }
}

void ParamStore::load(const std::function<void(const Parameter&)>& read,
                      std::optional<WeightFormat> format) {
  const bool packs = format && can_be_packed(*format);
  held_.clear();
  for (const Parameter& parameter : parameters_) {
    if (parameter.var.defined()) read(parameter);
  }
  // Packs the largest first: the others fit into the memory of its values.
  auto matrices = matrices_;
  std::ranges::stable_sort(matrices, std::greater<>(), [&](const auto& matrix) {
    return parameters_[matrix.second].shape.numel();
  });
  for (const auto& [matrix, place] : matrices) {
    Parameter& parameter = parameters_[place];
    if (!parameter.var.defined()) {
      parameter.var = Var::parameter(Tensor::empty(parameter.shape, dtype_, device_));
      matrix.set(parameter.var);
      read(parameter);
    }
    for (const DerivedParameter& derived : derived_) {
      if (derived.matrix == place) held_.push_back(derived.hold());
    }
    if (packs) pack(matrix, place, *format);
  }
  if (packs) release_free_memory();
}

PackedScope::PackedScope(const ParamStore& store, bool packs) {
  for (const DerivedParameter& derived : store.derived_) held_.push_back(derived.hold());
  if (!packs || !store.can_be_packed()) return;
  try {
    for (const auto& [matrix, place] : store.matrices_) {
      if (matrix.packed() || !matrix.multiplies()) continue;
      matrix.pack_beside();
      packed_.emplace_back(&matrix);
    }
  } catch (const Error& error) {  // it would only be faster
    if (error.kind() != ErrorKind::kOutOfMemory) throw;
    packed_.clear();
  }
}

int64_t ParamStore::multiplied_bytes() const {
  int64_t total = 0;
  for (const auto& [matrix, place] : matrices_) total += matrix.multiplies() ? matrix.bytes() : 0;
  return total;
}

Parameter& ParamStore::add(const std::string& name, const Shape& shape,
                           const std::vector<InitRows>& init, DType dtype) {
  check(!index_.contains(name), "parameters", "'", name, "' is created twice.");
  int64_t begin = 0;
  for (const InitRows& part : init) begin += part.rows;
  check(begin == rows_of(shape), "parameters", "'", name, "' has ", rows_of(shape), " rows, ",
        begin, " of them start.");
  index_[name] = parameters_.size();
  parameters_.push_back({name, shape, dtype, Var()});
  return parameters_.back();
}

Parameter& ParamStore::create(const std::string& name, const Shape& shape,
                              const std::vector<InitRows>& init, DType dtype) {
  Parameter& parameter = add(name, shape, init, dtype);
  const Tensor value = Tensor::empty(shape, dtype);
  const PhiloxKey key{seed_, 0, stream_of(name.data(), name.size())};
  const int64_t rows = rows_of(shape), row = rows > 0 ? value.numel() / rows : 0;
  int64_t begin = 0;
  for (const InitRows& part : init) {
    if (start_ == Start::kDrawn && !ShapesOnly::is_on())
      draw(part.init, key, begin * row, (begin + part.rows) * row, value);
    begin += part.rows;
  }
  parameter.var = Var::parameter(value.to(device_));
  return parameter;
}

FrozenMatrix ParamStore::create_frozen(const std::string& name, const Shape& shape,
                                       const std::vector<InitRows>& init, WeightFormat format) {
  Parameter& parameter = add(name, shape, init, dtype_);
  const FrozenMatrix matrix(format, shape[0], shape[1]);
  const PhiloxKey key{seed_, 0, stream_of(name.data(), name.size())};
  int64_t begin = 0;
  for (const InitRows& part : init) {
    if (start_ == Start::kDrawn && base_.drawn && !ShapesOnly::is_on()) {
      draw(part.init, key, begin, begin + part.rows, matrix);
    }
    begin += part.rows;
  }
  parameter.frozen = matrix;
  parameter.var = Var::parameter(matrix.words());
  parameter.var.set_requires_grad(false);
  return matrix;
}

ParamScope ParamScope::operator/(std::string_view name) const {
  return ParamScope(store_,
                    prefix_.empty() ? std::string(name) : prefix_ + '.' + std::string(name));
}

Var ParamScope::create(std::string_view name, const Shape& shape, const Init& init) const {
  return create(name, shape, std::vector<InitRows>{{rows_of(shape), init}});
}

Var ParamScope::create(std::string_view name, const Shape& shape,
                       const std::vector<InitRows>& init) const {
  return store_->create((*this / name).prefix_, shape, init, dtype()).var;
}

WeightMatrix ParamScope::create_matrix(std::string_view name, const Shape& shape,
                                       const std::vector<InitRows>& init,
                                       const std::vector<int64_t>& projections) const {
  const std::string path = (*this / name).prefix_;
  WeightMatrix matrix;
  if (const auto format = store_->base_.format_of(path, !projections.empty())) {
    matrix = WeightMatrix(store_->create_frozen(path, shape, init, *format), dtype());
  } else if (store_->start_ == ParamStore::Start::kEmpty) {
    store_->add(path, shape, init, dtype());
    matrix = WeightMatrix(device(), dtype());
  } else {
    matrix = WeightMatrix(create(name, shape, init));
  }
  if (store_->learns_for_) {
    matrix.learn_for(rounded_format(*store_->learns_for_, !projections.empty()));
  }
  store_->parameters_.back().projections = projections;
  store_->matrices_.emplace_back(matrix, store_->parameters_.size() - 1);
  return matrix;
}

void ParamScope::declare_projections(std::string_view name,
                                     const std::vector<int64_t>& rows) const {
  store_->parameters_[store_->index_.at((*this / name).prefix_)].projections = rows;
}

Var ParamScope::create_derived(std::string_view name, const Shape& shape, std::string_view matrix,
                               std::function<Tensor(const std::string&)> start,
                               std::function<std::shared_ptr<void>()> hold) const {
  const Var var = create(name, shape, Init::ones());
  const std::string path = (*this / name).prefix_;
  const bool drawn = store_->start_ == ParamStore::Start::kDrawn && store_->base_.drawn;
  if (drawn && !ShapesOnly::is_on()) var.value().copy_from(start(path));
  store_->derived_.push_back({store_->index_.at(path), store_->index_.at((*this / matrix).prefix_),
                              std::move(start), std::move(hold)});
  return var;
}

Tensor ParamScope::create_buffer(std::string_view name, const Shape& shape,
                                 const Init& init) const {
  Parameter& buffer =
      store_->create((*this / name).prefix_, shape, {{rows_of(shape), init}}, wider(dtype()));
  buffer.trained = false;
  buffer.var.set_requires_grad(false);
  return buffer.var.value();
}

}  // namespace tapestry
