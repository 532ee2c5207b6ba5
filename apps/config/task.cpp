#include "apps/config/task.h"

#include <vector>

#include "core/text.h"

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
    case ModelType::kAttentionPooling:
      return "attention_pooling";
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
  std::vector<std::string> names;
  for (const TaskKind* kind : task_kinds()) {
    if (kind->can(ability)) names.push_back(kind->name);
  }
  return join(names, " or ");
}

}  // namespace tapestry
