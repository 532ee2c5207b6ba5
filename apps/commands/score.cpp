#include <iostream>

#include "apps/commands/filter.h"
#include "apps/tasks/language_modelling.h"
#include "apps/tasks/translation.h"
#include "core/parallel.h"

namespace tapestry {
namespace {

void print(const std::vector<Score>& scores) {
  for (const Score& score : scores) {
    std::cout << score.log_probability << '\t' << score.tokens << '\n';
  }
}

template <class Model>
std::vector<Score> score_pairs(const TranslationModel<Model>& model,
                               const ScoreArguments& arguments) {
  CorpusSpec spec;
  spec.source = arguments.source;
  spec.target = arguments.target;
  CorpusOptions options;
  options.max_length = model.config.model.longest_sequence();
  options.overlong = "error";
  const ParallelCorpus pairs = load_parallel({spec}, model.tokenizers, options);
  if (pairs.counts.kept != pairs.counts.read) {
    fail(ErrorKind::kData, "[score] every line needs a score, but not every pair can be used: ",
         pairs.counts.summary());
  }
  return score(model, pairs, arguments.batch_size);
}

}  // namespace

int run_score(const ScoreArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  const std::string& device = arguments.compute.device;
  if (arguments.source.empty()) {
    const auto model =
        TextModel::load(arguments.model, device, "score without --source", kContinuesText);
    print(score_lines(*model, read_lines(arguments.target)));
  } else {
    with_translation_model(arguments.model, device, "score with --source", kScoresPairs,
                           [&](const auto& model) { print(score_pairs(model, arguments)); });
  }
  return 0;
}

}  // namespace tapestry
