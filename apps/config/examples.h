// Kinds of examples, as a config sees them: what follows from what a task reads. How they are read
// and batched is in data/examples/; a task lists those that it trains on (apps/tasks/).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapestry {

struct Config;
struct CorpusSpec;
struct TaskKind;

/// What a model reads: token ids, pixels, or numbers.
enum class Medium { kText, kImages, kPoints };

/// How text becomes rows: blocks of block_size tokens across documents, or one row each document.
enum class TextRows { kBlocks, kDocuments };

struct ExampleKind {
  const char* name;  ///< in messages: "must be of NAME"
  Medium medium = Medium::kText;
  /// Keys of other kinds do not apply "with images"; null: "with task: NAME".
  const char* condition = nullptr;
  /// Tells corpora of this kind from others of its task; null: they are of no other kind.
  bool (*matches)(const CorpusSpec& corpus, TextRows rows) = nullptr;
  int64_t shortest = 2;        ///< tokens of the shortest row: one of text, and those around it
  bool has_targets = false;    ///< a source and a target, whose pairs may have weights
  bool has_documents = false;  ///< the key data.rows cuts them into rows
  bool joined = false;         ///< rows are blocks of a stream of tokens
  bool prompted = false;       ///< prompts, and the answers that follow them
  bool compared = false;       ///< two answers to each prompt, of which one is better
  bool talks = false;          ///< messages of a user and an assistant, by a chat template
  bool has_classes = false;    ///< data.labels
  bool in_windows = false;     ///< long contexts are read in windows
  bool ranked = false;         ///< by how alike two texts are
  bool has_choices = true;     ///< a target is one of several, over which a loss can spread

  bool of_text() const { return medium == Medium::kText; }
  bool of_images() const { return medium == Medium::kImages; }
  bool of_points() const { return medium == Medium::kPoints; }
};

extern const ExampleKind kPairExamples;       ///< sentences with translations
extern const ExampleKind kTextPairExamples;   ///< texts that belong together
extern const ExampleKind kRatedPairExamples;  ///< two texts, and how alike they are
extern const ExampleKind kTextExamples;       ///< documents, which the task cuts itself
extern const ExampleKind kBlockExamples;      ///< documents, joined and cut into blocks
extern const ExampleKind kDocumentExamples;   ///< documents, a row each
extern const ExampleKind kPromptExamples;
extern const ExampleKind kTalkExamples;            ///< records with messages
extern const ExampleKind kPreferenceExamples;      ///< prompts with a better and a worse answer
extern const ExampleKind kPreferenceTalkExamples;  ///< talks that go on in two ways
extern const ExampleKind kLabelledExamples;        ///< texts with a class each
extern const ExampleKind kRatedExamples;           ///< texts with a number each
extern const ExampleKind kTaggedExamples;          ///< sentences with a tag for each word
extern const ExampleKind kImageExamples;           ///< images with a class each
extern const ExampleKind kQuestionExamples;
extern const ExampleKind kPointExamples;

/// The kind of a task's corpora, of which `first` is one; without corpora the task's default.
const ExampleKind& examples_of(const TaskKind& task, const CorpusSpec* first, TextRows rows);
/// The kind of a config's training data.
const ExampleKind& examples_of(const Config& config);
/// Why keys of other kinds do not apply: "with images", "with task: clm".
std::string condition_of(const Config& config);

}  // namespace tapestry
