// A strict reader of nested options. One function of read() calls describes a section: it names the
// known keys with their bounds and their meaning, checks the values, and yields the resolved text
// and the reference of the keys, so no list of keys stands elsewhere. An absent key leaves its
// variable at the default, the struct's initial value. So does a refused value: nothing computes
// with it.
//
//   void bind(ConfigSection& s, ScheduleOptions& options) {
//     s.read("warmup_steps", options.warmup_steps, "Updates until the full rate.", at_least(0));
//   }
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/config/tree.h"
#include "core/base/error.h"

namespace tapestry {

/// Bounds of a number; `text` describes them in messages: "must be <text>".
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
ConfigRange above_up_to(double low, double high);       ///< (low, high]

/// A choice of read_choice: a name in the file and its value.
template <class E>
struct ConfigChoice {
  const char* name;
  E value;
};

/// A key as one reading met it.
struct ConfigKey {
  std::string name;                  ///< "training.optimizer.betas"
  std::string type;                  ///< "integer", "list of numbers", "section", ...
  ConfigRange range = {};            ///< of a number, or of each in a list
  std::vector<std::string> choices;  ///< the names it accepts; empty: any value of its type
  std::string meaning;               ///< one sentence or a few
  std::string value = {};            ///< empty for sections and keys that do not apply
  bool applies = true;               ///< false: it has no effect beside the other values
  bool required = false;
};

class ConfigSession;

/// One map of the configuration, while it is read.
class ConfigSection {
 public:
  /// True when the file or an override gives this key a value. Does not make the key known.
  bool has(const std::string& key) const;
  /// True if the key is in the file, with or without a value.
  bool given(const std::string& key) const { return find(key) != nullptr; }
  /// Keys that exclude each other, in groups that go together. An override with a key of one group
  /// replaces the file's section that has keys of another one: all keys of the file count as
  /// absent.
  void replace_by_overrides(const std::vector<std::vector<std::string>>& groups);

  /// Makes a key known that is read only if it is given.
  void know(const std::string& key) { take(key); }

  /// Reads a bool, integer, floating value, string, or list of floating values or strings.
  template <class T>
  void read(const std::string& key, T& value, const char* meaning, const ConfigRange& range = {});

  /// read() if `applies`. Otherwise the key is known but must not be given: it would have no effect
  /// `why`, as in "with name: adam".
  template <class T>
  void read_if(bool applies, const std::string& why, const std::string& key, T& value,
               const char* meaning, const ConfigRange& range = {}) {
    if (applies) {
      read(key, value, meaning, range);
    } else {
      note(key, type_name<T>(), meaning, range);
      refuse(key, why);
    }
  }

  /// read(), and an error when the key is absent.
  template <class T>
  void require(const std::string& key, T& value, const char* meaning,
               const ConfigRange& range = {}) {
    demand(key);
    read(key, value, meaning, range);
  }

  /// Reads one of the named values; all apply only "with task: clm", if that is given.
  template <class E>
  void read_choice(const std::string& key, E& value,
                   const std::vector<ConfigChoice<std::type_identity_t<E>>>& choices,
                   const char* meaning, const std::string& with = "");

  /// read_choice() if `applies`, as read_if().
  template <class E>
  void read_choice_if(bool applies, const std::string& why, const std::string& key, E& value,
                      const std::vector<ConfigChoice<std::type_identity_t<E>>>& choices,
                      const char* meaning) {
    if (applies) {
      read_choice(key, value, choices, meaning);
    } else {
      note(key, "choice", meaning, {}, names_of(choices));
      refuse(key, why);
    }
  }

  /// Reads a column of a file: its number or its name. An empty one is refused.
  void read_column(const std::string& key, std::string& value, const char* meaning);

