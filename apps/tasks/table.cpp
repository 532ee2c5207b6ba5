// Every task, in the order in which messages name them: the first is a config's default.
#include <algorithm>
#include <utility>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/task.h"
#include "core/base/error.h"

namespace tapestry {

extern const Task kTranslation;
extern const Task kClm;
extern const Task kPreferenceTask;
extern const Task kMlm;
extern const Task kDenoising;
extern const Task kClassification;
extern const Task kTokenClassification;
extern const Task kMultiLabel;
extern const Task kTextRegression;
extern const Task kEmbedding;
extern const Task kQuestionAnswering;
extern const Task kRegression;

namespace {

const TaskKind* const kTasks[] = {
    &kTranslation,         &kClm,
    &kPreferenceTask,      &kMlm,
    &kDenoising,           &kClassification,
    &kTokenClassification, &kMultiLabel,
    &kTextRegression,      &kEmbedding,
    &kQuestionAnswering,   &kRegression,
};

}  // namespace

std::span<const TaskKind* const> task_kinds() { return kTasks; }

Task::Task(TaskKind kind, std::vector<TaskRow> rows)
    : TaskKind(std::move(kind)), rows(std::move(rows)) {
  for (const TaskRow& row : this->rows) {
    auto found = std::ranges::find(examples, row.examples, &TaskExamples::kind);
    if (found == examples.end()) {
      found = examples.insert(found, {.kind = row.examples, .models = {}, .metrics = metrics});
    }
    for (const ModelRow* model : row.models) found->models.push_back(model->type);
    found->metrics.insert(found->metrics.end(), row.more_metrics.begin(), row.more_metrics.end());
  }
}

namespace {

struct Rows {
  const TaskRow* task = nullptr;
  const ModelRow* model = nullptr;
};

// The row of a kind of examples and a model type, and that model; none if they do not go together.
Rows find_rows(const Config& config, const ExampleKind& examples) {
  for (const TaskRow& row : static_cast<const Task&>(*config.task).rows) {
    if (row.examples != &examples) continue;
    const auto model = std::ranges::find(row.models, config.model_type, &ModelRow::type);
    if (model != row.models.end()) return {&row, *model};
  }
  return {};
}

// Those of the config's own data, which rules.cpp has checked.
Rows rows_of(const Config& config) {
  const Rows rows = find_rows(config, examples_of(config));
  check(rows.task != nullptr, "task", config.task->name, " trains no ", name_of(config.model_type),
        " on ", examples_of(config).name, '.');
  return rows;
}

}  // namespace

const ModelRow& model_of(const Config& config) { return *rows_of(config).model; }

std::unique_ptr<TrainingTask> make_task(const Config& config, TokenizerPair tokenizers,
                                        const TaskPlace& place, const Report& report) {
  return rows_of(config).task->make(config, std::move(tokenizers), place, report);
}

Evaluation evaluate_on(ModelFiles files, const std::string& device,
                       const std::vector<CorpusSpec>& corpora) {
  const Config& config = files.config;
  const ExampleKind* examples = nullptr;
  for (const CorpusSpec& corpus : corpora) {
    const ExampleKind& own = examples_of(*config.task, &corpus, config.data.rows);
    if (find_rows(config, own).task != nullptr && (examples == nullptr || examples == &own)) {
      examples = &own;
      continue;
    }
    fail(ErrorKind::kConfig, "[evaluate] expected ",
         (examples == nullptr ? examples_of(config) : *examples).name, " for the model of ",
         files.folder, ", got ", own.name, " in ", corpus.str(), '.');
  }
  const TaskRow& row = *find_rows(config, *examples).task;
  return row.evaluate(std::move(files), device, corpora);
}

}  // namespace tapestry
