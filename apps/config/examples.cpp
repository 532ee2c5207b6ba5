#include "apps/config/examples.h"

#include "apps/config/config.h"

namespace tapestry {

// Constant, so that the tables of tasks may be made of them at any time.
constinit const ExampleKind kPairExamples{.name = "pairs of sentences", .has_targets = true};
// A row has bos, a token and eos.
constinit const ExampleKind kTextPairExamples{
    .name = "pairs of texts", .shortest = 3, .has_choices = false};
constinit const ExampleKind kRatedPairExamples{
    .name = "pairs of texts with a number each",
    .condition = "with score_column",
    .matches = [](const CorpusSpec& corpus, TextRows) { return !corpus.score_column.empty(); },
    .shortest = 3,
    .ranked = true,
    .has_choices = false};
constinit const ExampleKind kTextExamples{.name = "text"};
constinit const ExampleKind kBlockExamples{.name = "text", .has_documents = true, .joined = true};
constinit const ExampleKind kDocumentExamples{
    .name = "text",
    .matches = [](const CorpusSpec&, TextRows rows) { return rows == TextRows::kDocuments; },
    .has_documents = true};
// A row has eos, a prompt and an answer.
constinit const ExampleKind kPromptExamples{
    .name = "prompts with answers",
    .condition = "with prompts",
    .matches = [](const CorpusSpec& corpus,
                  TextRows) { return !corpus.prompt.empty() || !corpus.answer.empty(); },
    .shortest = 3,
    .prompted = true};
// A row has eos, a token of the user and one of the assistant.
constinit const ExampleKind kTalkExamples{
    .name = "talks",
    .condition = "with messages",
    .matches = [](const CorpusSpec& corpus, TextRows) { return !corpus.messages_column.empty(); },
    .shortest = 3,
    .talks = true};
constinit const ExampleKind kPreferenceExamples{.name = "prompts with two answers",
                                                .shortest = 3,
                                                .prompted = true,
                                                .compared = true,
                                                .has_choices = false};
constinit const ExampleKind kPreferenceTalkExamples{
    .name = "talks with two answers",
    .condition = "with chosen_column",
    .matches = [](const CorpusSpec& corpus, TextRows) { return corpus.compares_talks(); },
    .shortest = 3,
    .compared = true,
    .talks = true,
    .has_choices = false};
// A row has bos, a token and eos.
constinit const ExampleKind kLabelledExamples{
    .name = "texts with a class each", .shortest = 3, .has_classes = true};
constinit const ExampleKind kRatedExamples{
    .name = "texts with a number each", .shortest = 3, .has_choices = false};
constinit const ExampleKind kTaggedExamples{
    .name = "words with a tag each", .shortest = 3, .has_classes = true};
constinit const ExampleKind kImageExamples{
    .name = "images",
    .medium = Medium::kImages,
    .condition = "with images",
    .matches = [](const CorpusSpec& corpus, TextRows) { return !corpus.images.empty(); },
    .has_classes = true};
// A row has bos, a token of question and context, and two eos.
constinit const ExampleKind kQuestionExamples{
    .name = "questions about contexts", .shortest = 5, .in_windows = true};
constinit const ExampleKind kPointExamples{
    .name = "points", .medium = Medium::kPoints, .has_choices = false};

const ExampleKind& examples_of(const TaskKind& task, const CorpusSpec* first, TextRows rows) {
  static const CorpusSpec kNone;
  const ExampleKind* usual = nullptr;
  for (const TaskExamples& examples : task.examples) {
    const ExampleKind* const kind = examples.kind;
    if (kind->matches == nullptr) {
      if (usual == nullptr) usual = kind;
    } else if (kind->matches(first != nullptr ? *first : kNone, rows)) {
      return *kind;
    }
  }
  return *usual;
}

const ExampleKind& examples_of(const Config& config) {
  const std::vector<CorpusSpec>& corpora = config.data.train;
  return examples_of(*config.task, corpora.empty() ? nullptr : corpora.data(), config.data.rows);
}

std::string condition_of(const Config& config) {
  const char* const condition = examples_of(config).condition;
  return condition != nullptr ? condition : concat("with task: ", config.task->name);
}

}  // namespace tapestry
