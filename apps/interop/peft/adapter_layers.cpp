#include "apps/interop/peft/adapter_layers.h"

#include <algorithm>
#include <regex>

#include "apps/checkpoint/parameters.h"
#include "apps/interop/architectures/causal_keys.h"
#include "core/base/text.h"

namespace tapestry::interop {
namespace {

// What a pattern of theirs says of a module: the first key that is the end of its name.
Json of_pattern(const AdapterFolder& folder, const char* key, const std::string& module,
                const Json& otherwise) {
  const Json patterns = folder.config.value(key, Json::object());
  for (const auto& [pattern, value] : patterns.items()) {
    if (std::regex_match(module, std::regex(concat("(.*\\.)?(", pattern, ")")))) return value;
  }
  return otherwise;
}

Tensor read(const AdapterFolder& folder, const std::string& name, const Shape& shape, DType dtype) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  read_finite(folder.reader, folder.names.stored(name), tensor);
  return tensor;
}

std::vector<double> values(const AdapterFolder& folder, const std::string& name,
                           const Shape& shape) {
  return read(folder, name, shape, DType::kFloat64).to_vector<double>();
}

// Our A and B of a layer. Rows beyond those that the layer needs are zeros. B makes good for scales
// that are not ours.
void add_matrices(const AdapterFolder& folder, const Layer& layer, const LoraOptions& ours,
                  const Layout& layout, DType dtype, std::vector<TensorToWrite>& tensors) {
  const TensorPair down = down_pair(layer.weight, ours.rank, 0);
  tensors.emplace_back(down.ours, down.our_shape, dtype, [folder, layer, layout, dtype, down] {
    return to_ours(down, layout, dtype, [&](const std::string&, const Tensor& into) {
      into.fill(0);
      for (const auto& [name, rank, first] : layer.downs) {
        into.slice(first, first + rank)
            .copy_from(read(folder, name, {rank, into.shape()[1]}, dtype));
      }
    });
  });
  const TensorPair up = up_pair(layer.weight, ours.rank);
  const auto content = [folder, layer, layout, dtype, up, scale = ours.scale()] {
    return to_ours(up, layout, dtype, [&](const std::string& name, const Tensor& into) {
      into.fill(0);
      const auto at = std::ranges::find(up.theirs, name) - up.theirs.begin();
      const std::optional<Layer::Part>& part = layer.parts[static_cast<size_t>(at)];
      if (!part) return;
      const auto& [down_name, rank, first] = layer.downs[part->down];
      Tensor b = read(folder, name, {into.shape()[0], rank}, dtype);
      if (part->scale != scale) b = (part->scale / scale * Var(b)).value();
      const Tensor from = b.reshape({b.numel()}), to = into.reshape({into.numel()});
      const int64_t width = into.shape()[1];
      for (int64_t row = 0; row < into.shape()[0]; ++row) {
        to.slice(row * width + first, row * width + first + rank)
            .copy_from(from.slice(row * rank, (row + 1) * rank));
      }
    });
  };
  tensors.emplace_back(up.ours, up.our_shape, dtype, content);
}

// The lengths of a layer's rows. Those of a part without an adapter are the ones that they have.
void add_magnitude(const AdapterFolder& folder, const Layer& layer, const Layout& layout,
                   DType dtype, std::vector<TensorToWrite>& tensors) {
  const auto weight = std::ranges::find(tensors, layer.weight.ours, &TensorToWrite::name);
  check(weight != tensors.end(), "import", "a model has no ", layer.weight.ours, '.');
  const TensorPair pair = magnitude_pair(layer.weight);
  const auto content = [folder, layer, layout, dtype, pair, base = weight->content] {
    const Tensor lengths = row_lengths(base());
    const Tensor theirs =
        to_ours(pair, layout, dtype, [&](const std::string& name, const Tensor& into) {
          const auto part = std::ranges::find(pair.theirs, name) - pair.theirs.begin();
          if (!layer.parts[static_cast<size_t>(part)]) return into.fill(0);
          into.copy_from(read(folder, name, into.shape(), dtype));
        });
    int64_t end = 0;
    for (size_t part = 0; part < pair.parts.size(); ++part) {
      const int64_t begin = end;
      end += pair.parts[part];
      if (layer.parts[part]) lengths.slice(begin, end).copy_from(theirs.slice(begin, end));
    }
    return lengths;
  };
  tensors.emplace_back(pair.ours, pair.our_shape, dtype, content);
}

// A text is a regular expression of the whole name, a list has ends of names.
bool names_module(const Json& patterns, const std::string& module) {
  if (patterns.is_string()) {
    auto expression = patterns.get<std::string>();
    if (expression.ends_with("\\Z")) expression.resize(expression.size() - 2);  // Python's end
    return std::regex_match(module, std::regex(expression));
  }
  return std::ranges::any_of(patterns, [&](const Json& one) {
    const auto end = one.get<std::string>();
    return module == end || module.ends_with('.' + end);
  });
}

// The layers of layers_to_transform: the number behind the name of the list of layers.
bool is_of_layers(const Json& config, const std::string& module) {
  const Json layers = value_of(config, "layers_to_transform", Json());
  if (layers.is_null() || (layers.is_array() && layers.empty())) return true;
  const Json names = value_of(config, "layers_pattern", Json());
  std::vector<std::string> lists;
  if (names.is_string() && names != "") lists = {names.get<std::string>()};
  if (names.is_array()) lists = names.get<std::vector<std::string>>();
  const std::string list = lists.empty() ? "[^.]*" : concat("(?:", join(lists, "|"), ')');
  std::smatch number;
  const char* const begin = lists.empty() ? "\\." : "(?:^|\\.)";
  if (!std::regex_search(module, number, std::regex(concat(begin, list, "\\.(\\d+)\\.")))) {
    return false;
  }
  const int64_t layer = std::stoll(number[1]);
  return layers.is_array() ? std::ranges::find(layers, Json(layer)) != layers.end()
                           : layers == layer;
}

}  // namespace

