#include "apps/config/sections.h"
#include "data/chat/chat_format.h"

namespace tapestry {

void bind_talks(ConfigSection& s, Config& config, bool applies, const std::string& why) {
  DataOptions& data = config.data;
  std::vector<ConfigChoice<std::string>> templates = {
      {DataOptions::kOwnTemplate, DataOptions::kOwnTemplate}};
  for (const BuiltInTemplate& one : built_in_templates()) templates.push_back({one.name, one.name});
  s.read_choice_if(applies, why, "chat_template", data.chat_template, templates,
                   "The template that makes a text of a talk; auto: the one that came with the "
                   "model, or chatml. It is kept with the model, and exported.");
  s.read_input_file_if(applies, why, "chat_template_path", data.chat_template_path,
                       "File with a chat template in Jinja's language, instead of chat_template.");
  s.read_choice_if(applies, why, "loss_on", data.loss_on,
                   {{"answers", LossOn::kAnswers},
                    {"last_answer", LossOn::kLastAnswer},
                    {"text", LossOn::kText}},
                   "What is learnt of a talk: all answers of the assistant, the last_answer, or "
                   "the whole text. Answers are what the template puts into {% generation %} "
                   "blocks; without them, what follows the generation prompt.");
}

}  // namespace tapestry
