#include "apps/commands/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>

#include "apps/commands/command.h"
#include "apps/commands/options.h"
#include "apps/config/reference.h"
#include "apps/run/outputs/progress_line.h"
#include "apps/run/program_facts.h"
#include "apps/run/ranks.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/cpu/vector_target.h"
#include "core/device_runtime.h"

namespace tapestry {
namespace {

/// The error message for a command line that cannot be parsed.
std::string explain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  const CLI::App& asked = given.empty() ? app : *given.front();
  if (const std::string word = argc > 1 ? argv[1] : "";
      given.empty() && !word.empty() && !word.starts_with('-')) {
    return concat("unknown command '", word, "';", suggestion(word, names_of(commands())));
  }
  for (const std::string& rest : asked.remaining()) {
    const size_t dashes = rest.find_first_not_of('-');
    if (dashes == 0 || dashes == std::string::npos) continue;
    const std::string word = rest.substr(0, rest.find('='));
    std::vector<std::string> names;
    for (const CLI::Option* option : asked.get_options()) {
      const std::vector<std::string>& own = option->get_lnames();
      names.insert(names.end(), own.begin(), own.end());
    }
    return concat("unknown option '", word, "'",
                  given.empty() ? "" : concat(" of ", asked.get_name()), ';',
                  suggestion(word.substr(dashes), names, "--"));
  }
  return error.what();
}

/// The sentence with a full stop, which a missing suggestion and CLI11 leave out.
std::string ended(std::string sentence) {
  if (sentence.ends_with(';')) sentence.pop_back();
  return sentence.ends_with('.') || sentence.ends_with('?') ? sentence : sentence + '.';
}

// Facts for a bug report.
std::string version_text(const char* commit) {
  std::string text;
  for (const auto& [name, value] : program_facts(commit)) {
    text += concat(text.empty() ? "" : "\n", name, name == "tapestry" ? " " : ": ", value);
  }
  return text;
}

/// Results that did not reach stdout (a full disk, say) are a failure like any other.
bool stdout_is_written() { return std::cout.flush().good() && std::fflush(stdout) == 0; }

// With TAPESTRY_GPU_TIMES in the environment, prints the GPU's times on stderr.
int run_timed(const Run& run) {
  if (std::getenv("TAPESTRY_GPU_TIMES") == nullptr) return run();
  time_kernels();
  const int code = run();
  const std::vector<KernelTime> times = kernel_times();
  double total = 0;
  for (const KernelTime& time : times) total += time.milliseconds;
  fmt::print(stderr, "{:>12} {:>9} {:>7}  on the GPU, without CUDA graphs\n", "ms", "launches",
             "share");
  for (const KernelTime& time : times) {
    fmt::print(stderr, "{:>12.3f} {:>9} {:>6.2f}%  {}\n", time.milliseconds, time.launches,
               total > 0 ? 100 * time.milliseconds / total : 0, time.name);
  }
  fmt::print(stderr, "{:>12.3f}  in total\n", total);
  return code;
}

// Turns exceptions into messages and exit codes. Ends the other ranks after a failure of this one,
// which would leave them waiting.
int run_guarded(const Run& run, Ranks& ranks) {
  const auto report = [&](const std::string& message, ErrorKind kind) {
    return ranks.fail(message, static_cast<int>(kind));
  };
  try {
    const ProgressDisplay display;
    const int code = run_timed(run);
    if (!stdout_is_written()) return report("cannot write to stdout.", ErrorKind::kRuntime);
    ranks.leave();
    return code;
  } catch (const Error& error) {
    return report(error.what(), error.kind());
  } catch (const std::bad_alloc&) {
    return report("out of memory.", ErrorKind::kOutOfMemory);
  } catch (const std::filesystem::filesystem_error& error) {
    const bool name = error.code() == std::errc::filename_too_long;
    return report(concat("[file] ", error.path1().string(), ": ", error.code().message(), '.'),
                  name ? ErrorKind::kData : ErrorKind::kRuntime);
  } catch (const std::exception& error) {
    return report(error.what(), ErrorKind::kRuntime);
  }
}

}  // namespace

int run_command_line(int argc, char** argv, const char* commit) {
  CLI::App app{"Tapestry trains Transformers from a YAML file.", "tapestry"};
  app.require_subcommand(1);
  app.set_version_flag("--version", [commit] { return version_text(commit); });
  app.set_help_all_flag("--help-all", "the help of every command; train --help-all: every key");
  Ranks ranks;
  Program program{.ranks = ranks, .commit = commit};
  for (const Command* command : commands()) {
    CLI::App* const options = app.add_subcommand(command->name, command->meaning);
    options->callback([&program, run = command->add(*options, program)] { program.run = run; });
  }
  if (argc <= 1) {
    std::cout << app.help();
    return stdout_is_written() ? 0 : static_cast<int>(ErrorKind::kRuntime);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForAllHelp& all) {
    app.exit(all);
    const std::vector<CLI::App*> asked = app.get_subcommands();
    const bool keys = !asked.empty() && asked[0]->get_option_no_throw("--help-keys") != nullptr;
    if (!keys) return 0;
    program.run = [] {
      std::cout << "\nKeys of a config:\n\n" << describe_all_keys();
      return 0;
    };
  } catch (const CLI::Success& success) {  // --help, --version, --help-keys
    if (!program.run) return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return ranks.fail(concat(ended(explain(app, error, argc, argv)), " See tapestry --help."),
                      static_cast<int>(ErrorKind::kConfig));
  }
  const auto run = [&program] {
    limit_vector_target();
    return program.run();
  };
  return run_guarded(run, ranks);
}

}  // namespace tapestry
