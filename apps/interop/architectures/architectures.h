// The models of Hugging Face's Transformers that ours can be: for each a table of its tensors and a
// table of the keys of its config.json, which import and export both read.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/interop/architectures/tensor_table.h"

namespace tapestry::interop {

using Json = nlohmann::ordered_json;
/// All mismatches, reported at once.
using Reasons = std::vector<std::string>;

/// A key of theirs and the key of our `model` section that means the same.
struct KeyRow {
  const char* theirs;
  const char* ours;
  const char* fallback;      ///< JSON: the class's default for an absent key
  int64_t more = 0;          ///< theirs is so much larger
  bool soft = false;         ///< only training reads it, so that it may differ from another row's
  bool may_be_null = false;  ///< null is not the class's default, but ours
};

/// A key of theirs that has one value in every model of ours.
struct FixedKey {
  const char* key;
  const char* value;     ///< JSON
  const char* fallback;  ///< JSON, as above
};

/// A key of our `model` section that has one value in every model of theirs.
struct FixedOption {
  const char* key;
  const char* value;
  bool can_be_folded = false;  ///< ours may have another value, which the tensors take in
};

/// The value of a key of our `model` section that turns its feature off, for classes without the
/// feature.
struct OffOption {
  const char* key;
  const char* value;
  /// Another key and its value, without which a model does not have the key; null: always.
  const char* with = nullptr;
  const char* with_value = nullptr;
};
/// Null if the classes themselves must determine the key.
const OffOption* off_option(const std::string& key);
std::span<const OffOption> off_options();

/// A key of theirs that none of our keys determines, and the class's default for it.
struct ClassDefault {
  const char* key;
  const char* value;  ///< JSON
};

struct ModelClass {
  const char* task;  ///< as in a config
  const char* name;  ///< of several for one task the first is written
};

/// An encoder-decoder, whichever of the two tasks trains it.
inline std::vector<ModelClass> both_tasks(const char* name) {
  return {{"translation", name}, {"denoising", name}};
}

/// A part of a tensor's name that has another spelling in some files.
struct Renaming {
  const char* from;
  const char* to;
};

struct Architecture {
  const char* name;         ///< model_type
  const char* prefix = "";  ///< of the tensors of the model without its head
  ModelType type = ModelType::kDecoder;
  std::vector<ModelClass> classes;
  const char* headless;  ///< the class of a folder that has no head
  std::span<const KeyRow> keys = {};
  std::span<const FixedKey> fixed = {};
  std::span<const FixedOption> options = {};
  std::span<const ClassDefault> ids;  ///< vocab_size and the ids of special tokens
  std::span<const TensorRow> tensors = {};
  std::span<const TensorRow> own_tensors = {};  ///< where it shares `tensors` with others
  /// Buffers, copies of tied tensors and parts that ours have no use for; `*` for any characters.
  std::vector<const char*> skipped = {};
  /// Copies under which a tied tensor may be stored instead.
  std::vector<std::pair<const char*, const char*>> tied = {};
  /// A tensor, and a second name under which older releases look for it.
  std::vector<std::pair<const char*, const char*>> written_twice = {};
  std::vector<Renaming> renamings = {};
  bool may_lack_biases = false;           ///< as ours say; norms have none
  bool counts_from_padding = false;       ///< positions begin behind the id of the padding, 1
  bool gated = false;                     ///< hidden_act names the activation of a gate
  const char* only_activation = nullptr;  ///< of ours, if the class knows only one
  /// Dropouts that ours do not have: only a training reads them.
  std::vector<const char*> only_trained = {};
  bool sinusoids = false;                          ///< their stream has sines first, then cosines
  std::vector<const char*> stored_sinusoids = {};  ///< tables of them that a file may hold
  bool writes_sinusoids = false;
  /// Keys of our `model` section that the code below looks after, beside is_carried_otherwise().
  std::vector<const char*> carried = {};
  bool has_nope = false;   ///< with layer_types: layers without positions
  bool may_untie = false;  ///< one table for both sides, and perhaps another in the classifier
  /// Code for what the tables cannot express.
  void (*read_more)(const Json& theirs, Json& model, Reasons& reasons) = nullptr;
  void (*write_more)(const ModelFacts& facts, Json& theirs) = nullptr;
  void (*refuse_more)(const Config& config, Reasons& reasons) = nullptr;  ///< of an export
};

/// All of its tensors.
std::vector<TensorPair> tensor_pairs(const Architecture& architecture, const ModelFacts& facts);

/// Keys of our `model` section that read_more and write_more look after, or only training reads.
bool is_carried_otherwise(const std::string& key);

const std::vector<const Architecture*>& architectures();
/// Null if the name is unknown.
const Architecture* find_architecture(const std::string& name);

/// The facts as the architecture's files have them.
ModelFacts facts_for(const Architecture& architecture, const Config& config, const Counts& counts);

/// Those that other code than the tables asks for.
extern const Architecture kGpt2, kLlama, kQwen2, kQwen3, kMarian;
extern const Architecture kGemma, kGemma2, kGemma3, kOlmo2, kSmolLm3, kGptNeox;
extern const Architecture kPhi, kPhi3, kCohere, kCohere2;

/// Our name of an activation of theirs, or null; and back.
const char* our_activation(const std::string& theirs, bool gated);
const char* their_activation(const std::string& ours);

}  // namespace tapestry::interop
