#include "apps/commands/help/manual.h"

#include <map>

#include "apps/config/reference.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

// Text as man(7) takes it: no requests, hyphens that can be searched for and copied.
std::string plain(const std::string& text) {
  std::string out;
  bool begins = true;  // of a line
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    begins = c == '\n';
  }
  return out;
}

std::string bold(const std::string& text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + plain(text) + "\\fR"; }

// Names of pages and headings are in capitals.
std::string capitals(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return plain(text);
}

std::string heading(const std::string& text) { return concat(".SH \"", capitals(text), "\"\n"); }

std::string head(const std::string& name, int section, const std::string& meaning) {
  return concat(".TH ", capitals(name), ' ', section, " \"\" \"Tapestry\"\n", heading("Name"),
                plain(name), " \\- ", plain(meaning), '\n');
}

// A term and what is said of it.
std::string tagged(const std::string& term, const std::string& meaning) {
  return concat(".TP\n", term, '\n', plain(meaning), '\n');
}

std::string term_of(const OfferedOption& option) {
  std::string term;
  for (const std::string& name : option.names) term += concat(term.empty() ? "" : ", ", bold(name));
  if (!option.value.empty() && option.names.front().starts_with('-')) {
    term += ' ' + italic(option.value);
  }
  return term;
}

std::string meaning_of(const OfferedOption& option) {
  std::string text = option.meaning;
  if (option.required) text += " (required)";
  if (option.repeats) text += " (may be given several times)";
  return option.preset.empty() ? text : concat(text, " (default: ", option.preset, ')');
}

// Options under their headings, in the order in which the headings come first.
std::string options_of(const std::vector<OfferedOption>& options) {
  std::vector<std::string> groups;
  std::map<std::string, std::string> texts;
  for (const OfferedOption& option : options) {
    if (!texts.contains(option.group)) groups.push_back(option.group);
    texts[option.group] += tagged(term_of(option), meaning_of(option));
  }
  std::string all;
  for (const std::string& group : groups) all += heading(group) + texts[group];
  return all;
}

std::string page_of(const OfferedCommand& command) {
  std::string page = head("tapestry-" + command.name, 1, command.meaning);
  page +=
      heading("Synopsis") + concat(bold("tapestry " + command.name), " [", italic("options"), ']');
  for (const OfferedOption& argument : command.arguments) {
    const std::string name = concat(italic(argument.names.front()), argument.repeats ? " ..." : "");
    page += argument.required ? ' ' + name : " [" + name + ']';
  }
  page += '\n';
  if (!command.arguments.empty()) page += heading("Arguments");
  for (const OfferedOption& argument : command.arguments) {
    page += tagged(term_of(argument), meaning_of(argument));
  }
  page += options_of(command.options);
  return page + heading("See also") + "tapestry(1), tapestry\\-config(5)\n";
}

// What a process says by its end, and what it reads besides its command line.
constexpr std::pair<const char*, const char*> kExits[] = {
    {"0", "Done."},
    {"1", "A failure while it ran."},
    {"2", "A command line or a config that is wrong."},
    {"3", "Data that cannot be read."},
    {"4", "A training that diverged."},
    {"5", "Memory that is not there."},
    {"130, 143", "Ended by SIGINT or SIGTERM; a training has written a checkpoint."}};
constexpr std::pair<const char*, const char*> kVariables[] = {
    {"TAPESTRY_BFLOAT16",
     "How a CPU multiplies bfloat16: amx, avx512_bf16, bfmmla, float32, or amx_emulated and "
     "bfmmla_emulated, which have the bits of those on any processor. Without it what fits the "
     "processor."},
    {"TAPESTRY_INT8",
     "How a CPU multiplies int8: amx, avx512_vnni, avx_vnni, i8mm, dotprod, plain, amx_emulated or "
     "i8mm_emulated. All give the same bits. Without it the first one that the processor has."},
    {"TAPESTRY_VECTORS", "Limits all vector kernels, so that processors give the same bits: AVX2."},
    {"TAPESTRY_GPU_TIMES", "Prints at the end where the time of a GPU went."},
    {"OPENBLAS_CORETYPE", "The kernels of OpenBLAS, which otherwise fit the processor."}};

std::string program_page(const CLI::App& program, const std::vector<OfferedCommand>& commands) {
  std::string page = head("tapestry", 1, "trains Transformers from a YAML file");
  page += heading("Synopsis") +
          concat(bold("tapestry"), ' ', italic("command"), " [", italic("options"), "] ...\n");
  page += heading("Commands");
  std::string also;
  for (const OfferedCommand& command : commands) {
    page += tagged(bold(command.name), command.meaning);
    also += concat("tapestry\\-", plain(command.name), "(1), ");
  }
  page += options_of(offered_options(program)) + heading("Exit status");
  for (const auto& [code, meaning] : kExits) page += tagged(bold(code), meaning);
  page += heading("Environment");
  for (const auto& [name, meaning] : kVariables) page += tagged(bold(name), meaning);
  return page + heading("See also") + also + "tapestry\\-config(5)\n";
}

std::string config_page() {
  std::string page = head("tapestry-config", 5, "the keys of a config of tapestry");
  page += heading("Description") +
          plain(
              "A config is a YAML file. Each of its keys can also be given on the command line, "
              "where it wins over the file: tapestry train config.yaml training.max_steps=500.") +
          '\n' + heading("Keys");
  for (const KeyEntry& entry : key_entries()) {
    if (entry.is_section()) {
      page += concat(".SS \"", plain(entry.name), "\"\n", plain(entry.meaning), '\n');
      continue;
    }
    std::string kind = entry.type;
    if (!entry.bounds.empty()) kind += (entry.type == "choice" ? ": " : ", ") + entry.bounds;
    if (!entry.preset.empty()) {
      kind += (entry.preset == "required" ? "; " : "; default: ") + entry.preset;
    }
    page += tagged(bold(entry.name), entry.meaning);
    if (!entry.tasks.empty()) kind += "; tasks: " + entry.tasks;
    page += concat(".br\n", plain(kind), '\n');
  }
  return page + heading("See also") + "tapestry(1), tapestry\\-train(1)\n";
}

}  // namespace

std::vector<ManualPage> manual_pages(const CLI::App& program) {
  const std::vector<OfferedCommand> commands = offered_commands(program);
  std::vector<ManualPage> pages = {{"man1/tapestry.1", program_page(program, commands)},
                                   {"man5/tapestry-config.5", config_page()}};
  for (const OfferedCommand& command : commands) {
    pages.push_back({concat("man1/tapestry-", command.name, ".1"), page_of(command)});
  }
  return pages;
}

}  // namespace tapestry
