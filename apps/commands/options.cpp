#include "apps/commands/options.h"

#include <algorithm>
#include <optional>
#include <set>

#include "apps/commands/number_bounds.h"
#include "apps/config/key_families.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

constexpr const char* kSearchGroup = "Search (the model's config decides where nothing is given)";

// The name of the option of a key.
std::string option_of(const std::string& key) {
  if (key == "num_beams") return "--beam-size";
  if (key == "epsilon_cutoff") return "--epsilon";
  if (key == "mbr_samples") return "--mbr";
  std::string option = "--" + key;
  std::ranges::replace(option, '_', '-');
  return option;
}

void add_switch(CLI::App& app, SearchArguments& search, const ConfigKey& key) {
  const auto set = [&search, name = key.name](const std::string& option, const char* value) {
    search.overrides.push_back({option, name, value});
  };
  const std::string yes = option_of(key.name), no = "--no-" + yes.substr(2);
  app.add_flag_callback(
         yes, [=] { set(yes, "true"); }, key.meaning)
      ->group(kSearchGroup);
  app.add_flag_callback(
         no, [=] { set(no, "false"); }, concat("turns ", yes, " off"))
      ->group(kSearchGroup);
}

// As CLI11 writes what its own checks allow.
std::string type_of(const ConfigKey& key) {
  const std::string kind = key.type == "integer" ? "INT" : key.type == "number" ? "FLOAT" : "TEXT";
  if (!key.choices.empty()) return concat(kind, ":{", join(key.choices, ","), '}');
  return key.range.text.empty() ? kind : concat(kind, ':', key.range.text);
}

CLI::Option* add_value(CLI::App& app, SearchArguments& search, const ConfigKey& key,
                       const std::string& meaning) {
  const auto set = [&search, option = option_of(key.name),
                    name = key.name](const std::string& value) {
    double number = 1;
    if (name == "temperature" && parse_yaml_double(value, number) && number == 0) {
      // The limit of small ones.
      search.overrides.push_back({concat(option, " 0 as --no-do-sample"), "do_sample", "false"});
    } else {
      search.overrides.push_back({option, name, value});
    }
  };
  return app.add_option_function<std::string>(option_of(key.name), set, meaning)
      ->type_name(type_of(key));
}

constexpr const char* kFormatHelp =
    "the matrices of the model (on a CPU), in 4, 2, 1 or 0.56 bytes a number; with int4, tables "
    "and classifiers have 1; by default float32, or what training.quantize was";

std::optional<WeightFormat> format_of(const std::string& word) {
  for (const WeightFormat format : kWeightFormats) {
    if (word == name_of(format)) return format;
  }
  return std::nullopt;
}

// Reads a share of an ensemble, or a format.
void read_weights(const std::vector<std::string>& words, ModelChoice& models) {
  for (const std::string& word : words) {
    double share = 0;
    if (const auto format = format_of(word)) {
      models.format = *format;
    } else if (CLI::detail::lexical_cast(word, share)) {
      models.weights.push_back(share);
    } else {
      throw CLI::ValidationError("--weights",
                                 concat("expected ", join(names_of(kWeightFormats), ", "),
                                        " or numbers, got '", word, "'"));
    }
  }
}

}  // namespace

void check_given_once(const char* who, const std::vector<std::string>& keys) {
  std::set<std::string> seen;
  for (const std::string& text : keys) {
    const std::string key = text.substr(0, text.find('='));
    if (seen.insert(key).second) continue;
    fail(ErrorKind::kConfig, '[', who, "] ", key, " is given twice, the second time as '", text,
         "'.");
  }
}

void add_config(CLI::App& app, ConfigArguments& arguments) {
  app.add_option("config", arguments.config, "YAML file")->required();
  app.add_option("overrides", arguments.overrides, "section.key=value, winning over the file");
}

void add_compute(CLI::App& app, ComputeArguments& arguments) {
  app.add_option("--device", arguments.device, "what computes; a GPU by its number")
      ->type_name("TEXT:{auto,cpu,cuda,cuda:N}")
      ->capture_default_str();
  app.add_option("--threads", arguments.threads, "CPU threads; 0: all cores")
      ->check(number<int>(between(0, 1024)))
      ->capture_default_str();
}

CLI::Option* add_format(CLI::App& app, WeightChoice& format) {
  return app
      .add_option_function<std::string>(
          "--weights", [&format](const std::string& word) { format = *format_of(word); },
          kFormatHelp)
      ->check(CLI::IsMember(names_of(kWeightFormats)));
}

void add_weights(CLI::App& app, ModelChoice& models) {
  app.add_option_function<std::vector<std::string>>(
         "--weights",
         [&models](const std::vector<std::string>& words) { read_weights(words, models); },
         concat(kFormatHelp, "; of several models also their shares, as in .6,.4 (default: equal)"))
      ->delimiter(',')
      ->type_name(concat("TEXT:{", join(names_of(kWeightFormats), ","), '}'));
}

CLI::Option* add_key_option(CLI::App& app, std::vector<KeyOverride>& overrides,
                            const ConfigKey& key) {
  const std::string name = last_part_of_key(key.name), option = option_of(name);
  const auto set = [&overrides, option, name](const std::string& value) {
    overrides.push_back({option, name, value});
  };
  return app.add_option_function<std::string>(option, set, key.meaning)
      ->type_name(type_of(key))
      ->default_str(key.value);
}

void add_search(CLI::App& app, SearchArguments& arguments,
                const std::vector<std::string>& without_effect) {
  for (const ConfigKey& key : generation_keys()) {
    if (std::ranges::find(without_effect, key.name) != without_effect.end()) continue;
    if (key.type == "true or false") {
      add_switch(app, arguments, key);
      continue;
    }
    const char* const limit = key.name == "temperature" ? " 0: the most probable token." : "";
    add_value(app, arguments, key, key.meaning + limit)->group(kSearchGroup);
  }
  app.add_option("--n-best", arguments.n_best,
                 "results of each line, best first: of beams, or with --do-sample so many draws")
      ->check(number<int64_t>(at_least(1)))
      ->capture_default_str()
      ->group(kSearchGroup);
  app.add_option("--seed", arguments.seed, "of the draws")
      ->check(number<int64_t>(at_least(0)))
      ->group(kSearchGroup);
}

CLI::Option* add_search_key(CLI::App& app, SearchArguments& arguments, const std::string& key,
                            const char* meaning) {
  const std::vector<ConfigKey> keys = generation_keys();
  return add_value(app, arguments, *std::ranges::find(keys, key, &ConfigKey::name), meaning);
}

std::vector<CLI::Option*> add_languages(CLI::App& app, SearchArguments& arguments) {
  std::vector<CLI::Option*> options;
  for (const ConfigKey& key : generation_keys()) {
    if (!key.name.ends_with("_language")) continue;
    options.push_back(add_value(app, arguments, key, key.meaning));
  }
  return options;
}

}  // namespace tapestry
