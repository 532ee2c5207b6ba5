// The keys of `generation` as options of commands, over the config of a trained model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/reader.h"
#include "data/tokenizers/languages.h"
#include "nn/decoding/decoding.h"

namespace tapestry {

/// The keys of `generation`, in their order, with their types, bounds and choices. Names have no
/// section: "num_beams".
std::vector<ConfigKey> generation_keys();

/// The options with these keys changed, which are read as those of a config. Throws one
/// Error(kConfig) that names each option whose value is wrong.
SearchOptions override_search(const SearchOptions& options,
                              const std::vector<KeyOverride>& overrides);

/// How to choose tokens: what is not given comes from the checkpoint's config.
struct SearchArguments {
  std::vector<KeyOverride> overrides = {};  ///< keys of `generation`
  std::optional<uint64_t> seed = {};
  int64_t n_best = 1;
  bool named_by_keys = false;  ///< messages say num_beams, not --beam-size

  /// Throws Error(kConfig) for values out of their bounds, before a model is read.
  void validate() const { override_search({}, overrides); }
  /// The config's options, overridden by these. Throws Error(kConfig).
  SearchOptions over(const SearchOptions& of_config) const;
};

/// The same for the languages of a translation.
LanguageOptions override_languages(const LanguageOptions& options,
                                   const std::vector<KeyOverride>& overrides);

}  // namespace tapestry
