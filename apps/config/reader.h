// A strict reader of nested options. One function of read() calls describes a section: it names the
// known keys, checks the values, and yields the resolved text, so no list of keys stands elsewhere.
// A key that is absent leaves its variable as it is: the default is the struct's initial value.
//
//   void bind(ConfigSection& s, ScheduleOptions& options) {
//     s.read("warmup_steps", options.warmup_steps, at_least(0));
//   }
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/config/tree.h"
#include "core/error.h"

namespace tapestry {

/// Bounds of a number; `text` says them in messages: "must be <text>".
struct ConfigRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
  std::string text;

  bool contains(double value) const {
    return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
  }
};

ConfigRange positive();
ConfigRange at_least(double low);
ConfigRange between(double low, double high);           ///< [low, high]
ConfigRange from_up_to_below(double low, double high);  ///< [low, high)

/// What read_choice accepts: a name in the file and the value it stands for.
template <class E>
struct ConfigChoice {
  const char* name;
  E value;
};

class ConfigSession;

/// One map of the configuration while it is read.
class ConfigSection {
 public:
  /// True when the file or an override gives this key a value. Does not make the key known.
  bool has(const std::string& key) const;
  /// True when the key stands there, with or without a value.
  bool given(const std::string& key) const { return node_.find(key) != nullptr; }
  /// Makes a key known that is read only where it is given.
  void know(const std::string& key) { take(key); }

  /// Reads a bool, integer, floating value, string, or list of floating values or strings.
  template <class T>
  void read(const std::string& key, T& value, const ConfigRange& range = {});

  /// read() where `applies`. Else the key is known but must not be given: it would have no effect
  /// `why`, as in "with name: adam".
  template <class T>
  void read_if(bool applies, const std::string& why, const std::string& key, T& value,
               const ConfigRange& range = {}) {
    if (applies) {
      read(key, value, range);
    } else {
      refuse(key, why);
    }
  }

  /// read(), and an error when the key is absent.
  template <class T>
  void require(const std::string& key, T& value, const ConfigRange& range = {}) {
    demand(key);
    read(key, value, range);
  }

  /// Reads one of the named values.
  template <class E>
  void read_choice(const std::string& key, E& value,
                   const std::vector<ConfigChoice<std::type_identity_t<E>>>& choices);

  /// read_choice() where `applies`, as read_if().
  template <class E>
  void read_choice_if(bool applies, const std::string& why, const std::string& key, E& value,
                      const std::vector<ConfigChoice<std::type_identity_t<E>>>& choices) {
    if (applies) {
      read_choice(key, value, choices);
    } else {
      refuse(key, why);
    }
  }

  /// Reads the path of a file that must exist and be readable (see ConfigReadOptions), and makes it
  /// absolute: relative to the file that names it, or to the working directory on a command line.
  /// An empty path stays empty and means none.
  void read_input_file(const std::string& key, std::string& path);
  /// Reads the path of a folder to write to; relative paths start at the working directory.
  void read_output_path(const std::string& key, std::string& path);

  /// Reads the map under `key` with `bind`; absent or empty, every key keeps its default.
  void section(const std::string& key, const std::function<void(ConfigSection&)>& bind);

  /// section() where `applies`, as read_if().
  void section_if(bool applies, const std::string& why, const std::string& key,
                  const std::function<void(ConfigSection&)>& bind) {
    if (applies) {
      section(key, bind);
    } else {
      refuse(key, why);
    }
  }

  /// Reads a list of maps, or one map as a list of one, with bind(ConfigSection&, T&).
  template <class T, class Bind>
  void section_list(const std::string& key, std::vector<T>& values, Bind&& bind);

  /// Complains at the value of `key` (at the section where the key is absent): "<where>: <text>".
  template <class... Parts>
  void complain(const std::string& key, const Parts&... parts) {
    complain_at(location_of(key), concat(parts...));
  }
  /// How many complaints there are so far, in all sections.
  size_t problems() const;
  /// Complains when `key` is absent, naming the section.
  void demand(const std::string& key);
  /// "training.max_steps" for "max_steps" in the section "training".
  std::string full_name(const std::string& key) const;

 private:
  friend class ConfigSession;
  ConfigSection(ConfigSession& session, const ConfigNode& node, std::string path);

