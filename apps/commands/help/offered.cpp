#include "apps/commands/help/offered.h"

#include <algorithm>

#include "apps/config/key_families.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

// "a", "b" of "TEXT:{a,b}", which is what CLI11 and options without a check of it write.
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return choices;
  std::istringstream list(type.substr(open + 1, close - open - 1));
  for (std::string choice; std::getline(list, choice, ',');) choices.push_back(choice);
  return choices;
}

OfferedOption offered_option(const CLI::Option& option) {
  OfferedOption offered;
  for (const std::string& name : option.get_snames()) offered.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) offered.names.push_back("--" + name);
  if (offered.names.empty()) offered.names = {option.get_name()};
  if (option.get_type_size() != 0) offered.value = option.get_type_name();
  offered.choices = choices_in(offered.value);
  offered.meaning = option.get_description();
  offered.preset = option.get_default_str();
  offered.group = option.get_group();
  offered.required = option.get_required();
  offered.repeats = option.get_items_expected_max() > 1;
  return offered;
}

std::vector<OfferedOption> offered_of(const CLI::App& app, bool arguments) {
  std::vector<OfferedOption> list;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() == arguments) list.push_back(offered_option(*option));
  }
  return list;
}

// All values that some task takes.
std::vector<std::string> choices_of_key(const std::string& name, std::string& type) {
  std::vector<std::string> choices;
  for (const KeyFamily& family : key_families()) {
    const KeySight sight = sight_of(family, name);
    if (sight.key == nullptr) continue;
    type = sight.key->type;
    for (const std::string& choice : sight.key->choices) {
      if (std::ranges::find(choices, choice) == choices.end()) choices.push_back(choice);
    }
  }
  if (type == "true or false" && choices.empty()) return {"true", "false"};
  return choices;
}

std::vector<OfferedKey> find_keys() {
  std::vector<OfferedKey> keys, of_corpus;
  const std::string train = "data.train.";
  const auto add_corpora = [&] {  // the same keys
    for (const char* corpus : {"data.valid.", "data.test."}) {
      for (const OfferedKey& key : of_corpus) {
        keys.push_back({corpus + key.name.substr(train.size()), key.choices});
      }
    }
    of_corpus.clear();
  };
  for (const std::string& name : ordered_key_names()) {
    std::string type;
    const std::vector<std::string> choices = choices_of_key(name, type);
    if (type.starts_with("section")) continue;
    if (!name.starts_with(train)) add_corpora();
    keys.push_back({name, choices});
    if (name.starts_with(train)) of_corpus.push_back(keys.back());
  }
  add_corpora();
  return keys;
}

}  // namespace

bool OfferedCommand::takes_keys() const {
  return std::ranges::any_of(
      arguments, [](const OfferedOption& one) { return one.names.front() == "overrides"; });
}

std::vector<OfferedOption> offered_options(const CLI::App& app) { return offered_of(app, false); }

std::vector<OfferedCommand> offered_commands(const CLI::App& program) {
  std::vector<OfferedCommand> commands;
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands(nullptr)) {
    commands.push_back({command->get_name(), command->get_description(), offered_of(*command, true),
                        offered_of(*command, false)});
    names.push_back(command->get_name());
  }
  // `help` explains them all.
  for (OfferedCommand& command : commands) {
    if (command.name == "help") command.arguments.front().choices = names;
  }
  return commands;
}

const std::vector<OfferedKey>& offered_keys() {
  static const std::vector<OfferedKey> keys = find_keys();
  return keys;
}

}  // namespace tapestry
