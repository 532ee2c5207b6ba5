// Classes of texts and images, and numbers of texts, by a trained model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/task.h"
#include "data/examples/labelled.h"

namespace tapestry {

/// The probability of each class, in the order of config.data.labels.
using ClassProbabilities = std::vector<double>;

/// Those of the rows of logits (B, classes).
std::vector<ClassProbabilities> probabilities_of(const Var& logits);

struct LabelProbability {
  std::string label;
  double probability = 0;
};
/// The classes to show of a text.
struct ClassChoice {
  int64_t top_k = 1;       ///< the most probable ones, or
  double threshold = 0.5;  ///< of a model that finds any number of classes: from this one on
};
/// The chosen classes, the most probable first, of equal ones the one with the lower number. With
/// `several` the threshold chooses.
std::vector<LabelProbability> chosen_classes(const std::vector<std::string>& labels,
                                             const ClassProbabilities& probabilities,
                                             const ClassChoice& choice, bool several);

/// The outputs of the head (N, classes) for a batch of labelled or rated texts.
Var outputs_of(const TextClassifier& model, const LabelledBatch& batch);
/// The same for the results of encoder_input(), as one batch.
Var outputs_of(const TextClassifier& model, const std::vector<FramedText>& texts);

/// "text" and, if it has one, "text_pair" of a text, as samples show them.
std::vector<std::pair<std::string, std::string>> given_texts(const LabelledCorpus& corpus,
                                                             const Tokenizer& tokenizer,
                                                             int64_t text);

/// True if a model of the config learnt from two texts in a row: text_pair_column.
bool reads_text_pairs(const Config& config);
/// Throws Error(kConfig), beginning with `who`, unless there is a second text for each text, or
/// none for a model that learnt from single ones.
void check_second_texts(const char* who, const Config& config,
                        const std::vector<std::string>& texts,
                        const std::vector<std::string>& seconds);
/// Throws Error(kConfig) for held-out texts of which a row has two where those of data.train have
/// one, and the other way round.
void check_texts(const Config& config, const std::vector<CorpusSpec>& corpora);

/// Classifies the results of encoder_input() as one batch.
std::vector<ClassProbabilities> classify(const TextClassifier& model,
                                         const std::vector<FramedText>& texts);

/// By a model of multi_label: the probability of each class by itself.
std::vector<ClassProbabilities> class_probabilities(const TextClassifier& model,
                                                    const std::vector<FramedText>& texts);

/// By a model of text_regression: a number for each text, the results of encoder_input() as one
/// batch.
std::vector<double> rate_texts(const TextClassifier& model, const std::vector<FramedText>& texts);

/// Classifies the image in a file. Throws as read_image().
ClassProbabilities classify(const ImageModel& model, const std::string& path);

}  // namespace tapestry
