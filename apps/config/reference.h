// The reference of the config's keys, from the binders themselves: every task is read with every
// choice, and the keys that are then known, refused or have another default are written down.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tapestry {

/// A key, or the section that holds keys.
struct KeyEntry {
  std::string name;  ///< "training.optimizer.betas"
  std::string type;
  std::string preset;   ///< the default, and other ones of some tasks or choices; "required"
  std::string bounds;   ///< or the choices
  std::string meaning;  ///< plain sentences
  std::string tasks;    ///< "all", or the tasks that have the key, with the keys that it needs;
                        ///< empty: none, it is of the file of `tapestry serve`

  bool is_section() const { return type.starts_with("section"); }
};

/// Every key of every task, in the order of a config, then those of serve. The keys of data.valid
/// are data.train's.
const std::vector<KeyEntry>& key_entries();

/// The description of a key, or of the keys of a section. Throws Error(kConfig) with the nearest
/// name.
std::string describe_key(const std::string& name);
/// The sections with their meanings.
std::string describe_sections();
/// Every key in a line or two, section by section.
std::string describe_all_keys();
/// All keys as the page configs/README.md.
std::string key_reference_markdown();

}  // namespace tapestry
