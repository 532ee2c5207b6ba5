// Results of a validation for people, besides its metrics: examples, and the parts of scores.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/images/images.h"

namespace tapestry {

/// An example with the model's present output.
struct Sample {
  /// Its fixed texts, such as "source" and "reference": the same at each validation.
  std::vector<std::pair<std::string, std::string>> given;
  std::optional<Picture> picture = {};
  std::string output = {};
  /// For a classifier: the most probable classes with their probabilities, best first.
  std::vector<std::pair<std::string, double>> guesses = {};
};

/// The score of the sentences whose references have a number of words in this range.
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

/// The results; a task fills in those that it has.
struct ValidationDetails {
  static constexpr size_t kMostClasses = 100;  ///< a larger confusion is no picture

  int64_t wanted = 0;                ///< samples
  std::vector<Sample> samples = {};  ///< of the same examples at each validation
  std::string problem = {};          ///< the reason why wanted samples are missing
  std::string length_metric = {};    ///< "bleu"
  std::vector<LengthScore> lengths = {};
  std::optional<Confusion> confusion = {};
};

/// The numbers of the examples to show, spread evenly over all.
std::vector<int64_t> shown_examples(int64_t wanted, int64_t examples);

/// Takes samples from `make`, if any are wanted. A failure must not end a training: an Error
/// becomes details->problem. `details` may be null.
void show_samples(ValidationDetails* details, const std::function<std::vector<Sample>()>& make);

/// Scores by the length of the references, in words: score(sentences) for the sentences of each
/// length. Rare lengths are joined with the next.
std::vector<LengthScore> scores_by_length(
    const std::vector<std::string>& references,
    const std::function<double(const std::vector<size_t>& sentences)>& score);

/// The classes of a row of probabilities, the most probable ones first.
std::vector<std::pair<std::string, double>> best_guesses(const std::vector<std::string>& classes,
                                                         const std::vector<double>& probabilities);

}  // namespace tapestry
