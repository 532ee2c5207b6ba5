#include "apps/config/task.h"

#include <algorithm>
#include <vector>

#include "core/base/text.h"

namespace tapestry {

namespace {

constexpr ModelTraits kModels[] = {
    {.type = ModelType::kEncoderDecoder,
     .name = "encoder_decoder",
     .reads_two_texts = true,
     .writes = true,
     .has_attention = true,
     .recomputes = true},
    {.type = ModelType::kRnnAttention,
     .name = "rnn_attention",
     .reads_two_texts = true,
     .writes = true},
    {.type = ModelType::kEncoder, .name = "encoder", .has_attention = true, .recomputes = true},
    {.type = ModelType::kDecoder,
     .name = "decoder",
     .writes = true,
     .has_attention = true,
     .recomputes = true},
    {.type = ModelType::kVit, .name = "vit", .has_attention = true, .recomputes = true},
    {.type = ModelType::kLinear, .name = "linear", .recomputes = true},
    {.type = ModelType::kAttentionPooling, .name = "attention_pooling"},
};

}  // namespace

const ModelTraits& traits_of(ModelType type) {
  return *std::ranges::find(kModels, type, &ModelTraits::type);
}

bool TaskKind::reads(Medium medium) const {
  return std::ranges::any_of(examples,
                             [&](const TaskExamples& one) { return one.kind->medium == medium; });
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
