// tapestry help: the options of a command, or the keys of a config.
#include <filesystem>
#include <iostream>

#include "apps/commands/command.h"
#include "apps/commands/help/completion.h"
#include "apps/commands/help/manual.h"
#include "apps/commands/options.h"
#include "apps/config/reference.h"
#include "apps/config/schema.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "data/files/files.h"

namespace tapestry {
namespace {

struct HelpArguments {
  const CLI::App* program = nullptr;  ///< with all commands
  std::string word = {};        ///< a command, a key of a config or a section; empty: all commands
  bool markdown = false;        ///< every key, as the page configs/README.md
  bool schema = false;          ///< every key, as the JSON Schema configs/schema.json
  std::string completion = {};  ///< a shell, whose script is written
  std::string share = {};       ///< a folder, for manual pages and the scripts of all shells
};

// App::help() would be that of the command that was given, which is `help`.
std::string text_of(const CLI::App& asked, const std::string& name) {
  return asked.get_formatter()->make_help(&asked, name, CLI::AppFormatMode::Normal);
}

// The files that an installation has in its folder share.
std::string write_share(const CLI::App& app, const std::string& folder) {
  size_t count = 0;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::filesystem::create_directories(path.parent_path());
    write_file(path.string(), text);
    ++count;
  };
  for (const ManualPage& page : manual_pages(app)) write("man/" + page.file, page.text);
  for (const Shell& shell : shells()) write(shell.file, shell.script(app));
  return concat(count, " files in ", folder, '\n');
}

std::string answer_of(const HelpArguments& arguments) {
  const CLI::App& app = *arguments.program;
  if (arguments.markdown) return key_reference_markdown();
  if (arguments.schema) {
    if (arguments.word.empty()) return config_schema();
    if (arguments.word == "serve") return serve_schema();
    fail(ErrorKind::kConfig, "[help] --schema is of all keys, or with `serve` of its file, got '",
         printable(arguments.word), "'.");
  }
  if (!arguments.share.empty()) return write_share(app, arguments.share);
  for (const Shell& shell : shells()) {
    if (arguments.completion == shell.name) return shell.script(app);
  }
  if (arguments.word.empty()) {
    return concat(text_of(app, app.get_name()),
                  "\ntapestry help COMMAND, tapestry COMMAND --help: the options of a command\n\n",
                  describe_sections());
  }
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() != arguments.word) continue;
    return text_of(*command, concat(app.get_name(), ' ', arguments.word));
  }
  try {
    return describe_key(arguments.word);
  } catch (const Error& error) {  // no such key
    const std::string command = suggestion(arguments.word, names_of(commands()));
    if (command.empty()) throw;
    fail(error.kind(), error.what(), " Of the commands,", command);
  }
}

int run_help(const HelpArguments& arguments) {
  std::cout << answer_of(arguments);
  return 0;
}

void add_help(CLI::App& app, HelpArguments& arguments) {
  arguments.program = app.get_parent();
  const std::vector<CLI::Option*> ways = {
      app.add_option("word", arguments.word,
                     "command, or key or section of a config, such as training.optimizer"),
      app.add_flag("--markdown", arguments.markdown, "all keys, as the page configs/README.md"),
      app.add_flag("--schema", arguments.schema,
                   "all keys, as the JSON Schema configs/schema.json, which editors know; with the "
                   "word serve those of its file"),
      app.add_option("--completion", arguments.completion,
                     "the script by which a shell completes commands, options and keys: "
                     "source <(tapestry help --completion bash)")
          ->check(CLI::IsMember(names_of(shells()))),
      app.add_option("--share", arguments.share,
                     "writes manual pages and the scripts of all shells into this folder, as an "
                     "installation has them below share")};
  for (size_t i = 0; i < ways.size(); ++i) {
    for (size_t j = i + 1; j < ways.size(); ++j) {
      const bool schema_of_a_word = i == 0 && j == 2;
      if (!schema_of_a_word) ways[i]->excludes(ways[j]);
    }
  }
}

}  // namespace

extern const Command kHelp("help", "Explain a command, or the keys of a config", add_help,
                           run_help);

}  // namespace tapestry