  /// Reads the path of a file that must exist and be readable (see ConfigReadOptions), and makes it
  /// absolute: relative to the file that names it, or to the working directory on a command line.
  /// An empty path stays empty: no file.
  void read_input_file(const std::string& key, std::string& path, const char* meaning);
  /// The same for a file of a corpus, or a pattern of several (data/files/file_pattern.h).
  void read_input_files(const std::string& key, std::string& path, const char* meaning);
  /// A list of texts that need not be given: an empty one is not written back.
  void read_optional_list(const std::string& key, std::vector<std::string>& values,
                          const char* meaning);
  /// read_column() and the others if `applies`, as read_if(). An empty value is not written
  /// back.
  void read_column_if(bool applies, const std::string& why, const std::string& key,
                      std::string& value, const char* meaning);
  void read_input_file_if(bool applies, const std::string& why, const std::string& key,
                          std::string& path, const char* meaning);
  void read_input_files_if(bool applies, const std::string& why, const std::string& key,
                           std::string& path, const char* meaning);
  /// Reads the path of a folder to write to; relative paths start at the working directory.
  void read_output_path(const std::string& key, std::string& path, const char* meaning);
  /// The same for an optional folder: an empty path is not written back.
  void read_optional_path(const std::string& key, std::string& path, const char* meaning);
  /// read_optional_path() if `applies`, as read_if().
  void read_optional_path_if(bool applies, const std::string& why, const std::string& key,
                             std::string& path, const char* meaning) {
    if (applies) {
      read_optional_path(key, path, meaning);
    } else {
      note(key, "folder", meaning);
      refuse(key, why);
    }
  }

  /// Reads the map under `key` with `bind`; absent or empty, every key keeps its default.
  void section(const std::string& key, const char* meaning,
               const std::function<void(ConfigSection&)>& bind);

  /// section() if `applies`, as read_if().
  void section_if(bool applies, const std::string& why, const std::string& key, const char* meaning,
                  const std::function<void(ConfigSection&)>& bind) {
    if (applies) {
      section(key, meaning, bind);
    } else {
      note(key, "section", meaning);
      know_section(key);
      refuse(key, why);
    }
  }

  /// Reads a list of maps, or one map as a list of one, with bind(ConfigSection&, T&).
  template <class T, class Bind>
  void section_list(const std::string& key, std::vector<T>& values, const char* meaning,
                    Bind&& bind);

  /// Reports an error at the value of `key` (at the section if the key is absent): "<where>:
  /// <text>".
  template <class... Parts>
  void complain(const std::string& key, const Parts&... parts) {
    complain_at(location_of(key), concat(parts...));
  }
  /// Complains of a key given by its full name, in whatever section.
  void complain_of(const std::string& full_name, const std::string& text);
  /// True unless a value of this section was refused ("" is the top level): then the rest of the
  /// section is not what the user wrote, and further errors about it would mislead.
  bool is_sound(const std::string& section) const;
  /// True if files that are named must exist: for a training, not for a model that is used.
  bool checks_files() const;
  /// Complains when `key` is absent, naming the section.
  void demand(const std::string& key);
  /// "training.max_steps" for "max_steps" in the section "training".
  std::string full_name(const std::string& key) const;

 private:
  /// Advice about unknown keys never names a section as the place of a key.
  void know_section(const std::string& key);
  friend class ConfigSession;
  ConfigSection(ConfigSession& session, const ConfigNode& node, std::string path);

  /// The name of a variable's type in the reference.
  template <class T>
  static const char* type_name();
  template <class E>
  static std::vector<std::string> names_of(const std::vector<ConfigChoice<E>>& choices) {
    std::vector<std::string> names;
    names.reserve(choices.size());
    for (const ConfigChoice<E>& choice : choices) names.emplace_back(choice.name);
    return names;
  }

  /// Writes the key into the reference, not applying until it is put().
  void note(const std::string& key, const char* type, const char* meaning,
            const ConfigRange& range = {}, std::vector<std::string> choices = {});
  /// The entry of `key`, or nullptr: also where overrides replaced it.
  const ConfigEntry* find(const std::string& key) const;
  /// The value of `key` or nullptr; from here on the key is known.
  const ConfigNode* take(const std::string& key);
  const ConfigLocation& location_of(const std::string& key) const;
  void complain_at(const ConfigLocation& location, const std::string& text);
  void refuse(const std::string& key, const std::string& why);
  void mistyped(const std::string& key, const char* expected, const ConfigNode& got);
  bool in_range(const std::string& key, double value, const std::string& text,
                const ConfigRange& range);
  // True if an optional key shall be read; otherwise it is known, or refused.
  bool reads_optional(bool applies, const std::string& why, const std::string& key,
                      const char* kind, bool has_value, const char* meaning);
  void read_integer(const std::string& key, int64_t& value, int64_t low, int64_t high,
                    const ConfigRange& range);
  void read_double(const std::string& key, double& value, const ConfigRange& range);
  void read_bool(const std::string& key, bool& value);
  void read_string(const std::string& key, std::string& value);
  void read_list(const std::string& key, std::vector<double>& values, const ConfigRange& range);
  void read_list(const std::string& key, std::vector<std::string>& values);
  void read_folder(const std::string& key, std::string& path);
  /// `problem` says why a path cannot be read; "" if it can.
  void read_file(const std::string& key, std::string& path,
                 std::string (*problem)(const std::string& path));
  /// Index of the given name; `current` if the key is absent or wrong.
  size_t read_choice_index(const std::string& key, const std::vector<std::string>& names,
                           size_t current, const std::string& with);
  /// The maps under `key`; null pointers mean "absent, keep defaults".
  std::vector<const ConfigNode*> take_maps(const std::string& key, size_t current_size);
  void bind_child(const ConfigNode* node, const std::string& path, ConfigNode& output,
                  const std::function<void(ConfigSection&)>& bind);
  void put(const std::string& key, ConfigNode value);
  void finish();

