// Answers to questions, found in a text by a trained model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/task.h"
#include "data/examples/questions.h"

namespace tapestry {

/// An answer: the Unicode characters [begin, end) of the context. Empty: the context has none.
struct FoundAnswer {
  std::string text;
  int64_t begin = 0;
  int64_t end = 0;
  /// Probability among all allowed spans of all windows, and no answer, if that is allowed.
  double probability = 0;
};

/// The question options of the model's config; long questions are cut, as in a validation.
QuestionOptions question_options(const Config& config);

/// The n best answers to each question, best first.
std::vector<std::vector<FoundAnswer>> find_answers(const SpanModel& model,
                                                   const QuestionCorpus& questions, int64_t n_best,
                                                   const RankGroup& group = {});

/// exact_match and f1 in percent, as SQuAD counts them; loss, nll and accuracy of the spans' ends.
std::map<std::string, double> measure(const SpanModel& model, const QuestionCorpus& questions,
                                      const CrossEntropyOptions& options = {},
                                      const RankGroup& group = {},
                                      ValidationDetails* details = nullptr);

}  // namespace tapestry
