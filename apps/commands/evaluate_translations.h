// The part of `tapestry evaluate` that scores files of translations.
#pragma once

#include <CLI/App.hpp>
#include <functional>

namespace tapestry {

struct TranslationScoring {
  CLI::Option* hypothesis = nullptr;       ///< given where files are to be scored
  std::function<int(bool json)> run = {};  ///< prints the scores and returns the exit code
};

/// Adds the options of files of translations.
TranslationScoring add_translations(CLI::App& app);

}  // namespace tapestry
