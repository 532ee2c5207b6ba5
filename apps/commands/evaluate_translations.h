// The part of `tapestry evaluate` that scores files of translations.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tapestry {

inline constexpr const char* kEvaluationMetrics[] = {"bleu", "chrf", "rouge"};

struct TranslationArguments {
  std::string hypothesis;  ///< "-": stdin
  std::string reference;
  std::vector<std::string> metrics = {"bleu", "chrf"};  ///< of kEvaluationMetrics
  std::string tokenize = "13a";
  bool lowercase = false;
};

/// Adds the options of files of translations to `command`. Returns that of the hypothesis.
CLI::Option* add_translation_options(CLI::App& command, TranslationArguments& arguments);

/// Prints the scores and returns the exit code.
int evaluate_translations(const TranslationArguments& arguments, bool json);

}  // namespace tapestry
