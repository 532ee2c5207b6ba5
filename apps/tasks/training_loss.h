// The loss of a batch in training, beside the one that validations measure: R-Drop, and a teacher.
#pragma once

#include <memory>
#include <type_traits>

#include "apps/tasks/task.h"
#include "apps/tasks/teacher.h"
#include "nn/models/distillation.h"
#include "nn/models/r_drop.h"

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

/// The loss of a batch as the config has it; `teacher` may be null.
template <class Model, class Batch>
CrossEntropy training_loss(const Model& model, const Batch& batch,
                           const CrossEntropyOptions& options, const Config& config,
                           const Teacher* teacher) {
  if (teacher != nullptr) return distilled_loss(model, batch, options, teacher->of(batch));
  if constexpr (std::is_same_v<Batch, EncoderDecoder::Batch>) {
    const double alpha = config.training.r_drop;
    if (alpha > 0) return r_drop_loss(model, batch, options, alpha);
  }
  return model.loss(batch, options);
}

}  // namespace tapestry
