#include "apps/config/search_overrides.h"

#include <algorithm>

#include "apps/config/sections.h"

namespace tapestry {
namespace {

// Reads a section `generation` of a translation over the options of a config.
void read_generation(const ConfigNode& keys, Config& config,
                     std::vector<ConfigKey>* known = nullptr) {
  read_config(keys, [&](ConfigSection& s) { bind_generation(s, config); }, {.keys = known});
}

ConfigNode section_of(const std::vector<KeyOverride>& overrides) {
  ConfigNode keys = ConfigNode::map();
  apply_options(keys, overrides);
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
                              const std::vector<KeyOverride>& overrides) {
  Config config;
  config.generation = options;
  read_generation(section_of(overrides), config);
  return config.generation;
}

LanguageOptions override_languages(const LanguageOptions& options,
                                   const std::vector<KeyOverride>& overrides) {
  Config config;
  config.languages = options;
  read_generation(section_of(overrides), config);
  return config.languages;
}

SearchOptions SearchArguments::over(const SearchOptions& of_config) const {
  SearchOptions options = override_search(of_config, overrides);
  const auto given = [&](const char* key) {
    return std::ranges::find(overrides, key, &KeyOverride::key) != overrides.end();
  };
  const char* const beams = named_by_keys ? "num_beams" : "--beam-size";
  const char* const best = named_by_keys ? "n_best" : "--n-best";
  const char* const mbr = named_by_keys ? "mbr_samples" : "--mbr";
  const char* const draws = named_by_keys ? "do_sample" : "--do-sample";
  // Draws and beams exclude each other: of the two the command line's wins over the config's.
  if (given("do_sample") && options.do_sample && !given("num_beams")) options.num_beams = 1;
  if (given("num_beams") && options.num_beams > 1 && !given("do_sample")) options.do_sample = false;
  options.seed = seed.value_or(options.seed);
  options.n_best = n_best;
  if (options.mbr_samples > 0) {
    // The draws decide, whatever the config searches with.
    if (given("num_beams") && options.num_beams > 1) {
      fail(ErrorKind::kConfig, "[search] ", mbr, " takes draws, it has no effect with ", beams, ' ',
           options.num_beams, '.');
    }
    options.num_beams = 1, options.do_sample = true;
    if (options.n_best > options.mbr_samples) {
      fail(ErrorKind::kConfig, "[search] expected 1 <= ", best, " <= ", mbr, ", got ",
           options.n_best, " and ", options.mbr_samples, '.');
    }
  }
  if (options.n_best > options.num_beams && !options.do_sample) {
    fail(ErrorKind::kConfig, "[search] expected 1 <= ", best, " <= ", beams, ", got ",
         options.n_best, " and ", options.num_beams, "; ", draws, " draws so many.");
  }
  options.validate();
  return options;
}

}  // namespace tapestry
