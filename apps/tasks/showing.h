// What people look at of a validation, beside its metrics: examples, and what scores are made of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/images.h"

namespace tapestry {

/// An example, and what the model makes of it now.
struct Sample {
  /// "source" and "reference", say: the same at each validation.
  std::vector<std::pair<std::string, std::string>> given;
  std::optional<Picture> picture = {};
  std::string output = {};
  /// Of a classifier: the most probable classes with their probabilities, best first.
  std::vector<std::pair<std::string, double>> guesses = {};
};

/// The score of the sentences whose references have so many words.
struct LengthScore {
  int64_t from = 0, to = 0;
  int64_t sentences = 0;
  double score = 0;
};

/// counts[t][p]: how many examples of class t were taken for class p.
struct Confusion {
  std::vector<std::string> classes;
  std::vector<std::vector<int64_t>> counts;
};

/// A task fills in what it has.
struct Showing {
  static constexpr size_t kMostClasses = 100;  ///< a larger confusion is no picture

  int64_t wanted = 0;                ///< samples
  std::vector<Sample> samples = {};  ///< of the same examples at each validation
  std::string problem = {};          ///< why there are none, although they are wanted
  std::string length_metric = {};    ///< "bleu"
  std::vector<LengthScore> lengths = {};
  std::optional<Confusion> confusion = {};
};

/// The examples to show of so many: spread evenly.
std::vector<int64_t> shown_examples(int64_t wanted, int64_t examples);

/// Takes samples from `make`, if any are wanted. What goes wrong with them must not end a training:
/// an Error becomes showing->problem. `showing` may be null.
void show_samples(Showing* showing, const std::function<std::vector<Sample>()>& make);

/// Scores by the length of the references, in words: score(sentences) of those of each length.
/// Lengths that occur only a few times are joined with the next.
std::vector<LengthScore> scores_by_length(
    const std::vector<std::string>& references,
    const std::function<double(const std::vector<size_t>& sentences)>& score);

/// The classes of a row of probabilities, the most probable ones first.
std::vector<std::pair<std::string, double>> best_guesses(const std::vector<std::string>& classes,
                                                         const std::vector<double>& probabilities);

}  // namespace tapestry
