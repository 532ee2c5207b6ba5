// Rows of question and context, and where the answers, which are spans of the context, stand in
// these rows.
//
// A context that is too long for a row is read in several windows, which overlap.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "data/batches/batching.h"
#include "data/corpora/corpus.h"
#include "data/corpora/records/squad.h"

namespace tapestry {

struct QuestionOptions {
  int64_t max_length = 128;       ///< of a row: bos, question, eos, context, eos
  int64_t doc_stride = 64;        ///< tokens between the beginnings of two windows of a context
  std::string overlong = "drop";  ///< treatment of a question that leaves a window no room
  bool no_answer = false;         ///< a question may have no answer in its context
};

/// Encoded questions.
struct QuestionCorpus {
  /// A row: tokens [first, first + count) of its question's context.
  struct Window {
    int64_t question = 0;
    int64_t first = 0;
    int64_t count = 0;
    /// The tokens of the row where the first answer begins and ends; both 0, that is bos, if the
    /// window does not hold all of it.
    int32_t begin_label = 0;
    int32_t end_label = 0;
  };
  std::vector<Question> questions;
  TokenLists question_ids;
  std::vector<std::shared_ptr<const std::vector<PlacedToken>>> contexts;  ///< of each question
  std::vector<Window> windows;  ///< in the order of the questions
  FilterCounts counts;
  std::vector<int64_t> parts;  ///< windows of each corpus of a list
  TwoTextFrame frame = SpecialIds().question();
  int32_t filler = kPadId;  ///< of rows

  int64_t size() const { return static_cast<int64_t>(questions.size()); }
  /// Tokens of a window's row, and the place in it of the window's first token.
  int64_t row_length(const Window& window) const;
  int64_t offset(const Window& window) const {
    return question_ids.length(window.question) + std::ssize(frame.before) +
           std::ssize(frame.between);
  }
  /// The text of tokens [first, last] of a question's context without white space at its ends, and
  /// the byte where it begins.
  std::string_view text_of(int64_t question, int64_t first, int64_t last, int64_t& begin) const;
};

/// Encodes questions with their contexts and cuts them into windows; adds to `counts`. Throws
/// Error(kData) if nothing is left, if a question has no answer without options.no_answer (only
/// with `labelled`), or by options.overlong; Error(kConfig) if the tokenizer has no places.
QuestionCorpus encode_questions(std::vector<Question> questions, const Tokenizer& tokenizer,
                                const QuestionOptions& options, bool labelled,
                                FilterCounts counts = {});
/// The same for all questions of these corpora.
QuestionCorpus load_questions(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                              const QuestionOptions& options, const LoadContext& context = {});

/// Rows on the CPU; all tensors int32.
struct QuestionBatch {
  Tensor ids;                    ///< (B, T): bos, question, eos, context, eos, filled up
  Tensor segments;               ///< (B, T): 1 for the context and its eos, else 0
  Tensor lengths;                ///< (B): tokens of each row
  Tensor labels;                 ///< (2, B): where the answer begins, and where it ends
  int64_t rows = 0;              ///< B
  int64_t tokens = 0;            ///< without padding: sum of the lengths
  std::vector<int64_t> windows;  ///< the number in the corpus of each row
};
QuestionBatch rows_of(const QuestionBatch& batch, int64_t begin, int64_t end);
QuestionBatch make_question_batch(const QuestionCorpus& corpus, std::span<const int64_t> windows);

/// Batches of similar length, epoch after epoch.
class QuestionBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk and EpochPlan do.
  QuestionBatches(const QuestionCorpus& corpus, const BatchOptions& options,
                  DataPosition start = {});

  QuestionBatch next() { return make_question_batch(*corpus_, walk_.next()); }
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const QuestionCorpus* corpus_;
  EpochWalk walk_;
};

}  // namespace tapestry
