#include "apps/config/search_overrides.h"

#include "apps/config/sections.h"

namespace tapestry {
namespace {

// Reads a section `generation` of a translation over the options of a config.
void read_generation(const ConfigNode& keys, Config& config,
                     std::vector<ConfigKey>* known = nullptr) {
  read_config(keys, [&](ConfigSection& s) { bind_generation(s, config); }, {.keys = known});
}

ConfigNode section_of(const std::vector<SearchOverride>& overrides) {
  ConfigNode keys = ConfigNode::map();
  for (const SearchOverride& given : overrides) {
    const ConfigLocation location{.where = concat(given.option, ' ', given.value),
                                  .directory = "",
                                  .order = std::ssize(keys.entries)};
    ConfigNode value = ConfigNode::scalar(given.value, /*quoted=*/false);
    value.location = location;
    keys.entries.push_back({given.key, location, std::move(value)});
  }
  return keys;
}

}  // namespace

std::vector<ConfigKey> generation_keys() {
  std::vector<ConfigKey> keys;
  Config config;
  read_generation(ConfigNode::map(), config, &keys);
  return keys;
}

SearchOptions override_search(const SearchOptions& options,
                              const std::vector<SearchOverride>& overrides) {
  Config config;
  config.generation = options;
  read_generation(section_of(overrides), config);
  return config.generation;
}

LanguageOptions override_languages(const LanguageOptions& options,
                                   const std::vector<SearchOverride>& overrides) {
  Config config;
  config.languages = options;
  read_generation(section_of(overrides), config);
  return config.languages;
}

}  // namespace tapestry
