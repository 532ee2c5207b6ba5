// Sets the values that follow from other keys.
#include <algorithm>

#include "apps/config/sections.h"
#include "nn/models/translate.h"
#include "nn/models/vision_transformer.h"

namespace tapestry {

ModelOptions model_defaults(ModelType type) {
  return type == ModelType::kVit ? vision_transformer_defaults() : ModelOptions();
}

const TaskExamples& examples_in(const TaskKind& task, const ExampleKind& kind) {
  return *std::ranges::find(task.examples, &kind, &TaskExamples::kind);
}

const std::vector<ModelType>& model_types(const Config& config) {
  return examples_in(*config.task, examples_of(config)).models;
}

Config default_config(const TaskKind& task, const ExampleKind* examples) {
  Config config;
  config.task = &task;
  const TaskExamples& read =
      examples != nullptr ? examples_in(task, *examples) : task.examples.front();
  config.model_type = read.models.front();
  config.model = model_defaults(config.model_type);
  if (read.kind->of_images()) config.batch.batch_size = ImageBatchOptions().batch_size;
  if (task.set_defaults != nullptr) task.set_defaults(config);
  return config;
}

namespace {

// Sizes that follow from others, so that a resolved config shows them.
void settle_sizes(ModelOptions& model) {
  if (model.kv_latent_size > 0) {
    if (model.position_embedding == PositionEmbedding::kRope && model.num_attention_heads > 0) {
      model.rope_head_size = latent_attention_options(model, /*branches=*/1).rope_head_size;
    }
  } else if (model.num_key_value_heads == 0) {
    model.num_key_value_heads = model.num_attention_heads;
  }
  // What the other layers have is not written as attention's own.
  const bool as_others = model.bias ? model.attention_bias == AttentionBias::kAll
                                    : model.attention_bias == AttentionBias::kNone;
  if (as_others) model.attention_bias = AttentionBias::kAsOthers;
  if (model.num_attention_heads > 0) {
    // The usual size is not written as one of its own.
    if (model.head_size * model.num_attention_heads == model.hidden_size) model.head_size = 0;
    if (model.value_head_size == 0) model.value_head_size = model.chosen_head_size();
  }
}

// A vocabulary that is learnt for a template of ours has a token for each of its marks.
void add_chat_symbols(Config& config) {
  const bool own = config.data.chat_template == DataOptions::kOwnTemplate;
  const bool is_learnt = config.tokenizer.is_trained() && config.init_from.empty();
  if (!is_learnt || !config.data.chat_template_path.empty()) return;
  for (const BuiltInTemplate& one : built_in_templates()) {
    if (!own && config.data.chat_template != one.name) continue;
    std::vector<std::string>& symbols = config.tokenizer.user_symbols;
    for (const std::string& symbol : one.symbols) {
      if (std::ranges::count(symbols, symbol) == 0) symbols.push_back(symbol);
    }
    return;  // the first one is the usual one
  }
}

// The file stands beside those of the pairs, and the model knows the head that learns from it.
void derive_alignment(Config& config) {
  const TrainingOptions& training = config.training;
  const int64_t layer = training.alignment_layer;
  for (CorpusSpec& corpus : config.data.train) corpus.alignments = training.alignments;
  config.model.alignment_layer = training.alignments.empty() ? 0
                                 : layer > 0                 ? layer
                                             : usual_alignment_layer(config.model.decoder_layers);
}

}  // namespace

bool has_pooler(const Config& config) {
  return pools_classes(config) || (reads_tokens(config) && config.model.pooled_tokens);
}

bool pools_classes(const Config& config) {
  const TaskKind& task = *config.task;
  return config.model_type == ModelType::kEncoder && examples_of(config).of_text() &&
         (task.can(kClassifies) || task.can(kRatesTexts) || task.can(kFindsClasses));
}

bool reads_tokens(const Config& config) {
  return config.model_type == ModelType::kEncoder &&
         (config.task->can(kLabelsWords) || config.task->can(kFindsAnswers));
}

const std::vector<ConfigChoice<Pooler>>& poolers() {
  static const std::vector<ConfigChoice<Pooler>> all = {{"tanh", Pooler::kTanh},
                                                        {"relu", Pooler::kRelu},
                                                        {"gelu", Pooler::kGelu},
                                                        {"normed", Pooler::kNormed}};
  return all;
}

bool has_r_drop(const TaskKind& task) {
  return task.can(kTranslates) || task.can(kClassifies) || task.can(kFindsClasses) ||
         task.can(kLabelsWords);
}

double usual_learning_rate(const Config& config) {
  const bool factor = config.schedule.type == ScheduleType::kNoam;
  if (factor) return 1;
  // It moves a model that can answer already.
  if (config.task->usual().compared) return 1e-6;
  const OptimizerOptions& optimizer = config.optimizer;
  const bool as_adamw = optimizer.type == OptimizerType::kMuon &&
                        optimizer.muon.adjust_lr_fn == RateByShape::kMatchRmsAdamW;
  return default_learning_rate(as_adamw ? OptimizerType::kAdamW : optimizer.type);
}

double usual_adamw_rate(const Config& config) {
  const bool factor = config.schedule.type == ScheduleType::kNoam;
  return factor ? 1 : default_learning_rate(OptimizerType::kAdamW);
}

void derive(Config& config) {
  const TaskKind& task = *config.task;
  if (config.learning_rate == 0) config.learning_rate = usual_learning_rate(config);
  double& adamw_rate = config.training.adamw_learning_rate;
  const bool muon = config.optimizer.type == OptimizerType::kMuon;
  if (muon && adamw_rate == 0) adamw_rate = usual_adamw_rate(config);
  config.batch.seed = config.seed;
  config.batch.mix.weights.clear();
  for (const CorpusSpec& corpus : config.data.train) {
    config.batch.mix.weights.push_back(corpus.weight);
  }
  const ExampleKind& examples = examples_of(config);
  if (!examples.of_text()) config.batch.batch_type = "sentences";  // of images or points
  config.tokenizer.mask_piece = task.needs_mask_piece;
  if (examples.has_targets) {
    config.tokenizer.target_normalization = config.tokenizer.normalization_of_target();
  }
  if (examples.talks) {
    add_chat_symbols(config);
    settle_talks(config);
  }
  config.tokenizer.sentinels = task.sentinels;
  config.denoising.max_length = config.data.corpus.max_length;
  config.denoising.noise_density = config.denoising.density();
  settle_sizes(config.model);
  derive_alignment(config);
  config.schedule.max_steps = config.training.max_steps;
  config.schedule.model_size = config.model.hidden_size;
  if (config.training.metric_for_best_model.empty()) {
    config.training.metric_for_best_model = examples_in(task, examples).metrics.front();
  }
  if (config.training.lr_metric.empty()) {
    config.training.lr_metric = config.training.metric_for_best_model;
  }
}

void complete(Config& config) {
  derive(config);
  std::string problems;
  int count = 0;
  check_rules(config, {.complain =
                           [&](const std::string& key, const std::string& problem) {
                             problems += concat(++count > 1 ? "\n" : "", '\'', key, "' ", problem);
                           },
                       .is_sound = [](const std::string&) { return true; }});
  if (count > 0) throw Error(ErrorKind::kConfig, problems);
}

}  // namespace tapestry
