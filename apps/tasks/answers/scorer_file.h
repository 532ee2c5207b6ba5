// The scorers of n-best lists and their weights, as a small YAML file:
//
//   scorers:
//     - {feature: log_probability, weight: 1}
//     - {model: runs/reverse, direction: backward, weight: 0.4}
//     - {model: runs/causal, weight: 0.2}
#pragma once

#include <string>
#include <vector>

#include "apps/config/tree.h"
#include "data/tokenizers/languages.h"

namespace tapestry {

struct ScorerKind;

struct ScorerSpec {
  const ScorerKind* kind = nullptr;  ///< of scorer_kinds()
  std::string model = {};            ///< checkpoint or run folder, absolute; "": it needs none
  std::string model_as_written = {};
  LanguageOptions languages = {};  ///< of a model that translates
  double weight = 1;

  /// "length", "backward:runs/reverse"; without spaces.
  std::string name() const;
};

struct ScorerFile {
  std::string path;
  std::vector<ScorerSpec> scorers;

  std::vector<double> weights() const;
  /// The same file with these weights. Paths of models that are relative to the file become
  /// absolute, unless the new file stands in the same folder.
  std::string with_weights(const std::vector<double>& weights, const std::string& new_path) const;

 private:
  friend ScorerFile read_scorers(const std::string& path);
  ConfigNode tree_;
};

/// Models' paths are relative to the file, and must be checkpoints of a fitting task. Throws one
/// Error(kConfig) with the file:line:column of all that is wrong, two equal scorers and weights
/// that are all 0 among it.
ScorerFile read_scorers(const std::string& path);

}  // namespace tapestry
