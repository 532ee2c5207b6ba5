// The adapters of a folder of PEFT, layer by layer; private to apps/interop/peft/.
#pragma once

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/checkpoint/safetensors.h"
#include "apps/interop/architectures/tensor_names.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/peft/peft.h"

namespace tapestry::interop {

/// A folder of adapters.
struct AdapterFolder {
  std::string path;
  Json config;
  TensorReader reader;
  TensorNames names;
  int64_t rank = 0;
  bool dora = false;    ///< the lengths of rows are tensors of their own
  bool stable = false;  ///< an adapter is divided by the root of its rank

  /// The factor of B A x.
  double scale(double alpha, int64_t of_rank) const {
    const auto r = static_cast<double>(of_rank);
    return alpha / (stable ? std::sqrt(r) : r);
  }
};

/// The module of theirs, as the file names it, whose tensor A that is.
std::string module_with(const AdapterFolder& folder, const std::string& a);
/// lora_alpha, whatever it is.
Json alpha_of(const AdapterFolder& folder);
/// Adds a reason if rank_pattern or alpha_pattern is no object of positive numbers.
void check_pattern(const Json& config, const char* key, double most, Reasons& reasons);

/// True if target_modules and their like let a module of theirs have an adapter; nothing if they
/// cannot be told, such as expressions that only Python has.
std::optional<bool> is_adapted(const Json& config, const std::string& module);

/// True if the folder has a tensor of this shape; if not, adds a reason.
bool has_shape(const AdapterFolder& folder, const std::string& name, const Shape& shape,
               Reasons& reasons);

/// An adapter of a layer of ours: parts of theirs with the same A share one.
struct Layer {
  struct Down {
    std::string name;
    int64_t rank, first;  ///< rows in ours, and the first of them
  };
  struct Part {
    size_t down;
    double scale;
  };
  int64_t rank() const { return downs.empty() ? 0 : downs.back().first + downs.back().rank; }

  TensorPair weight;
  std::vector<Down> downs = {};                 ///< different matrices A, one below the other
  std::vector<std::optional<Part>> parts = {};  ///< none: a part has no adapter
};

/// The adapters of a layer of ours, if it has any; the names of their tensors are `used`.
std::optional<Layer> layer_of(const AdapterFolder& folder, const TensorPair& weight,
                              std::set<std::string>& used, Reasons& reasons);

/// Adds our A and B of a layer, and the lengths of its rows if they have some: those of a part
/// without an adapter are the ones that they have.
void add_layer(const AdapterFolder& folder, const Layer& layer, const LoraOptions& ours,
               const Layout& layout, DType dtype, std::vector<TensorToWrite>& tensors);

}  // namespace tapestry::interop
