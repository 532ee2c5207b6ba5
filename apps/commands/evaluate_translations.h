// The part of `tapestry evaluate` that scores files of translations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/scores/metrics.h"
#include "data/scores/significance.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tapestry {

struct TranslationArguments {
  std::vector<std::string> hypotheses;  ///< a file for each system, the first the baseline
  std::vector<std::string> references;  ///< files; "-": stdin, here or above
  int64_t num_refs = 1;                 ///< references between tabs in the only file
  bool optional_references = false;     ///< an empty line is no reference
  std::vector<std::string> metrics = {"bleu", "chrf"};  ///< of metric_kinds(), or kRouge
  MetricOptions options;
  bool lowercase = false;  ///< of BLEU and chrF
  bool force = false;      ///< no warning about hypotheses that look tokenized
  bool sentence_level = false;
  int width = 2;  ///< digits behind the point
  bool confidence = false;
  int64_t confidence_n = 1000;
  bool paired_bs = false;
  int64_t paired_bs_n = 1000;
  bool paired_ar = false;
  int64_t paired_ar_n = 10000;
  uint64_t seed = kScoreSeed;
};

/// Scored for one system against one reference, and not tested.
inline constexpr const char* kRouge = "rouge";

/// Adds the options of files of translations to `command`. Returns that of the hypothesis.
CLI::Option* add_translation_options(CLI::App& command, TranslationArguments& arguments);

/// Prints the scores and returns the exit code.
int evaluate_translations(TranslationArguments arguments, bool json);

}  // namespace tapestry