  /// The value of `key` or nullptr; from here on the key is known.
  const ConfigNode* take(const std::string& key);
  const ConfigLocation& location_of(const std::string& key) const;
  void complain_at(const ConfigLocation& location, const std::string& text);
  void refuse(const std::string& key, const std::string& why);
  void mistyped(const std::string& key, const char* expected, const ConfigNode& got);
  void check_range(const std::string& key, double value, const std::string& text,
                   const ConfigRange& range);
  bool read_integer(const std::string& key, int64_t& value, int64_t low, int64_t high,
                    const ConfigRange& range);
  bool read_double(const std::string& key, double& value, const ConfigRange& range);
  void read_bool(const std::string& key, bool& value);
  void read_string(const std::string& key, std::string& value);
  void read_list(const std::string& key, std::vector<double>& values, const ConfigRange& range);
  void read_list(const std::string& key, std::vector<std::string>& values);
  /// Index of the name given, `current` where the key is absent or wrong.
  size_t read_choice_index(const std::string& key, const std::vector<std::string>& names,
                           size_t current);
  /// The maps under `key`: empty pointers stand for "absent, keep defaults".
  std::vector<const ConfigNode*> take_maps(const std::string& key, size_t current_size);
  void bind_child(const ConfigNode* node, const std::string& path, ConfigNode& output,
                  const std::function<void(ConfigSection&)>& bind);
  void put(const std::string& key, ConfigNode value);
  void finish();

  ConfigSession& session_;
  const ConfigNode& node_;
  std::string path_;
  std::vector<std::string> known_;
  ConfigNode output_ = ConfigNode::map();
};

struct ConfigReadOptions {
  bool require_keys = true;   ///< a demanded key that is absent is an error
  bool check_files = true;    ///< input files must exist and be readable
  bool refuse_unused = true;  ///< a key that has no effect beside the others is an error
};

/// Reads `root` with `bind`, adds to `problems` (for example of the overrides) and throws one
/// Error(kConfig) that lists all of them in file order. Returns the resolved tree, with every key
/// that bind read in its order.
ConfigNode read_config(const ConfigNode& root, const std::function<void(ConfigSection&)>& bind,
                       ConfigReadOptions options = {}, std::vector<ConfigProblem> problems = {});

// Implementation of the templates.

template <class T>
void ConfigSection::read(const std::string& key, T& value, const ConfigRange& range) {
  if constexpr (std::same_as<T, bool>) {
    read_bool(key, value);
  } else if constexpr (std::same_as<T, std::string>) {
    read_string(key, value);
  } else if constexpr (std::integral<T>) {
    constexpr auto kWidest = std::numeric_limits<int64_t>::max();
    constexpr int64_t kLow = std::is_signed_v<T> ? int64_t{std::numeric_limits<T>::min()} : 0;
    constexpr int64_t kHigh = std::cmp_less(std::numeric_limits<T>::max(), kWidest)
                                  ? static_cast<int64_t>(std::numeric_limits<T>::max())
                                  : kWidest;
    auto wide = static_cast<int64_t>(value);
    if (read_integer(key, wide, kLow, kHigh, range)) value = static_cast<T>(wide);
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    read_list(key, value);
  } else if constexpr (std::same_as<T, std::vector<double>>) {
    read_list(key, value, range);
  } else {
    static_assert(std::same_as<T, double>, "options hold bool, integers, double, string or lists");
    read_double(key, value, range);
  }
}

template <class E>
void ConfigSection::read_choice(const std::string& key, E& value,
                                const std::vector<ConfigChoice<std::type_identity_t<E>>>& choices) {
  std::vector<std::string> names;
  size_t current = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    names.emplace_back(choices[i].name);
    if (choices[i].value == value) current = i;
  }
  value = choices[read_choice_index(key, names, current)].value;
}

template <class T, class Bind>
void ConfigSection::section_list(const std::string& key, std::vector<T>& values, Bind&& bind) {
  const std::vector<const ConfigNode*> maps = take_maps(key, values.size());
  if (maps.size() != values.size() || (!maps.empty() && maps[0] != nullptr)) {
    values.assign(maps.size(), T{});
  }
  ConfigNode list = ConfigNode::list();
  for (size_t i = 0; i < maps.size(); ++i) {
    list.items.emplace_back();
    const std::string name = maps.size() == 1 ? full_name(key) : concat(full_name(key), '.', i);
    bind_child(maps[i], name, list.items.back(),
               [&](ConfigSection& section) { bind(section, values[i]); });
  }
  put(key, list.items.size() == 1 ? std::move(list.items[0]) : std::move(list));
}

}  // namespace tapestry
