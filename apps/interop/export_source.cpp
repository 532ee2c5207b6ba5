#include "apps/interop/export_source.h"

#include <algorithm>
#include <cmath>

#include "apps/interop/foreign_config.h"
#include "core/base/text.h"

namespace tapestry::interop {

Counts counts_of(const ModelFiles& model) {
  Counts counts;
  counts.classes = outputs_of(model.config);
  if (model.tokenizers.source == nullptr) return counts;
  counts.source_vocab = model.tokenizers.source->vocab_size();
  counts.target_vocab = model.tokenizers.target->vocab_size();
  counts.shared_vocab = model.tokenizers.shared();
  return counts;
}

namespace {

// A parameter as the model computes with it.
Tensor merged(const TensorReader& ours, const LoraOptions& lora, const std::string& name,
              const Shape& shape, DType dtype) {
  const Tensor own = Tensor::zeros(shape, dtype);
  ours.read(name, own);
  return with_adapter(own, name, lora, [&](const std::string& part) -> std::optional<Tensor> {
    const StoredTensor* const stored = ours.find(part);
    if (stored == nullptr) return std::nullopt;
    const Tensor matrix = Tensor::zeros(stored->shape, dtype);
    ours.read(part, matrix);
    return matrix;
  });
}

}  // namespace

std::vector<TensorToWrite> converted_tensors(const ModelFiles& model,
                                             const std::vector<TensorPair>& pairs,
                                             const Layout& layout, DType dtype) {
  const TensorReader& ours = model.tensors;
  std::vector<TensorToWrite> tensors;
  for (const TensorPair& pair : pairs) {
    const StoredTensor* const stored = ours.find(pair.ours);
    if (stored == nullptr ? !pair.optional : stored->shape != pair.our_shape) {
      fail(ErrorKind::kData, "[export] ", ours.name(), " must have ", pair.ours, ' ',
           pair.our_shape, ", got ", stored == nullptr ? "none" : stored->shape.str(), '.');
    }
    for (size_t i = 0; i < pair.theirs.size(); ++i) {
      const auto content = [pair, layout, dtype, ours, lora = model.config.lora, i,
                            there = stored != nullptr] {
        const Tensor own = there ? merged(ours, lora, pair.ours, pair.our_shape, dtype)
                                 : Tensor::zeros(pair.our_shape, dtype);
        return to_theirs(pair, layout, own, i);
      };
      tensors.emplace_back(pair.theirs[i], pair.their_shapes[i], dtype, content);
    }
  }
  return tensors;
}

void check_range(const TensorToWrite& tensor, double limit, const char* type, bool finite) {
  const Tensor values = tensor.content().to(Device{});
  const std::optional<int64_t> found = first_from(limit, values, finite);
  if (!found) return;
  const double value =
      values.reshape({values.numel()}).slice(*found, *found + 1).to_vector<double>()[0];
  std::vector<int64_t> place;
  for (int64_t axis = values.shape().rank() - 1, rest = *found; axis >= 0; --axis) {
    const int64_t size = values.shape()[static_cast<int>(axis)];
    place.insert(place.begin(), rest % size);
    rest /= size;
  }
  fail(ErrorKind::kData, "[export] ", tensor.name, " holds ", value, " at (", join(place, ", "),
       "), which ", type, " cannot hold.");
}

namespace {
constexpr StoredType kFloatTypes[] = {StoredType::kF32, StoredType::kF16, StoredType::kBF16};
}

std::vector<std::string> float_dtypes() {
  std::vector<std::string> names;
  for (const StoredType type : kFloatTypes) names.emplace_back(name_of(type));
  return names;
}

void store_as(const std::string& dtype, std::vector<TensorToWrite>& tensors) {
  if (dtype.empty()) return;
  const auto* const type = std::ranges::find(
      kFloatTypes, dtype, [](StoredType one) { return std::string(name_of(one)); });
  check(type != std::end(kFloatTypes), "export", "dtype must be one of ",
        join(float_dtypes(), ", "), ", got ", dtype, '.');
  for (TensorToWrite& tensor : tensors) {
    if (tensor.stored == *type) continue;
    check_range(tensor, infinite_from(*type), name_of(*type));
    tensor.stored = *type;
  }
}

ModelFacts exported_facts(const Architecture& architecture, const ModelFiles& model) {
  Config config = model.config;
  if (folds_scale(architecture, config)) {
    config.model.scale_embeddings = config.model.tie_word_embeddings = false;
    config.model.share_encoder_decoder_embeddings = architecture.may_untie;
  }
  // A class with segments has one at least.
  const bool segments = std::ranges::any_of(architecture.keys, [](const KeyRow& row) {
    return std::string_view(row.ours) == "type_vocab_size";
  });
  if (segments && config.model.type_vocab_size == 0) {
    config.model.type_vocab_size = 1;
  }
  return facts_for(architecture, config, counts_of(model));
}

void fold_scale(const Config& config, std::vector<TensorPair>& pairs) {
  const double factor = std::sqrt(static_cast<double>(config.model.embedding_width()));
  for (TensorPair& pair : pairs) {
    if (pair.ours == "embedding.weight") pair.factor = factor;
    if (pair.ours == "output.weight" && config.model.tie_word_embeddings) {
      pair.ours = "embedding.weight";
    }
  }
}

}  // namespace tapestry::interop
