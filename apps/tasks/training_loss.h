// The loss of a batch in training by a teacher.
#pragma once

#include <memory>

#include "apps/tasks/task.h"
#include "apps/tasks/teacher.h"
#include "nn/models/distillation.h"

namespace tapestry {

/// The config's teacher, reported; null if it has none.
inline std::unique_ptr<Teacher> read_teacher(const Config& config, const TokenizerPair& tokenizers,
                                             const Report& report) {
  auto teacher = teacher_of(config, tokenizers);
  if (teacher == nullptr) return teacher;
  report(concat("teacher: ", teacher->summary()));
  if (report.loaded) report.loaded(concat("teacher ", teacher->checksum()));
  return teacher;
}

/// The loss of a batch, by a teacher if there is one; it may be null.
template <class Model, class Batch>
CrossEntropy training_loss(const Model& model, const Batch& batch,
                           const CrossEntropyOptions& options, const Teacher* teacher) {
  return teacher != nullptr ? distilled_loss(model, batch, options, teacher->of(batch))
                            : model.loss(batch, options);
}

}  // namespace tapestry
