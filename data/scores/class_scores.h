// Scores of a classifier: accuracy, precision, recall and F1 of each class and over all classes,
// the confusion of the classes, and how often the class is among the k most probable ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tapestry {

/// 0 where `whole` is 0.
double percent(int64_t part, int64_t whole);

struct ClassScores {
  struct Class {
    std::string name;
    double precision = 0;  ///< in percent, like those below; 0 if nothing was predicted
    double recall = 0;     ///< 0 if there is no example
    double f1 = 0;         ///< 2 tp / (2 tp + fp + fn); 0 where that is 0 / 0
    int64_t examples = 0;
  };
  std::vector<Class> classes;
  /// confusion[t][p]: how many examples of class t were taken for class p.
  std::vector<std::vector<int64_t>> confusion;
  double accuracy = 0;
  double macro_f1 = 0;     ///< the mean over the classes that occur, in the data or as predictions
  double weighted_f1 = 0;  ///< the mean weighted by the examples of each class
};

/// The counts from which ClassScores follow.
class ClassCounts {
 public:
  explicit ClassCounts(std::vector<std::string> names);

  /// Counts an example of class `truth` with the model's score of each class. The greatest score is
  /// the prediction; of equal ones the first. Returns whether it is right.
  bool add(int64_t truth, std::span<const double> scores);

  int64_t examples() const { return examples_; }
  /// Percent of the examples whose class is among the k with the greatest scores. Classes with
  /// equal scores rank in their order. k from 1 up to the number of classes.
  double top_k_accuracy(int64_t k) const;
  ClassScores scores() const;

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<int64_t>> confusion_;
  std::vector<int64_t> ranks_;  ///< how many examples had their class at rank 0, 1, ...
  int64_t examples_ = 0;
};

}  // namespace tapestry
