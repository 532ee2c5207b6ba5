// Hugging Face's classes as GGUF files have them: tables of tensors and of keys, which import and
// export both read.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {

/// A pair of a file whose key begins with the name of the class.
struct GgufKey {
  enum Kind { kInteger, kReal, kFlag };

  const char* key;  ///< behind the name and a point
  /// Our key, which a row of the class has; without a row a key of config.json. Null: it follows
  /// from the others.
  const char* means;
  Kind kind;
  bool needed;  ///< files without it are refused
  /// The value of a model; unset: the file lacks the key.
  std::optional<double> (*value)(const ModelFacts& facts);
};

class GgufFile;

struct GgufClass {
  const char* name;  ///< general.architecture
  const Architecture& architecture;
  std::span<const TensorRow> tensors;
  std::span<const GgufKey> keys;
  HiddenAct act;
  bool no_bias = false;  ///< their engine reads none of attention, though the class may have one
  bool windows = false;  ///< it has some, as refuse_more() says
  std::optional<HiddenAct> or_act = {};  ///< another activation, which they compute as `act`
  /// Types of rope scaling that their engine computes; none: it does not rotate.
  std::vector<RopeScalingType> scalings = {RopeScalingType::kLinear, RopeScalingType::kYarn};
  bool longrope_by_tensors = false;      ///< whatever rope.scaling.type says
  std::vector<const char*> unused = {};  ///< keys that their engine reads without an effect
  /// What their engine has fixed beside the tables; may be null.
  void (*refuse_more)(const Config& config, std::vector<std::string>& reasons) = nullptr;
  /// Adds to a config.json what follows from other keys over there; may be null.
  void (*complete)(const GgufFile& file, Json& config) = nullptr;

  std::string full_key(const char* key) const { return concat(name, '.', key); }
  bool rotates() const { return !scalings.empty(); }
};

std::span<const GgufClass> gguf_classes();
/// Null if no class has this name.
const GgufClass* find_gguf_class(const std::string& name);

/// The class with the tensors of its GGUF files.
Architecture gguf_architecture(const GgufClass& one);

}  // namespace tapestry::interop
