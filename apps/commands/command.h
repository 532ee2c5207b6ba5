// The commands of the binary. The file of a command holds its arguments, its options and what it
// does, and exports its row of the table.
#pragma once

#include <CLI/App.hpp>  // the rest of CLI.hpp is compiled in cli.cpp alone
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tapestry {

class Ranks;

/// Runs a command with the values of its options. Writes results to stdout and everything else to
/// stderr. Returns the exit code or throws Error.
using Run = std::function<int()>;

/// What the program gives to its commands.
struct Program {
  Ranks& ranks;        ///< finds the other ranks, if there are any
  const char* commit;  ///< of the sources
  Run run = {};        ///< what the command line asks for, once it is parsed
};

struct Command {
  /// `options` adds options, whose values become members of Arguments; `run` does the work with
  /// them. Both may ask for the program.
  template <class Arguments, class... P, class... Q>
  Command(const char* name, const char* meaning, void (*options)(CLI::App&, Arguments&, P&...),
          int (*run)(const Arguments&, Q&...))
      : name(name), meaning(meaning), add([=](CLI::App& app, Program& program) -> Run {
          const auto arguments = std::make_shared<Arguments>();
          if constexpr (sizeof...(P) == 0) options(app, *arguments);
          if constexpr (sizeof...(P) == 1) options(app, *arguments, program);
          [[maybe_unused]] Program* const of = &program;
          return [=] {
            if constexpr (sizeof...(Q) == 0) return run(*arguments);
            if constexpr (sizeof...(Q) == 1) return run(*arguments, *of);
          };
        }) {}

  const char* name;
  const char* meaning;  ///< one line
  /// Adds the options to `app`. Returns what runs with their values.
  std::function<Run(CLI::App& app, Program& program)> add;
};

/// All commands, in the order of the help.
std::span<const Command* const> commands();

/// " did you mean 'train'?" if one of the names is similar to the word, both without leading
/// dashes; else "".
std::string suggestion(const std::string& word, std::vector<std::string> names,
                       const char* dashes = "");

}  // namespace tapestry
