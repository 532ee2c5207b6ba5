// The reference of the config's keys, which the binders themselves yield: every task is read with
// every choice, and what is then known, refused or has another default is written down.
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
  std::string tasks;    ///< "all", or those that have it, and what it needs beside it

  bool is_section() const { return type.starts_with("section"); }
};

/// Every key of every task, in the order of a config. The keys of data.valid are data.train's.
const std::vector<KeyEntry>& key_entries();

/// What is known of a key, or the keys of a section. Throws Error(kConfig) with the nearest name.
std::string describe_key(const std::string& name);
/// The sections, with what each is about.
std::string describe_sections();
/// Every key in a line or two, section by section.
std::string describe_all_keys();
/// The same as a page: configs/README.md.
std::string key_reference_markdown();

}  // namespace tapestry
