#include <algorithm>

#include "apps/config/sections.h"

namespace tapestry {
namespace {

// The rule comes first: eps and weight_decay have another default for each.
void bind_optimizer(ConfigSection& s, OptimizerOptions& optimizer) {
  OptimizerType type = optimizer.type;
  s.read_choice("name", type, named(kOptimizerTypes));
  if (type != optimizer.type) optimizer = optimizer_defaults(type);
  const OptimizerReads reads = reads_of(type);
  const std::string why = concat("with name: ", name_of(type));
  s.read("weight_decay", optimizer.weight_decay, at_least(0));
  s.read_if(reads.momentum, why, "momentum", optimizer.momentum, from_up_to_below(0, 1));
  s.read_if(reads.alpha, why, "alpha", optimizer.alpha, from_up_to_below(0, 1));
  s.read_if(reads.rho, why, "rho", optimizer.rho, from_up_to_below(0, 1));
  std::vector<double> betas(optimizer.betas.begin(), optimizer.betas.end());
  s.read_if(reads.betas, why, "betas", betas, from_up_to_below(0, 1));
  if (betas.size() == 2) {
    optimizer.betas = {betas[0], betas[1]};
  } else {
    s.complain("betas", "'training.optimizer.betas' must be two numbers, got ", betas.size(), '.');
  }
  s.read_if(reads.eps, why, "eps", optimizer.eps, positive());
}

void bind_schedule(ConfigSection& s, Config& config) {
  ScheduleOptions& schedule = config.schedule;
  s.read("learning_rate", config.learning_rate, positive());
  s.read_choice("lr_scheduler_type", schedule.type, named(kScheduleTypes));
  const bool polynomial = schedule.type == ScheduleType::kPolynomial;
  const bool constant = schedule.type == ScheduleType::kConstant;
  const bool step = schedule.type == ScheduleType::kStep;
  const std::string why = concat("with lr_scheduler_type: ", name_of(schedule.type));
  s.read("warmup_steps", schedule.warmup_steps, at_least(0));
  s.read_if(!constant, why, "min_learning_rate", schedule.min_learning_rate, at_least(0));
  s.read_if(polynomial, why, "lr_power", schedule.power, positive());
  s.read_if(step, why, "lr_step_size", schedule.step_size, at_least(0));
  s.read_if(step, why, "lr_gamma", schedule.gamma, positive());
  schedule.max_steps = config.training.max_steps;
  schedule.model_size = config.model.hidden_size;
  const bool told = schedule.max_steps <= 0 || schedule.model_size <= 0;  // what is wrong
  if (told) return;
  try {
    validate(schedule, config.learning_rate);
  } catch (const Error& error) {
    s.complain("lr_scheduler_type", error.what());
  }
}

}  // namespace

void bind_training(ConfigSection& s, Config& config) {
  TrainingOptions& training = config.training;
  const bool images = reads_images(config);
  if (images && config.batch.batch_type != "sentences") {
    config.batch.batch_type = "sentences";  // images, here
    config.batch.batch_size = ImageBatchOptions().batch_size;
  }
  s.read_choice_if(!images, "with images: batch_size counts them", "batch_type",
                   config.batch.batch_type, names({"tokens", "sentences"}));
  s.read("batch_size", config.batch.batch_size, positive());
  const bool blocks = config.task->reads_blocks;
  const int64_t longest = blocks ? config.data.block_size : config.data.corpus.max_length;
  if (config.batch.batch_type == "tokens" && config.batch.batch_size < longest) {
    s.complain("batch_size", "'training.batch_size' (tokens) must hold a row of data.",
               blocks ? "block_size" : "max_length", ", got ", config.batch.batch_size, " and ",
               longest, '.');
  }
  s.read("gradient_accumulation_steps", training.gradient_accumulation_steps, positive());
  s.require("max_steps", training.max_steps, positive());
  s.read("max_hours", training.max_hours, at_least(0));
  s.section("optimizer", [&](ConfigSection& o) { bind_optimizer(o, config.optimizer); });
  bind_schedule(s, config);
  s.read("label_smoothing", training.label_smoothing, from_up_to_below(0, 1));
  s.read("max_grad_norm", training.max_grad_norm, at_least(0));
  s.read("clip_value", training.clip_value, at_least(0));
  s.read("ema_decay", training.ema_decay, from_up_to_below(0, 1));
  s.read("logging_steps", training.logging_steps, positive());
  s.read("eval_steps", training.eval_steps, at_least(0));
  s.read("eval_batch_size", training.eval_batch_size, positive());
  s.read("save_steps", training.save_steps, at_least(0));
  s.read("save_total_limit", training.save_total_limit, at_least(0));
  s.read("early_stopping_patience", training.early_stopping_patience, at_least(0));
  const std::vector<const char*>& metrics = config.task->metrics;
  std::vector<ConfigChoice<std::string>> choices;
  for (const char* metric : metrics) choices.push_back({metric, metric});
  if (std::find(metrics.begin(), metrics.end(), training.metric_for_best_model) == metrics.end()) {
    training.metric_for_best_model = metrics.front();
  }
  s.read_choice("metric_for_best_model", training.metric_for_best_model, choices);
  s.read("freeze", training.freeze);
  s.read_if(config.model_type != ModelType::kRnnAttention, "with type: rnn_attention", "recompute",
            config.model.recompute);
  if (training.early_stopping_patience > 0 && config.data.valid.empty()) {
    s.complain("early_stopping_patience",
               "'training.early_stopping_patience' needs a validation set, got no 'data.valid'.");
  }
}

void bind_generation(ConfigSection& s, Config& config) {
  SearchOptions& search = config.generation;
  const size_t problems = s.problems();
  s.read("num_beams", search.num_beams, positive());
  s.read("length_penalty", search.length_penalty, at_least(0));
  s.read_choice("length_penalty_type", search.length_penalty_type,
                {{"average", LengthPenalty::kAverage},
                 {"gnmt", LengthPenalty::kGnmt},
                 {"none", LengthPenalty::kNone}});
  s.read("max_length_ratio", search.max_length_ratio, positive());
  s.read("do_sample", search.do_sample);
  s.read("temperature", search.temperature, positive());
  s.read("top_k", search.top_k, at_least(0));
  s.read("top_p", search.top_p, between(0, 1));
  s.read("frequency_penalty", search.frequency_penalty);
  s.read("presence_penalty", search.presence_penalty);
  s.read("repetition_penalty", search.repetition_penalty, positive());
  s.read("no_repeat_ngram_size", search.no_repeat_ngram_size, at_least(0));
  s.read("min_new_tokens", search.min_new_tokens, at_least(0));
  s.read("max_new_tokens", search.max_new_tokens, at_least(0));
  complain_unless_valid(s, problems, "do_sample", search);
}

void bind_evaluation(ConfigSection& s, Config& config) {
  EvaluationOptions& evaluation = config.evaluation;
  s.read_choice("bleu_tokenize", evaluation.bleu_tokenize, names({"13a", "none"}));
  s.read("lowercase", evaluation.lowercase);
  s.read("num_beams", evaluation.num_beams, between(1, 1024));
}

}  // namespace tapestry
