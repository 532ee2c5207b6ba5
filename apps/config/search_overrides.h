// The keys of `generation` as options of commands, over the config of a trained model.
#pragma once

#include <string>
#include <vector>

#include "apps/config/reader.h"
#include "data/tokenizers/languages.h"
#include "nn/decoding/decoding.h"

namespace tapestry {

/// The keys of `generation`, in their order, with their types, bounds and choices. Names have no
/// section: "num_beams".
std::vector<ConfigKey> generation_keys();

/// A key and its value, as an option of a command line gives them.
struct SearchOverride {
  std::string option;  ///< "--beam-size", for messages
  std::string key;     ///< "num_beams"
  std::string value;
};

/// The options with these keys changed, which are read as those of a config. Throws one
/// Error(kConfig) that names each option whose value is wrong.
SearchOptions override_search(const SearchOptions& options,
                              const std::vector<SearchOverride>& overrides);

/// The same for the languages of a translation.
LanguageOptions override_languages(const LanguageOptions& options,
                                   const std::vector<SearchOverride>& overrides);

}  // namespace tapestry
