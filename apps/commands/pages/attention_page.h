// A trained model's attention, with names for the rows and columns of its weights.
#pragma once

#include <string>
#include <vector>

#include "apps/commands/pages/attention_file.h"
#include "apps/tasks/answers/translator.h"
#include "data/examples/questions.h"

namespace tapestry {

/// The weights of every layer while the models read `source` and write `target` (ids without bos
/// and eos). The rows of a decoder's maps are the tokens that it read, those of a recurrent model's
/// the tokens that it wrote.
AttentionPage attention_page(const Translator& models, const std::vector<int32_t>& source,
                             const std::vector<int32_t>& target);

/// The weights of every layer of some stacks that read the same tokens: the trunks of language
/// models and of classifiers. segments (1, T) on their device, or undefined.
AttentionPage attention_page(const std::vector<const Trunk*>& trunks, const Tokenizer& tokenizer,
                             const std::vector<int32_t>& ids, const Tensor& segments = {});
/// The same for a classifier, of one text or two.
AttentionPage attention_page(const TextClassifier& model, const FramedText& text);

/// The same for a model of answers, while it reads a window of a question's context.
AttentionPage attention_page(const SpanModel& model, const QuestionCorpus& questions,
                             int64_t window);

/// The attention of the CLS token to the image in a file, in every layer. Throws Error(kConfig) if
/// the model is not a Vision Transformer.
AttentionPage attention_page(const ImageModel& model, const std::string& path);

}  // namespace tapestry
