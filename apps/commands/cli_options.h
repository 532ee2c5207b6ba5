// Options that several subcommands have.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "apps/commands/commands.h"

namespace tapestry {

/// The command to run, once the command line is parsed.
using Run = std::function<int()>;

/// The names of an option's values.
template <class Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto& value : values) {
    if constexpr (std::is_enum_v<std::decay_t<decltype(value)>>) {
      names.emplace_back(name_of(value));
    } else {
      names.emplace_back(value);
    }
  }
  return names;
}

/// Adds --device and --threads.
void add_compute(CLI::App* command, ComputeArguments& compute);

/// The subcommands that answer with a trained model.
void add_filters(CLI::App& app, Run& run);

}  // namespace tapestry
