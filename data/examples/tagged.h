// Sentences whose words have a tag each, as rows of tokens: the first token of a word has its tag.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/batches/batching.h"
#include "data/corpora/corpus.h"
#include "data/corpora/records/tagged_reader.h"

namespace tapestry {

/// Encoded sentences.
struct TaggedCorpus {
  /// A row: tokens [first, first + count) of its sentence. Only a sentence that is longer than a
  /// row has several.
  struct Window {
    int64_t sentence = 0;
    int64_t first = 0;
    int64_t count = 0;
  };
  static constexpr int32_t kNoToken = -1;

  TokenLists tokens;                     ///< of each sentence
  TokenLists first_tokens;               ///< of each word: its first token, or kNoToken
  TokenLists found_tags;                 ///< of each word: its number in the order of the text
  std::vector<int32_t> classes;          ///< of these numbers
  std::vector<std::string> label_names;  ///< of the classes
  std::vector<Window> windows;           ///< in the order of the sentences
  FilterCounts counts;
  std::vector<int64_t> parts;  ///< windows of each corpus of a list
  bool from_cache = false;     ///< nothing was encoded
  SpecialIds special = {};

  /// Sentences.
  int64_t size() const { return tokens.size(); }
  int64_t words(int64_t sentence) const { return first_tokens.length(sentence); }
  int32_t label(int64_t sentence, int64_t word) const {
    return classes[static_cast<size_t>(found_tags[sentence][static_cast<size_t>(word)])];
  }
};

/// Reads and encodes corpora of tagged words. The label names are `label_names` if given (a tag may
/// then be a number, the place of its name), else the tags of the corpora in byte order. With
/// `whole` a long sentence is read in several windows, whatever options.overlong says. Throws
/// Error(kData) as load_labelled(), Error(kConfig) also if the tokenizer has no places.
TaggedCorpus load_tagged(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                         const CorpusOptions& options, bool whole,
                         const std::vector<std::string>& label_names = {},
                         const LoadContext& context = {});

/// The same for sentences in memory without tags, in windows of `max_length` tokens.
TaggedCorpus encode_words(const std::vector<std::vector<std::string>>& sentences,
                          const Tokenizer& tokenizer, int64_t max_length);

/// Rows on the CPU; all tensors int32.
struct TaggedBatch {
  Tensor ids;                    ///< (B, T): bos, tokens, eos, filled up
  Tensor lengths;                ///< (B): tokens of each row, bos and eos included
  Tensor labels;                 ///< (B, T): of the first token of each word, else kNoTarget
  int64_t rows = 0;              ///< B
  int64_t tokens = 0;            ///< without padding: sum of the lengths
  std::vector<int64_t> windows;  ///< the number in the corpus of each row
};
TaggedBatch rows_of(const TaggedBatch& batch, int64_t begin, int64_t end);
TaggedBatch make_tagged_batch(const TaggedCorpus& corpus, std::span<const int64_t> windows);

/// The words that begin in a window, and the places of their first tokens in its row.
struct PlacedWord {
  int64_t word = 0, place = 0;
};
std::vector<PlacedWord> words_in(const TaggedCorpus& corpus, int64_t window);

/// Batches of similar length, epoch after epoch.
class TaggedBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk and EpochPlan do.
  TaggedBatches(const TaggedCorpus& corpus, const BatchOptions& options, DataPosition start = {});

  TaggedBatch next() { return make_tagged_batch(*corpus_, walk_.next()); }
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const TaggedCorpus* corpus_;
  EpochWalk walk_;
};

}  // namespace tapestry