std::string module_with(const AdapterFolder& folder, const std::string& a) {
  const std::string stored = module_of(module_of(folder.names.stored(a)));
  const std::string_view prefix = kAdapterPrefix;
  return stored.starts_with(prefix) ? stored.substr(prefix.size()) : stored;
}

Json alpha_of(const AdapterFolder& folder) { return folder.config.value("lora_alpha", Json(8)); }

void check_pattern(const Json& config, const char* key, double most, Reasons& reasons) {
  const Json patterns = config.value(key, Json());
  if (patterns.is_null()) return;
  const auto refuse = [&] {
    reasons.push_back(concat(key, " is ", patterns.dump(), ", expected numbers from above 0 up to ",
                             most, " by patterns of modules"));
  };
  if (!patterns.is_object()) return refuse();
  for (const auto& [pattern, value] : patterns.items()) {
    const bool whole = std::string_view(key) == "rank_pattern";
    if (!(whole ? value.is_number_integer() : value.is_number()) || value <= 0 || value > most) {
      return refuse();
    }
    try {
      const std::regex compiled(pattern);
    } catch (const std::regex_error&) {
      return refuse();
    }
  }
}

std::optional<bool> is_adapted(const Json& config, const std::string& module) {
  const Json targets = value_of(config, "target_modules", Json()),
             excluded = value_of(config, "exclude_modules", Json());
  try {
    if (!excluded.is_null() && names_module(excluded, module)) return false;
    const bool all = targets.is_null() || targets == "all-linear";
    // A whole name needs no layer.
    if (targets.is_array() && std::ranges::find(targets, Json(module)) != targets.end())
      return true;
    return (all || names_module(targets, module)) && is_of_layers(config, module);
  } catch (const std::exception&) {  // of the expressions, or of values of another type
    return std::nullopt;
  }
}

bool has_shape(const AdapterFolder& folder, const std::string& name, const Shape& shape,
               Reasons& reasons) {
  const StoredTensor* const stored =
      folder.names.has(name) ? folder.reader.find(folder.names.stored(name)) : nullptr;
  if (stored != nullptr && stored->shape == shape && fits(stored->type, DType::kFloat32)) {
    return true;
  }
  reasons.push_back(stored == nullptr
                        ? concat("no tensor ", kAdapterPrefix, name, ' ', shape)
                        : concat(stored->name, " is ", stored->shape, ", expected ", shape));
  return false;
}

std::optional<Layer> layer_of(const AdapterFolder& folder, const TensorPair& weight,
                              std::set<std::string>& used, Reasons& reasons) {
  if (weight.is_bias || weight.our_shape.rank() != 2) return std::nullopt;
  Layer layer{.weight = weight};
  layer.parts.resize(weight.theirs.size());
  const TensorPair magnitudes = magnitude_pair(weight);
  for (size_t i = 0; i < weight.theirs.size(); ++i) {
    const std::string first = down_pair(weight, 1, i).theirs[0];
    const std::string module =
        folder.names.has(first) ? module_with(folder, first) : module_of(weight.theirs[i]);
    const auto rank = of_pattern(folder, "rank_pattern", module, folder.rank).get<int64_t>();
    const TensorPair down = down_pair(weight, rank, i), ups = up_pair(weight, rank);
    const std::string &a = down.theirs[0], &b = ups.theirs[i];
    if (!folder.names.has(a) && !folder.names.has(b)) continue;
    used.insert({a, b});
    if (weight.change == Change::kPatches || weight.ours == "output.weight") {
      reasons.push_back(concat("an adapter of ", module, " has no place in Tapestry"));
      continue;
    }
    if (!has_shape(folder, a, down.our_shape, reasons) ||
        !has_shape(folder, b, ups.their_shapes[i], reasons)) {
      continue;
    }
    if (folder.dora) {
      const std::string& lengths = magnitudes.theirs[i];
      used.insert(lengths);
      if (!has_shape(folder, lengths, magnitudes.their_shapes[i], reasons)) continue;
    }
    const auto same = std::find_if(layer.downs.begin(), layer.downs.end(), [&](const auto& other) {
      return other.rank == rank &&
             values(folder, other.name, down.our_shape) == values(folder, a, down.our_shape);
    });
    const Json alpha = of_pattern(folder, "alpha_pattern", module, alpha_of(folder));
    layer.parts[i] = {static_cast<size_t>(same - layer.downs.begin()),
                      folder.scale(alpha.get<double>(), rank)};
    if (same == layer.downs.end()) layer.downs.push_back({a, rank, layer.rank()});
  }
  if (layer.downs.empty()) return std::nullopt;
  return layer;
}

void add_layer(const AdapterFolder& folder, const Layer& layer, const LoraOptions& ours,
               const Layout& layout, DType dtype, std::vector<TensorToWrite>& tensors) {
  add_matrices(folder, layer, ours, layout, dtype, tensors);
  if (ours.dora) add_magnitude(folder, layer, layout, dtype, tensors);
}

}  // namespace tapestry::interop
