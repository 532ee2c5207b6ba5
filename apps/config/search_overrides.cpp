#include "apps/config/search_overrides.h"

#include "apps/config/sections.h"

namespace tapestry {
namespace {

// Reads a section `generation` over options.
void read_generation(const ConfigNode& keys, SearchOptions& options,
                     std::vector<ConfigKey>* known = nullptr) {
  Config config;
  config.generation = options;
  read_config(keys, [&](ConfigSection& s) { bind_generation(s, config); }, {.keys = known});
  options = config.generation;
}

}  // namespace

std::vector<ConfigKey> generation_keys() {
  std::vector<ConfigKey> keys;
  SearchOptions options;
  read_generation(ConfigNode::map(), options, &keys);
  return keys;
}

SearchOptions override_search(const SearchOptions& options,
                              const std::vector<SearchOverride>& overrides) {
  ConfigNode keys = ConfigNode::map();
  for (const SearchOverride& given : overrides) {
    const ConfigLocation location{.where = concat(given.option, ' ', given.value),
                                  .directory = "",
                                  .order = std::ssize(keys.entries)};
    ConfigNode value = ConfigNode::scalar(given.value, /*quoted=*/false);
    value.location = location;
    keys.entries.push_back({given.key, location, std::move(value)});
  }
  SearchOptions changed = options;
  read_generation(keys, changed);
  return changed;
}

}  // namespace tapestry
