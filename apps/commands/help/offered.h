// What the command line offers, read from its commands and from the keys of a config: completions
// and manual pages are made of it.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace tapestry {

/// An option, or an argument, which has no dashes.
struct OfferedOption {
  std::vector<std::string> names;         ///< "-h", "--help"; of an argument "config"
  std::string value;                      ///< "TEXT", "INT:at least 1"; empty: it takes none
  std::vector<std::string> choices = {};  ///< of its value
  std::string meaning = {};
  std::string preset = {};
  std::string group = {};  ///< the heading that it stands under
  bool required = false;
  bool repeats = false;

  bool takes_number() const { return value.starts_with("INT") || value.starts_with("FLOAT"); }
};

struct OfferedCommand {
  std::string name, meaning;
  std::vector<OfferedOption> arguments, options;

  /// Has arguments section.key=value.
  bool takes_keys() const;
};

/// The commands of the program, in their order.
std::vector<OfferedCommand> offered_commands(const CLI::App& program);
/// The options that stand before a command.
std::vector<OfferedOption> offered_options(const CLI::App& app);

/// A key of a config that can be given on a command line.
struct OfferedKey {
  std::string name;
  std::vector<std::string> choices;
};
/// In the order of a config; those of data.valid and data.test stand behind data.train's.
const std::vector<OfferedKey>& offered_keys();

}  // namespace tapestry
