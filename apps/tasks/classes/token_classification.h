// Labels of the words of a text by a trained model: names of people and places, parts of speech.
#pragma once

#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/task.h"
#include "data/examples/tagged.h"

namespace tapestry {

/// The label of a word, and its probability at the word's first token. A word without a token has
/// the label O, whether or not the model has it, and probability 0.
struct WordLabel {
  std::string label = "O";
  double probability = 0;
};

/// A text with its words, which white space separates, and the byte where each begins.
struct TextInWords {
  std::string text;
  std::vector<std::string> words;
  std::vector<size_t> begins;
};
TextInWords in_words(const std::string& text);

/// The labels of the words of each sentence of a corpus (load_tagged(), encode_words()), whose
/// windows go through the model in batches of config.training.eval_batch_size.
std::vector<std::vector<WordLabel>> label_words(const TokenClassifierModel& model,
                                                const TaggedCorpus& corpus,
                                                const RankGroup& group = {});

/// precision, recall and f1 of entities in percent (data/scores/entity_scores.h), accuracy of
/// words; loss and nll of the words' first tokens.
std::map<std::string, double> measure(const TokenClassifierModel& model, const TaggedCorpus& corpus,
                                      const CrossEntropyOptions& options = {},
                                      const RankGroup& group = {},
                                      ValidationDetails* details = nullptr);

}  // namespace tapestry
