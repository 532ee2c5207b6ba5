// Rules about keys that go together: the frame of rules.cpp and rules_training.cpp.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/sections.h"

namespace tapestry {

/// Rules about the keys of one section (and of `others`): check(OptionReport).
class Rules {
 public:
  explicit Rules(const KeyReport& report) : report_(report) {}

  /// `keys`: full names of the members that are not called as their keys in `section`.
  template <class Check>
  void of(const std::string& section, const std::vector<std::string>& others,
          const std::map<std::string, std::string>& keys, Check check) {
    if (!report_.is_sound(section)) return;
    for (const std::string& other : others) {
      if (!report_.is_sound(other) || broken_.contains(other)) return;
    }
    check(OptionReport([&](const std::string& member, const std::string& problem) {
      broken_.insert(section);
      const auto found = keys.find(member);
      report_.complain(found != keys.end() ? found->second
                       : member.empty()    ? section
                                           : section + '.' + member,
                       problem);
    }));
  }

 private:
  const KeyReport& report_;
  std::set<std::string> broken_;  ///< sections with a problem
};

/// The key that limits the length of an example, and its value.
inline std::pair<const char*, int64_t> longest_example(const Config& config) {
  if (examples_of(config).joined) return {"data.block_size", config.data.block_size};
  return {"data.max_length", config.data.corpus.max_length};
}

/// Those of training.*; with `is_new` also those that a config of an earlier version may break.
void check_training(Rules& rules, const Config& config, bool is_new);

}  // namespace tapestry
