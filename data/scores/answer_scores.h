// Exact match and F1 of answers, as SQuAD's evaluation counts them (Rajpurkar et al. 2016, 2018):
// without case, punctuation, articles and extra white space; the best of several references.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/scores/sampled_ratio.h"

namespace tapestry {

/// Lower case, without ASCII punctuation, without the words a, an, the, with single spaces.
std::string normalize_answer(std::string_view text);

/// 1 if the answers are equal when normalised, else 0; the best over `references`. If no reference
/// has a word, the right answer is an empty one.
double exact_match(std::string_view answer, const std::vector<std::string>& references);

/// The harmonic mean of precision and recall of the words that normalised answers share; the best
/// over `references`.
double answer_f1(std::string_view answer, const std::vector<std::string>& references);

/// Both over several questions.
struct AnswerScores {
  SampledRatio exact, f1;

  void add(double exact_one, double f1_one) {
    exact.add(exact_one, 1);
    f1.add(f1_one, 1);
  }
};

}  // namespace tapestry
