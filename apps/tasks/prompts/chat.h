// Causal models that learn to answer in talks: task clm on records with messages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// TaskRow::make of a causal model whose corpora are talks: the loss is on the assistant's words.
std::unique_ptr<TrainingTask> make_chat_task(const Config& config, TokenizerPair tokenizers,
                                             const TaskPlace& place, const Report& report);

/// TaskRow::evaluate of the same.
Evaluation evaluate_chat(ModelFiles files, const std::string& device,
                         const std::vector<CorpusSpec>& corpora);

}  // namespace tapestry
