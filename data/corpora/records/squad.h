// Questions about texts as files have them: SQuAD's one JSON document (Rajpurkar et al. 2016,
// 2018), or a record a line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/corpora/corpus.h"
#include "data/corpora/records/records.h"

namespace tapestry {

/// A question as a file has it. Places count bytes.
struct Question {
  struct Answer {
    std::string text;
    int64_t begin = 0;  ///< of the context
  };
  std::string id;
  std::shared_ptr<const std::string> context;  ///< questions about one text share it
  std::string question;
  std::vector<Answer> answers;  ///< any of them is right; empty: the context has none
  std::string place;            ///< in its file, for messages
};

/// Reads the questions of a `squad` (one JSON document: data, paragraphs, qas) or a `jsonl` (each
/// line with context, question, answer and answer_start, which counts Unicode characters; in a
/// jsonl or parquet also with lists of them in `answers`, whose first one is learnt; or with
/// is_impossible: true, or without answer, as in an input). Blank questions and contexts are
/// dropped and counted, and as malformed answers that do not stand at their place, `answers` of
/// another kind or without one of the lists, and a record that has instead of answers only a name
/// like theirs ("anwsers"). Throws Error(kData) naming the place of what is missing or of another
/// kind.
std::vector<Question> read_questions(const CorpusSpec& spec, FilterCounts& counts);

/// Their texts, for a tokenizer.
std::unique_ptr<PairReader> open_question_texts(const CorpusSpec& spec);

/// The question of a record, without answers. Shares the context `before` (or null) if the texts
/// are equal.
Question question_of(const Record& record, const std::shared_ptr<const std::string>& before = {});

}  // namespace tapestry
