#include "apps/config/task.h"

namespace tapestry {

const char* name_of(ModelType type) {
  switch (type) {
    case ModelType::kEncoderDecoder:
      return "encoder_decoder";
    case ModelType::kRnnAttention:
      return "rnn_attention";
    case ModelType::kEncoder:
      return "encoder";
    case ModelType::kDecoder:
      return "decoder";
    case ModelType::kVit:
      return "vit";
    case ModelType::kLinear:
      return "linear";
  }
  return "";
}

const TaskKind* find_task(std::string_view name) {
  for (const TaskKind* kind : task_kinds()) {
    if (kind->name == name) return kind;
  }
  return nullptr;
}

std::string tasks_that_can(Ability ability) {
  std::string names;
  for (const TaskKind* kind : task_kinds()) {
    if (!kind->can(ability)) continue;
    names += names.empty() ? "" : " or ";
    names += kind->name;
  }
  return names;
}

}  // namespace tapestry
