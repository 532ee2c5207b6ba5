// Every task, in the order in which messages name them: the first is a config's default.
#include "apps/tasks/task.h"

namespace tapestry {

extern const Task kTranslation;
extern const Task kClm;
extern const Task kMlm;
extern const Task kDenoising;
extern const Task kClassification;
extern const Task kQuestionAnswering;
extern const Task kRegression;

namespace {

const TaskKind* const kTasks[] = {
    &kTranslation, &kClm, &kMlm, &kDenoising, &kClassification, &kQuestionAnswering, &kRegression,
};

}  // namespace

std::span<const TaskKind* const> task_kinds() { return kTasks; }

const Task& task_of(const Config& config) { return static_cast<const Task&>(*config.task); }

std::unique_ptr<TrainingTask> make_task(const Config& config, TokenizerPair tokenizers,
                                        const TaskPlace& place, const Report& report) {
  return task_of(config).make(config, std::move(tokenizers), place, report);
}

}  // namespace tapestry
