#include "apps/commands/help/completion.h"

#include <functional>

#include "core/base/text.h"

namespace tapestry {
namespace {

std::string names_of_all(const std::vector<OfferedOption>& options) {
  std::string names;
  for (const OfferedOption& option : options) {
    for (const std::string& name : option.names) names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

std::string commands_taking_keys(const std::vector<OfferedCommand>& commands) {
  std::string names;
  for (const OfferedCommand& command : commands) {
    if (command.takes_keys()) names += (names.empty() ? "" : " ") + command.name;
  }
  return names;
}

std::string head_of(const char* shell) {
  return concat("# Completion of tapestry in ", shell, ". Written by: tapestry help --completion ",
                shell, '\n');
}

// `text` with a backslash before each of these characters.
std::string escaped(const std::string& text, const char* characters) {
  std::string out;
  for (const char c : text) {
    if (std::string(characters).find(c) != std::string::npos) out += '\\';
    out += c;
  }
  return out;
}

// In single quotes, which bash and zsh cannot escape inside.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

// ---- bash

// What a value may be, as the script below reads it: words, "-" for a number, "" for a file.
std::string bash_values(const OfferedOption& option) {
  if (!option.choices.empty()) return join(option.choices, " ");
  return option.takes_number() ? "-" : "";
}

// bash cuts words at '=' and replaces only what is behind it.
constexpr const char* kBashFunctions = R"(
_tapestry_reply() {  # word, candidates
  local before=
  [[ $COMP_WORDBREAKS == *=* ]] || before=$given
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$2" -- "$1")
}
_tapestry_reply_keys() {  # word: the next part of each key that begins with it
  local key rest
  local -A parts=()
  for key in $_tapestry_keys; do
    [[ $key == "$1"* ]] || continue
    rest=${key:${#1}}
    [[ $rest == *.* ]] && parts["$1${rest%%.*}."]=1 || parts["$key="]=1
  done
  COMPREPLY=("${!parts[@]}")
  compopt -o nospace 2>/dev/null
}
_tapestry() {
  local line=${COMP_LINE:0:COMP_POINT} given= options= valued= values= arguments=0 keys= first= words i
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  local last=$((${#words[@]} - 1))
  local word=${words[last]} option=${words[last - 1]} command=${words[1]}
  COMPREPLY=()
  if ((last <= 1)); then _tapestry_reply "$word" "$_tapestry_commands"; return; fi
  _tapestry_command
  if [[ $word == --*=* ]]; then option=${word%%=*} given=${word%%=*}= word=${word#*=}; fi
  if [[ " $valued " == *" $option "* ]]; then
    _tapestry_values
    if [[ $values == - ]]; then compopt +o default 2>/dev/null
    elif [[ -n $values ]]; then _tapestry_reply "$word" "$values"; fi
    return
  fi
  if [[ $word == -* ]]; then _tapestry_reply "$word" "$options"; return; fi
  for ((i = 2; i < last; ++i)); do
    if [[ ${words[i]} != -* ]]; then arguments=$((arguments + 1))
    elif [[ " $valued " == *" ${words[i]} "* ]]; then i=$((i + 1)); fi
  done
  if ((arguments == 0)); then _tapestry_reply "$word" "$first"
  elif [[ -n $keys && $word == *=* ]]; then
    given=${word%%=*}=
    _tapestry_choices "${word%%=*}"
    [[ -z $values ]] || _tapestry_reply "${word#*=}" "$values"
  elif [[ -n $keys ]]; then _tapestry_reply_keys "$word"; fi
}
complete -o default -F _tapestry tapestry
)";

std::string bash_script(const CLI::App& program) {
  const std::vector<OfferedCommand> commands = offered_commands(program);
  std::string names = names_of_all(offered_options(program)), options, values;
  for (const OfferedCommand& command : commands) {
    names += " " + command.name;
    std::string valued;
    for (const OfferedOption& option : command.options) {
      if (option.value.empty()) continue;
      for (const std::string& name : option.names) valued += (valued.empty() ? "" : " ") + name;
      const std::string text = bash_values(option);
      if (text.empty()) continue;
      std::string patterns;
      for (const std::string& name : option.names) {
        patterns += concat(patterns.empty() ? "" : "|", quoted(command.name + ' ' + name));
      }
      values += concat("    ", patterns, ") values=", quoted(text), " ;;\n");
    }
    options += concat("    ", command.name, ") options=", quoted(names_of_all(command.options)),
                      " valued=", quoted(valued), command.takes_keys() ? " keys=1" : "");
    if (!command.arguments.empty() && !command.arguments.front().choices.empty()) {
      options += " first=" + quoted(join(command.arguments.front().choices, " "));
    }
    options += " ;;\n";
  }
  std::string keys, choices;
  for (const OfferedKey& key : offered_keys()) {
    keys += (keys.empty() ? "" : " ") + key.name;
    if (key.choices.empty()) continue;
    choices += concat("    ", key.name, ") values=", quoted(join(key.choices, " ")), " ;;\n");
  }
  return concat(head_of("bash"), "_tapestry_commands=", quoted(names),
                "\n_tapestry_keys=", quoted(keys),
                "\n_tapestry_command() {  # what the command takes\n  case $command in\n", options,
                "  esac\n}\n_tapestry_values() {  # what the option takes\n",
                "  case \"$command $option\" in\n", values,
                "  esac\n}\n_tapestry_choices() {  # what the key $1 takes\n  case $1 in\n",
                choices, "  esac\n}", kBashFunctions);
}

// ---- zsh

// '*--model=[checkpoint or run folder]:TEXT:_files'
std::string zsh_option(const OfferedOption& option) {
  std::string text;
  for (const std::string& name : option.names) {
    const bool lng = name.starts_with("--");
    const std::string value = option.value.empty() ? "" : lng ? "=" : "+";
    const std::string kind = option.value.substr(0, option.value.find(':'));
    const std::string action = !option.choices.empty() ? concat('(', join(option.choices, " "), ')')
                               : option.takes_number() ? " "
                                                       : "_files";
    const std::string spec =
        concat(option.repeats ? "*" : "", name, value, '[', escaped(option.meaning, "[]:\\"), ']',
               option.value.empty() ? "" : concat(':', kind, ':', action));
    text += concat(" \\\n      ", quoted(spec));
  }
  return text;
}

std::string zsh_argument(const OfferedOption& argument) {
  const std::string& name = argument.names.front();
  const std::string action = name == "overrides" ? "_tapestry_key"
                             : argument.choices.empty()
                                 ? "_files"
                                 : concat('(', join(argument.choices, " "), ')');
  return concat(" \\\n      ",
                quoted(concat(argument.repeats ? "*" : "1", ':', name, ':', action)));
}

std::string zsh_script(const CLI::App& program) {
  std::string described, cases;
  for (const OfferedCommand& command : offered_commands(program)) {
    described += concat("    ", quoted(command.name + ':' + escaped(command.meaning, ":\\")), '\n');
    cases += concat("    (", command.name, ") _arguments");
    for (const OfferedOption& option : command.options) cases += zsh_option(option);
    for (const OfferedOption& argument : command.arguments) cases += zsh_argument(argument);
    cases += " ;;\n";
  }
  std::string keys, choices;
  for (const OfferedKey& key : offered_keys()) {
    keys += concat(keys.empty() ? "" : " ", key.name);
    if (key.choices.empty()) continue;
    choices += concat("      (", key.name, ") compadd -- ", join(key.choices, " "), " ;;\n");
  }
  return concat(
      "#compdef tapestry\n", head_of("zsh"), "_tapestry_key() {\n",
      "  if [[ $PREFIX == *=* ]]; then\n    local key=${PREFIX%%=*}\n    compset -P '*='\n",
      "    case $key in\n", choices, "      (*) _files ;;\n    esac\n  else\n",
      "    compadd -q -S = -- ", keys, "\n  fi\n}\n_tapestry() {\n  local -a commands=(\n",
      described, "  )\n  if ((CURRENT == 2)); then\n",
      "    _describe command commands\n    return\n  fi\n",
      "  local command=$words[2]\n  shift words\n  ((CURRENT--))\n  case $command in\n", cases,
      "  esac\n}\n_tapestry \"$@\"\n");
}

// ---- fish

// In single quotes, inside which fish knows backslashes.
std::string fish_quoted(const std::string& text) {
  return concat('\'', escaped(text, "'\\"), '\'');
}

std::string fish_option(const std::string& command, const OfferedOption& option) {
  std::string text =
      concat("complete -c tapestry -n ", fish_quoted("__fish_seen_subcommand_from " + command));
  for (const std::string& name : option.names) {
    const bool lng = name.starts_with("--");
    text += concat(lng ? " -l " : " -s ", name.substr(lng ? 2 : 1));
  }
  if (!option.choices.empty()) {
    text += concat(" -x -a ", fish_quoted(join(option.choices, " ")));
  } else if (!option.value.empty()) {
    text += option.takes_number() ? " -x" : " -r -F";
  }
  return concat(text, " -d ", fish_quoted(option.meaning), '\n');
}

std::string fish_script(const CLI::App& program) {
  const std::vector<OfferedCommand> commands = offered_commands(program);
  std::string keys, choices;
  for (const OfferedKey& key : offered_keys()) {
    keys += concat(" ", key.name, '=');
    if (key.choices.empty()) continue;
    choices += concat("    case '", key.name, "=*'\n      printf '%s\\n'");
    for (const std::string& choice : key.choices) choices += concat(' ', key.name, '=', choice);
    choices += '\n';
  }
  std::string script =
      concat(head_of("fish"), "function __tapestry_keys\n  switch (commandline -ct)\n", choices,
             "    case '*=*'\n      set -l word (commandline -ct)\n      set -l key (string split "
             "-m 1 = -- $word)[1]\n"
             "      for path in (__fish_complete_path (string split -m 1 = -- $word)[2])\n"
             "        echo $key=$path\n      end\n    case '*'\n      printf '%s\\n'",
             keys, "\n  end\nend\ncomplete -c tapestry -f\n");
  for (const OfferedCommand& command : commands) {
    script += concat("complete -c tapestry -n __fish_use_subcommand -a ", command.name, " -d ",
                     fish_quoted(command.meaning), '\n');
    for (const OfferedOption& option : command.options) {
      script += fish_option(command.name, option);
    }
    for (const OfferedOption& argument : command.arguments) {
      // Files of a key are not those of the word: __tapestry_keys has them.
      const std::string seen =
          fish_quoted(concat("__fish_seen_subcommand_from ", command.name,
                             "; and not string match -q \"*=*\" -- ", "(commandline -ct)"));
      const std::string words =
          argument.choices.empty() ? " -F" : " -a " + fish_quoted(join(argument.choices, " "));
      script += concat("complete -c tapestry -n ", seen, words, '\n');
    }
  }
  return concat(script, "complete -c tapestry -n '__fish_seen_subcommand_from ",
                commands_taking_keys(commands), "' -a '(__tapestry_keys)'\n");
}

constexpr Shell kShells[] = {{"bash", "bash-completion/completions/tapestry", bash_script},
                             {"zsh", "zsh/vendor-completions/_tapestry", zsh_script},
                             {"fish", "fish/vendor_completions.d/tapestry.fish", fish_script}};

}  // namespace

std::span<const Shell> shells() { return kShells; }

}  // namespace tapestry