  ConfigSession& session_;
  const ConfigNode& node_;
  std::string path_;
  std::vector<std::string> known_;
  std::set<std::string> demanded_;
  bool only_overrides_ = false;  ///< the file's keys count as absent
  ConfigNode output_ = ConfigNode::map();
};

struct ConfigReadOptions {
  bool require_keys = true;        ///< a demanded key that is absent is an error
  bool check_files = true;         ///< input files must exist and be readable
  bool refuse_unused = true;       ///< a key that has no effect beside the others is an error ...
  bool of_overrides_only = false;  ///< ... if it is an override
  bool complain = true;            ///< false: errors are ignored, and nothing is thrown
  std::vector<ConfigKey>* keys = nullptr;  ///< takes every key that was met, in its order
};

/// Reads `root` with `bind`, adds to `problems` (for example of the overrides) and throws one
/// Error(kConfig) that lists all of them in file order. Returns the resolved tree, with every key
/// that bind read in its order.
ConfigNode read_config(const ConfigNode& root, const std::function<void(ConfigSection&)>& bind,
                       ConfigReadOptions options = {}, std::vector<ConfigProblem> problems = {});

// Implementation of the templates.

template <class T>
const char* ConfigSection::type_name() {
  if constexpr (std::same_as<T, bool>) {
    return "true or false";
  } else if constexpr (std::same_as<T, std::string>) {
    return "text";
  } else if constexpr (std::integral<T>) {
    return "integer";
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    return "list of texts";
  } else if constexpr (std::same_as<T, std::vector<double>>) {
    return "list of numbers";
  } else {
    static_assert(std::same_as<T, double>, "options hold bool, integers, double, string or lists");
    return "number";
  }
}

template <class T>
void ConfigSection::read(const std::string& key, T& value, const char* meaning,
                         const ConfigRange& range) {
  note(key, type_name<T>(), meaning, range);
  if constexpr (std::same_as<T, bool>) {
    read_bool(key, value);
  } else if constexpr (std::same_as<T, std::string>) {
    read_string(key, value);
  } else if constexpr (std::integral<T>) {
    // Keeps sums and products of two sizes within 64 bits. A seed is not a size.
    constexpr auto kWidest = std::is_signed_v<T> ? int64_t{1} << 31  //
                                                 : std::numeric_limits<int64_t>::max();
    constexpr int64_t kLow =
        std::is_signed_v<T> ? std::max(int64_t{std::numeric_limits<T>::min()}, -kWidest) : 0;
    constexpr int64_t kHigh = std::cmp_less(std::numeric_limits<T>::max(), kWidest)
                                  ? static_cast<int64_t>(std::numeric_limits<T>::max())
                                  : kWidest;
    auto wide = static_cast<int64_t>(value);
    read_integer(key, wide, kLow, kHigh, range);
    value = static_cast<T>(wide);
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    read_list(key, value);
  } else if constexpr (std::same_as<T, std::vector<double>>) {
    read_list(key, value, range);
  } else {
    read_double(key, value, range);
  }
}

template <class E>
void ConfigSection::read_choice(const std::string& key, E& value,
                                const std::vector<ConfigChoice<std::type_identity_t<E>>>& choices,
                                const char* meaning, const std::string& with) {
  const std::vector<std::string> names = names_of(choices);
  note(key, "choice", meaning, {}, names);
  size_t current = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].value == value) current = i;
  }
  value = choices[read_choice_index(key, names, current, with)].value;
}

template <class T, class Bind>
void ConfigSection::section_list(const std::string& key, std::vector<T>& values,
                                 const char* meaning, Bind&& bind) {
  note(key, "section, or a list of sections", meaning);
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
