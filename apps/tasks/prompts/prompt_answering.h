// Causal models that learn to answer prompts: task clm on records with a template.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/task.h"
#include "data/corpora/records/records.h"
#include "data/examples/prompts.h"

namespace tapestry {

/// TaskRow::make of a causal model whose corpora are prompts with answers: the loss is on the
/// answers.
std::unique_ptr<TrainingTask> make_prompt_task(const Config& config, TokenizerPair tokenizers,
                                               const TaskPlace& place, const Report& report);

/// A text that a causal model continues, the beginning of a document included.
struct GreedyPrompt {
  std::vector<int32_t> ids;
  int64_t reference = 0;  ///< tokens of what is expected: an output that is much longer is cut
};
/// Where an answer is cut off: where it is too long to be the reference, or where `generation`
/// says.
enum class AnswerLimit { kReference, kGeneration };
/// The most probable continuations, token by token.
std::vector<std::string> greedy_answers(const TextModel& model, const SpecialIds& special,
                                        const std::vector<GreedyPrompt>& prompts,
                                        AnswerLimit limit = AnswerLimit::kReference);

/// The template of the prompts that the model was trained on. Throws Error(kConfig), beginning with
/// `who`, if it was trained on text.
Template prompt_template(const Config& config, const std::string& who);

/// loss, nll, ppl and accuracy of the answers, and of those of a greedy search exact_match, how
/// many percent are the reference, white space at its ends aside, and f1, of their words. NaN of a
/// model that diverged. `answers` has its text.
std::map<std::string, double> measure(const TextModel& model, const PromptCorpus& answers,
                                      const CrossEntropyOptions& options = {},
                                      const RankGroup& group = {});

/// TaskRow::evaluate of the same.
Evaluation evaluate_prompts(ModelFiles files, const std::string& device,
                            const std::vector<CorpusSpec>& corpora);

/// The same, and pass_rate: the mean of what a user's program says of each answer (judge.h).
Evaluation evaluate_judged(ModelFiles files, const std::string& device,
                           const std::vector<CorpusSpec>& corpora, const std::string& command);

/// The corpora as for a validation: with their text, overlong prompts cut.
PromptCorpus load_for_validation(const TextModel& model, const std::vector<CorpusSpec>& corpora,
                                 const LoadContext& context = {});

}  // namespace tapestry
