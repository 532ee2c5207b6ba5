// Every task, in the order in which messages name them: the first is a config's default.
#include <algorithm>
#include <utility>

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

Task::Task(TaskKind kind, std::vector<const ModelRow*> rows, Make make, Evaluate evaluate)
    : TaskKind(std::move(kind)), rows(std::move(rows)), make(make), evaluate(evaluate) {
  for (const ModelRow* row : this->rows) {
    (row->of_images ? image_models : models).push_back(row->type);
  }
}

const Task& task_of(const Config& config) { return static_cast<const Task&>(*config.task); }

const ModelRow& model_of(const Config& config) {
  const Task& task = task_of(config);
  const auto found = std::ranges::find(task.rows, config.model_type, &ModelRow::type);
  check(found != task.rows.end(), "task", task.name, " trains no ", name_of(config.model_type),
        '.');
  return **found;
}

std::unique_ptr<TrainingTask> make_task(const Config& config, TokenizerPair tokenizers,
                                        const TaskPlace& place, const Report& report) {
  return task_of(config).make(config, std::move(tokenizers), place, report);
}

}  // namespace tapestry
