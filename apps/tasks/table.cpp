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
extern const Task kMlm;
extern const Task kDenoising;
extern const Task kClassification;
extern const Task kTokenClassification;
extern const Task kMultiLabel;
extern const Task kTextRegression;
extern const Task kQuestionAnswering;
extern const Task kRegression;

namespace {

const TaskKind* const kTasks[] = {
    &kTranslation,
    &kClm,
    &kMlm,
    &kDenoising,
    &kClassification,
    &kTokenClassification,
    &kMultiLabel,
    &kTextRegression,
    &kQuestionAnswering,
    &kRegression,
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

// The row of a kind of examples and a model type, and that model.
std::pair<const TaskRow*, const ModelRow*> find_rows(const Config& config,
                                                     const ExampleKind& examples) {
  const Task& task = static_cast<const Task&>(*config.task);
  for (const TaskRow& row : task.rows) {
    if (row.examples != &examples) continue;
    const auto model = std::ranges::find(row.models, config.model_type, &ModelRow::type);
    if (model != row.models.end()) return {&row, *model};
  }
  check(false, "task", task.name, " trains no ", name_of(config.model_type), " on ", examples.name,
        '.');
  return {};
}

}  // namespace

const ModelRow& model_of(const Config& config) {
  return *find_rows(config, examples_of(config)).second;
}

std::unique_ptr<TrainingTask> make_task(const Config& config, TokenizerPair tokenizers,
                                        const TaskPlace& place, const Report& report) {
  const TaskRow& row = *find_rows(config, examples_of(config)).first;
  return row.make(config, std::move(tokenizers), place, report);
}

Evaluation evaluate_on(ModelFiles files, const std::string& device,
                       const std::vector<CorpusSpec>& corpora) {
  const Config& config = files.config;
  const ExampleKind& examples = examples_of(*config.task, corpora.data(), config.data.rows);
  const TaskRow& row = *find_rows(config, examples).first;
  return row.evaluate(std::move(files), device, corpora);
}

}  // namespace tapestry
