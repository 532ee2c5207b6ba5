// How similar each of several texts is to all of them: the utility of minimum Bayes risk, which
// chooses the text that is most similar to what the model might also have said (Kumar and Byrne
// 2004; Freitag et al. 2023 for draws by epsilon sampling).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/scores/metric.h"

namespace tapestry {

/// Texts that differ, with the number of times that each was drawn.
struct DrawnTexts {
  std::vector<std::string> texts;
  std::vector<int64_t> times;
};

/// chrF2 of each text against one reference whose number of each n-gram is the mean over all draws
/// (Vamvas and Sennrich 2024): linear in the number of texts. Of a single text drawn any number of
/// times it is chrF2 itself.
std::vector<double> expected_chrf(const DrawnTexts& drawn);
/// The same with BLEU of words as 13a finds them, 1 added to numbers of orders above 1 (Lin and Och
/// 2004).
std::vector<double> expected_bleu(const DrawnTexts& drawn);

/// The mean over all draws of each text's score against them: quadratic.
std::vector<double> mean_scores(const Metric& metric, const DrawnTexts& drawn);

}  // namespace tapestry
