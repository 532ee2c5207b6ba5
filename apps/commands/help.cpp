// tapestry help: the options of a command, or the keys of a config.
#include <iostream>

#include "apps/commands/command.h"
#include "apps/commands/options.h"
#include "apps/config/reference.h"
#include "apps/config/schema.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

struct HelpArguments {
  const CLI::App* program = nullptr;  ///< with all commands
  std::string word = {};  ///< a command, a key of a config or a section; empty: all commands
  bool markdown = false;  ///< every key, as the page configs/README.md
  bool schema = false;    ///< every key, as the JSON Schema configs/schema.json
};

// App::help() would be that of the command that was given, which is `help`.
std::string text_of(const CLI::App& asked, const std::string& name) {
  return asked.get_formatter()->make_help(&asked, name, CLI::AppFormatMode::Normal);
}

std::string answer_of(const HelpArguments& arguments) {
  const CLI::App& app = *arguments.program;
  if (arguments.markdown) return key_reference_markdown();
  if (arguments.schema) return config_schema();
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
  app.add_option("word", arguments.word,
                 "command, or key or section of a config, such as training.optimizer");
  app.add_flag("--markdown", arguments.markdown, "all keys, as the page configs/README.md");
  app.add_flag("--schema", arguments.schema,
               "all keys, as the JSON Schema configs/schema.json, which editors know");
}

}  // namespace

extern const Command kHelp("help", "Explain a command, or the keys of a config", add_help,
                           run_help);

}  // namespace tapestry
