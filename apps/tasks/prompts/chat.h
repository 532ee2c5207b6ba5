// Causal models that learn to answer in talks: task clm on records with messages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/task.h"
#include "data/chat/chat_format.h"

namespace tapestry {

/// The chat template that came with a model; "" if none did. Of several named ones the default.
std::string chat_template_of(const TokenizerPair& tokenizers);

/// How a model with these files reads talks: by the template that came with it, or by
/// usual_chat_template(). `folder` is for messages. Throws Error(kConfig) for a template that is
/// not understood.
ChatFormat chat_format_of(const TokenizerPair& tokenizers, const std::string& folder);

/// How a training reads talks: by the template that the config chooses, which is put among the
/// files that come with the tokenizers. Throws Error(kConfig) for one that is not understood.
ChatFormat settle_chat(const Config& config, TokenizerPair& tokenizers);
/// The corpora, with the talks in this format.
std::vector<CorpusSpec> with_format(std::vector<CorpusSpec> corpora, const ChatFormat& format);

/// TaskRow::make of a causal model whose corpora are talks: the loss is on the assistant's words.
std::unique_ptr<TrainingTask> make_chat_task(const Config& config, TokenizerPair tokenizers,
                                             const TaskPlace& place, const Report& report);

/// TaskRow::evaluate of the same.
Evaluation evaluate_chat(ModelFiles files, const std::string& device,
                         const std::vector<CorpusSpec>& corpora);

}  // namespace tapestry
