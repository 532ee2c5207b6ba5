// Every key of a config as the binders know it: each task is read with every choice, and what is
// then known, refused or has another default is kept.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/config/reader.h"

namespace tapestry {

struct TaskKind;

/// What one reading knows: the keys in their order. Those of data.valid and data.test are
/// data.train's.
using KeyReading = std::vector<ConfigKey>;

/// The key, or nullptr.
const ConfigKey* find_key(const KeyReading& reading, const std::string& name);
/// The key where it has an effect.
const ConfigKey* find_applying(const KeyReading& reading, const std::string& name);

/// A reading that differs from its task's first in one key.
struct KeyVariant {
  std::string key;    ///< full name
  std::string value;  ///< of a choice; empty for a probe
  KeyReading reading;
  std::optional<size_t> outer = {};  ///< the variant that it differs from instead
};

/// A task of a kind of examples, with every other choice of each key.
struct KeyFamily {
  std::string name;  ///< "classification of images"
  const TaskKind* task;
  KeyReading base;
  std::vector<KeyVariant> variants = {};
};

/// All tasks, in the order of their table.
const std::vector<KeyFamily>& key_families();
/// Names of all keys, in the order of a config.
const std::vector<std::string>& ordered_key_names();

/// The values of a choice beside which a key has an effect, and those beside which it has none.
struct ChoiceValues {
  std::set<std::string> with, without;
};

/// What a family knows of a key.
struct KeySight {
  const ConfigKey* key = nullptr;               ///< where it has an effect; nullptr: nowhere
  std::string probe = {};                       ///< "with tsv", "without path"
  std::map<std::string, ChoiceValues> choices;  ///< by the key that has the choice
  std::string preset = {};                      ///< its default, and others beside some choices
};
KeySight sight_of(const KeyFamily& family, const std::string& name);

/// "data.train" of "data.train.tsv", "" of "seed".
std::string section_of_key(const std::string& name);
/// "tsv" of "data.train.tsv".
std::string last_part_of_key(const std::string& name);

/// "name: adam" of a key in the same section, else "training.optimizer.name: adam".
std::string short_key_name(const std::string& of, const std::string& beside);

}  // namespace tapestry
