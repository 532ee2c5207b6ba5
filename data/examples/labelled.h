// Text classification: texts, or pairs of texts, with one label each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/batches/batching.h"
#include "data/corpora/corpus.h"

namespace tapestry {

/// Token ids without bos and eos. Text i has the class label(i) with the name
/// label_names[label(i)].
struct LabelledCorpus {
  TokenLists tokens;
  TokenLists seconds;            ///< the second texts, which stand in the same row; or none
  TokenLists found_labels;       ///< one each: its number in the order of the text
  std::vector<int32_t> classes;  ///< of these numbers
  std::vector<std::string> label_names;
  FilterCounts counts;
  std::vector<int64_t> parts;  ///< texts of each corpus of a list
  bool from_cache = false;     ///< nothing was encoded
  SpecialIds special = {};

  bool has_two_texts() const { return seconds.size() > 0; }
  /// What the model reads.
  FramedText row(int64_t i) const;
  int64_t row_length(int64_t i) const;
  int32_t label(int64_t i) const { return classes[static_cast<size_t>(found_labels[i][0])]; }

  int64_t size() const { return tokens.size(); }
};

/// Reads and encodes corpora with a label_column, and a text_pair_column in all or in none. The
/// label names are `label_names` if given (for validation: those of the training corpus), else the
/// labels of the corpora in byte order. Throws Error(kData) if nothing is left of a corpus, if a
/// label is not in `label_names` (naming the place), or if there are fewer than two labels;
/// Error(kConfig) for bad options or other kinds.
LabelledCorpus load_labelled(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                             const CorpusOptions& options,
                             const std::vector<std::string>& label_names = {},
                             const LoadContext& context = {});

/// Labels that are lists of names with commas between them; "-" is none.
struct LabelSets {
  std::vector<std::string> names;          ///< all of them
  std::vector<std::vector<int32_t>> sets;  ///< of each of label_names: 1 for each of its names

  const std::vector<int32_t>& of(const LabelledCorpus& corpus, int64_t text) const {
    return sets[static_cast<size_t>(corpus.label(text))];
  }
};
/// `known`: the names, or empty: those of the corpus in byte order. Throws Error(kData), naming
/// `where`, for a name that is not known, or if there are fewer than two.
LabelSets label_sets(const LabelledCorpus& corpus, const std::vector<std::string>& known,
                     const std::string& where);

/// Rows on the CPU; all tensors int32.
struct LabelledBatch {
  Tensor ids;          ///< (B, T): bos, text, eos, maybe a second text, eos, filled up
  Tensor segments;     ///< (B, T): 1 for the second text and its eos, else 0; or undefined
  Tensor lengths;      ///< (B): tokens of each row, bos and eos included
  Tensor labels;       ///< (B)
  int64_t rows = 0;    ///< B
  int64_t tokens = 0;  ///< without padding: sum of the lengths
  std::vector<int64_t> indices;  ///< the number in the corpus of each row's text
};

LabelledBatch rows_of(const LabelledBatch& batch, int64_t begin, int64_t end);

/// Batches of similar length, epoch after epoch.
class LabelledBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk and EpochPlan do.
  LabelledBatches(const LabelledCorpus& corpus, const BatchOptions& options,
                  DataPosition start = {});

  LabelledBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const LabelledCorpus* corpus_;
  EpochWalk walk_;
};

}  // namespace tapestry
