// Options that several commands have.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "apps/checkpoint/model_choice.h"
#include "apps/config/search_overrides.h"

namespace tapestry {

/// The names of an option's values: texts, enumerators, rows or pointers to rows.
template <class Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto& value : values) {
    if constexpr (std::is_enum_v<std::decay_t<decltype(value)>>) {
      names.emplace_back(name_of(value));
    } else if constexpr (requires { value.name; }) {
      names.emplace_back(value.name);
    } else if constexpr (requires { value->name; }) {
      names.emplace_back(value->name);
    } else {
      names.emplace_back(value);
    }
  }
  return names;
}

struct ConfigArguments {
  std::string config;
  std::vector<std::string> overrides;  ///< section.key=value
};
void add_config(CLI::App& app, ConfigArguments& arguments);

/// Throws Error(kConfig) if a key of "key=value" comes twice: the last would win silently.
void check_given_once(const char* who, const std::vector<std::string>& keys);

struct ComputeArguments {
  std::string device = "auto";
  int threads = 0;  ///< 0: all cores
};
void add_compute(CLI::App& app, ComputeArguments& arguments);

/// --weights of one model.
CLI::Option* add_format(CLI::App& app, WeightChoice& format);
/// --weights of models that answer together.
void add_weights(CLI::App& app, ModelChoice& models);

/// Adds the option for a key, whose value is read with the others' of its section.
CLI::Option* add_key_option(CLI::App& app, std::vector<KeyOverride>& overrides,
                            const ConfigKey& key);

/// Adds --n-best, --seed and an option for each key of `generation` but those without effect.
void add_search(CLI::App& app, SearchArguments& arguments,
                const std::vector<std::string>& without_effect = {});
/// Adds the option for one key of `generation`, with another meaning.
CLI::Option* add_search_key(CLI::App& app, SearchArguments& arguments, const std::string& key,
                            const char* meaning);

/// Adds --source-language and --target-language.
std::vector<CLI::Option*> add_languages(CLI::App& app, SearchArguments& arguments);

}  // namespace tapestry
