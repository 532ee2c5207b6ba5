#include <algorithm>

#include "apps/config/sections.h"
#include "core/base/byte_count.h"
#include "core/base/printable.h"

namespace tapestry {
namespace {

void bind_lora(ConfigSection& s, Config& config) {
  LoraOptions& lora = config.lora;
  s.read("rank", lora.rank, "Inner size of the two matrices of an adapter; 0: no adapters.",
         between(0, 1 << 16));
  const bool on = lora.rank > 0;
  s.read_if(on, "without rank", "alpha", lora.alpha,
            "What an adapter computes is multiplied by alpha / rank.", positive());
  s.read_if(on, "without rank", "dropout", lora.dropout, "Dropout of what adapters read.",
            from_up_to_below(0, 1));
  s.read_if(on, "without rank", "dora", lora.dora,
            "The lengths of the rows of W + alpha / rank B A are parameters of their own, "
            "lora_magnitude, and the adapters turn the rows (DoRA, Liu et al. 2024). PEFT's "
            "use_dora.");
  s.read_if(on, "without rank", "target", lora.target,
            "Paths of the layers that have an adapter, such as layers.0.self_attention.qkv; * "
            "stands for any characters.");
  s.read_if(on, "without rank", "modules_to_save", config.training.modules_to_save,
            "Names of parameters that learn besides the adapters; * stands for any characters.");
  s.read_choice_if(
      on, "without rank", "base", config.training.lora_base,
      {{"dtype", std::nullopt},
       {name_of(WeightFormat::kBFloat16), WeightFormat::kBFloat16},
       {name_of(WeightFormat::kInt8), WeightFormat::kInt8},
       {name_of(WeightFormat::kInt4), WeightFormat::kInt4}},
      "What the matrices that do not learn are kept in, in memory and in checkpoints: dtype as the "
      "rest of the run; bfloat16, int8 (a scale for each row) or int4 (a scale for 32 columns; "
      "embeddings and classifier in int8) take less memory. They are rounded once, when the "
      "training begins, gradients are those of the rounded ones, and an export has these. On a "
      "CPU.");
  if (on && lora.target.empty()) s.complain("target", "'training.lora.target' names no layer.");
}

void bind_schedule(ConfigSection& s, Config& config) {
  ScheduleOptions& schedule = config.schedule;
  s.read_choice(
      "lr_scheduler_type", schedule.type, named(kScheduleTypes),
      "How the rate goes on after the warm-up. Update t, counted from 1, has what Hugging "
      "Face's schedule of that name gives after t steps; the log says the first rate.");
  // A default of its own for each rule and schedule: noam's is a factor.
  if (config.learning_rate == 0) config.learning_rate = usual_learning_rate(config);
  s.read("learning_rate", config.learning_rate,
         "The rate after the warm-up; noam multiplies its own rate by it.", positive());
  const bool constant = schedule.type == ScheduleType::kConstant;
  const bool step = schedule.type == ScheduleType::kStep;
  const bool exponential = schedule.type == ScheduleType::kExponential;
  const std::string why = concat("with lr_scheduler_type: ", name_of(schedule.type));
  s.read("warmup_steps", schedule.warmup_steps,
         "Updates in which the rate rises: update t has learning_rate * t / warmup_steps. So the "
         "first one already moves (Hugging Face's has rate 0), and the last has the full rate. "
         "inverse_sqrt and noam need some.",
         at_least(0));
  s.read("warmup_ratio", schedule.warmup_ratio,
         "warmup_steps as a share of all updates of the run, rounded up; one of the two is 0.",
         between(0, 1));
  s.read_if(!constant, why, "min_learning_rate", schedule.min_learning_rate,
            "The rate never falls below it; linear, cosine, polynomial and the like end there.",
            at_least(0));
  s.read_if(!constant && schedule.type != ScheduleType::kNoam, why, "min_lr_ratio",
            schedule.min_ratio,
            "min_learning_rate as a share of learning_rate; one of the two is 0.", between(0, 1));
  s.read_if(schedule.type == ScheduleType::kPolynomial, why, "lr_power", schedule.power,
            "Exponent of the decay.", positive());
  s.read_if(step, why, "lr_step_size", schedule.step_size,
            "Updates after which the rate falls; must be given.", at_least(0));
  if (exponential) s.demand("lr_gamma");
  s.read_if(step || exponential, why, "lr_gamma", schedule.gamma,
            "Factor by which it falls: after each lr_step_size updates (step), or in each update "
            "(exponential, where it must be given).",
            positive());
  s.read_if(
      schedule.type == ScheduleType::kCosineWithRestarts, why, "lr_num_cycles", schedule.num_cycles,
      "Times that the cosine starts anew at the full rate, the first counted.", between(1, 1e9));
  const bool decays = schedule.type == ScheduleType::kWarmupStableDecay;
  s.read_if(decays, why, "lr_decay_steps", schedule.decay_steps,
            "Updates at the end of the run in which the rate falls; must be given.", at_least(0));
  s.read_choice_if(decays, why, "lr_decay_type", schedule.decay_type, named(kDecayShapes),
                   "How it falls: along a line, half a wave of a cosine, or 1 less the root of the "
                   "part that is over.");
}

// Keys that lower the rate when validations find nothing better.
void bind_plateau(ConfigSection& s, Config& config,
                  const std::vector<ConfigChoice<std::string>>& metrics) {
  PlateauOptions& plateau = config.plateau;
  const bool applies = config.schedule.type == ScheduleType::kReduceOnPlateau;
  const std::string why = concat("with lr_scheduler_type: ", name_of(config.schedule.type));
  std::string& metric = config.training.lr_metric;
  if (metric.empty()) metric = config.training.metric_for_best_model;
  s.read_choice_if(applies, why, "lr_metric", metric, metrics,
                   "reduce_lr_on_plateau: the metric of the validation that must get better, else "
                   "the rate falls. If it is not given: metric_for_best_model.");
  s.read_if(applies, why, "lr_factor", plateau.factor, "What the rate is then multiplied by.",
            above_up_to(0, 1));
  s.read_if(applies, why, "lr_patience", plateau.patience,
            "Validations in a row without a new best after which the next one lets the rate fall.",
            at_least(0));
  s.read_if(applies, why, "lr_threshold", plateau.threshold,
            "By how much a new best must be better.", at_least(0));
  s.read_choice_if(applies, why, "lr_threshold_mode", plateau.threshold_mode,
                   named(kThresholdModes), "lr_threshold is a share of the best, or absolute.");
  s.read_if(applies, why, "lr_cooldown", plateau.cooldown,
            "Validations after a fall that do not count.", at_least(0));
}

// Keys that keep a run inside its memory, and that record why an update went wrong.
void bind_memory_and_flight(ConfigSection& s, Config& config) {
  TrainingOptions& training = config.training;
  const bool points = examples_of(config).of_points();
  const bool batch_norm = config.model.norm == NormKind::kBatch;
  const std::string why = points ? "with task: regression" : "with model.norm: batchnorm";
  s.read_if(
      !points && !batch_norm, why, "splits", training.splits,
      "Parts of a batch, by rows, that go through the model one after the other: less memory, "
      "the same update but for rounding and the draws of dropout.",
      between(1, 1 << 16));
  s.read_if(
      !points, why, "memory_budget", training.memory_budget,
      "The most memory that the training may take (on a GPU: of its own), \"4GB\" or \"600 MiB\": "
      "raises splits and sets recompute until its plan stays below. A run that goes on keeps the "
      "choice. Exit code 5 where nothing does. Empty: no limit.");
  constexpr int64_t kLeast = 1000000;  // a smaller one is a missing unit
  if (!training.memory_budget.empty() && byte_count(training.memory_budget).value_or(0) < kLeast) {
    s.complain("memory_budget",
               "'training.memory_budget' must be a size of 1 MB or more such as 4GB, in ",
               kByteUnits, ", got '", printable(training.memory_budget), "'.");
  }
  s.read("flight_records", training.flight_records,
         "Updates that flight.jsonl in the run folder knows, for tapestry replay; 0: no such file, "
         "and no incidents.",
         between(0, 1 << 20));
  s.read("loss_jump", training.loss_jump,
         "Standard deviations by which a loss must be above the usual one, and a tenth of it, to "
         "count as an incident; 0: none counts.",
         at_least(0));
  s.read("incidents", training.incidents,
         "Most folders incident-STEP of a run: the weights that an update began with whose loss "
         "jumped, or which was not finite.",
         between(0, 1 << 20));
}

// The size of an update, and the end of the run.
void bind_length(ConfigSection& s, Config& config) {
  TrainingOptions& training = config.training;
  const bool points = examples_of(config).of_points();
  const std::string with_task = concat("with task: ", config.task->name);
  s.read_choice_if(examples_of(config).of_text(),
                   points ? with_task : "with images: batch_size counts them", "batch_type",
                   config.batch.batch_type, names(BatchOptions::kTypes), "What batch_size counts.");
  s.read("batch_size", config.batch.batch_size,
         "Size of a batch: tokens with padding, of the longer side; or sentences; or images; or "
         "points.",
         at_least(1));
  s.read("gradient_accumulation_steps", training.gradient_accumulation_steps,
         "Batches of an update: their gradients are added up.", between(1, 1 << 16));
  if (!s.given("num_train_epochs")) s.demand("max_steps");
  s.read("max_steps", training.max_steps,
         "Updates of the run. 0, or not given: as many as num_train_epochs are.", at_least(0));
  s.read("num_train_epochs", training.num_train_epochs,
         "Times through the training data, whole or not, after which the run ends, if max_steps "
         "does not end it before. The batches of the first epoch count for each. 0: no such end.",
         between(0, 1e9));
  s.read("max_hours", training.max_hours,
         "Saves and stops after so many hours of computing; 0: no limit.", at_least(0));
  s.read_if(
      training.max_hours > 0, "without max_hours", "cooldown_share", training.cooldown_share,
      "In this last share of max_hours the rate falls to 0 in a straight line, with which the "
      "run ends. How many updates that takes is found when it begins, and kept, so that a "
      "resumed run has the same rates.",
      from_up_to_below(0, 1));
}

// A model whose predictions are learnt beside the data.
void bind_teacher(ConfigSection& s, Config& config) {
  TrainingOptions& training = config.training;
  s.read_optional_path_if(
      config.task->learns_from_teacher, concat("with task: ", config.task->name), "teacher",
      training.teacher,
      "Run or checkpoint of a trained model of the same task and vocabulary: each target token is "
      "also learnt from the probabilities that it gives to all tokens (word-level distillation). "
      "An update stores its logits.");
  const bool taught = s.given("teacher") || !training.teacher.empty();
  s.read_if(taught, "without teacher", "teacher_weight", training.teacher_weight,
            "Share of the divergence from the teacher in the loss; the rest is the usual one.",
            above_up_to(0, 1));
  s.read_if(taught, "without teacher", "teacher_temperature", training.teacher_temperature,
            "Divides the logits of both models before they are compared; the divergence is "
            "multiplied by its square. Above 1 the teacher's less probable tokens count more.",
            between(0.01, 100));
}

// Attention that learns from alignments of the training's words.
void bind_alignment(ConfigSection& s, Config& config) {
  TrainingOptions& training = config.training;
  s.read_input_files(
      "file", training.alignments,
      "File with the alignment of each pair of data.train, as fast_align, eflomal and translate "
      "--alignments write it: 0-0 1-2 are pairs of words from 0, of the source and the target, "
      "where words stand between spaces. data.train must be one corpus of source and target.");
  const bool guided = s.given("file") || !training.alignments.empty();
  s.read_if(guided, "without file", "weight", training.alignment_weight,
            "Of the cross-entropy between the alignment and the attention, beside the loss of the "
            "translation; both are per target token.",
            above_up_to(0, 1000));
  s.read_if(guided, "without file", "layer", training.alignment_layer,
            "The layer of the decoder, from 1, whose first head learns to align; 0: the last but "
            "one, or the only one. translate --alignments then reads this head.",
            between(0, 1 << 16));
}

// What an update is made of.
void bind_update(ConfigSection& s, Config& config) {
  TrainingOptions& training = config.training;
  s.section("optimizer", "How an update follows from the gradients.",
            [&](ConfigSection& o) { bind_optimizer(o, config); });
  bind_schedule(s, config);
  const std::string with_task = concat("with task: ", config.task->name);
  const ExampleKind& examples = examples_of(config);
  s.read_if(examples.has_choices, with_task, "label_smoothing", training.label_smoothing,
            "Probability that the loss spreads over the whole vocabulary.", from_up_to_below(0, 1));
  const bool translates = examples.has_targets;
  s.read_if(translates, with_task, "word_dropout", config.variation.word_dropout,
            "Chance of a source token to become the unknown one, in training only. Special tokens "
            "and user_symbols stay.",
            from_up_to_below(0, 1));
  s.read_if(has_r_drop(*config.task), with_task, "r_drop", training.r_drop,
            "R-Drop's alpha: each batch goes through the model twice, with other dropout, and the "
            "divergence between the two predictions has this weight. The loss is half of the "
            "paper's, so that 0 is the usual one. 5 as a rule for translation. An update takes "
            "twice the time, and stores its logits, which bfloat16 "
            "rounds. 0: off.",
            between(0, 1000));
  bind_teacher(s, config);
  s.read_choice_if(
      !examples.of_points(), with_task, "quantize", training.quantize,
      {{"none", std::nullopt},
       {name_of(WeightFormat::kInt8), WeightFormat::kInt8},
       {name_of(WeightFormat::kInt4), WeightFormat::kInt4}},
      "Matrices and what they multiply are rounded in every forward pass as --weights int8 or int4 "
      "rounds them, so that the model learns to be right with it, and validations measure that. "
      "Gradients go through the rounding, and checkpoints keep the numbers as they were before. "
      "The run's answers then have these --weights by default.");
  s.section_if(translates && config.task->can(kTranslates), with_task, "guided_alignment",
               "Attention that learns from alignments of words (of type: encoder_decoder).",
               [&](ConfigSection& a) { bind_alignment(a, config); });
  s.read("max_grad_norm", training.max_grad_norm,
         "Scales all gradients down to this norm together; 0: off.", at_least(0));
  s.read_choice_if(
      training.max_grad_norm > 0, "without max_grad_norm", "max_grad_norm_of",
      training.clips_by_former_norm, {{"update", false}, {"former", true}},
      "Whose norm that is: of the update's own gradients, or of those of the update before, which "
      "is "
      "known before backward, for optimizer_in_backward. Then the first update is not clipped, and "
      "a jump of the norm is clipped one update late.");
  s.read("clip_value", training.clip_value, "Clips each element of the gradients; 0: off.",
         at_least(0));
  s.read("optimizer_in_backward", training.optimizer_in_backward,
         "Each parameter is updated as soon as backward has its gradient, whose memory is then "
         "free: the same bits without the memory of all gradients. On a CPU, with one batch an "
         "update (gradient_accumulation_steps and splits 1), and without max_grad_norm or with "
         "max_grad_norm_of: former. A gradient "
         "that is not finite then ends the run, if others were applied before; a loss that is not "
         "finite is skipped as ever.");
  s.read("ema_decay", training.ema_decay,
         "Decay of an average of the weights, which is validated and used in place of them; 0: "
         "off.",
         from_up_to_below(0, 1));
}

// What is logged, validated and kept, and what ends a run early.
void bind_reports(ConfigSection& s, Config& config) {
  TrainingOptions& training = config.training;
  const bool points = examples_of(config).of_points();
  const std::string with_task = concat("with task: ", config.task->name);
  s.read("logging_steps", training.logging_steps, "Updates from one line of the log to the next.",
         at_least(1));
  s.read("eval_steps", training.eval_steps,
         "Updates from one validation to the next; there is one at the end. 0: only that.",
         at_least(0));
  s.read("eval_batch_size", training.eval_batch_size,
         "Sentences that the validation translates at a time.", at_least(1));
  s.read_if(!points, with_task, "samples", training.samples,
            "Examples of the validation set, always the same, of which samples.jsonl keeps at each "
            "validation what the model makes of them: translations, continuations, restored masks, "
            "classes; 0: none.",
            between(0, 1000));
  s.read("save_steps", training.save_steps,
         "Updates from one checkpoint to the next; there is one at the end. 0: only that.",
         at_least(0));
  s.read("save_total_limit", training.save_total_limit,
         "Checkpoints kept, the best and the last among them, and always the last one that a later "
         "update has proved good; 0: all.",
         at_least(0));
  s.read("early_stopping_patience", training.early_stopping_patience,
         "Stops after so many validations without a new best; 0: never.", at_least(0));
  s.read_if(
      !points, with_task, "divergence_patience", training.divergence_patience,
      "Ends the run with exit code 4 after so many updates in a row whose loss is above that "
      "of a uniform guess and of the run's beginning, by a tenth; those of the warm-up do not "
      "count. 0: never.",
      between(0, 1 << 30));
  std::vector<ConfigChoice<std::string>> metrics;
  for (const char* metric : examples_in(*config.task, examples_of(config)).metrics) {
    metrics.push_back({metric, metric});
  }
  s.read_choice("metric_for_best_model", training.metric_for_best_model, metrics,
                "The metric of the validation that tells the best checkpoint.");
  bind_plateau(s, config, metrics);
  s.read("report_to", training.report_to,
         "Where the numbers of the run go besides metrics.jsonl. tensorboard: event files in "
         "output_dir, for TensorBoard's curves, text and HParams pages.");
  for (const std::string& name : training.report_to) {
    if (std::find(std::begin(training.kReporters), std::end(training.kReporters), name) ==
        std::end(training.kReporters)) {
      s.complain("report_to", "'training.report_to': expected tensorboard, got '", name, "'.");
    }
  }
}

}  // namespace

void bind_training(ConfigSection& s, Config& config) {
  TrainingOptions& training = config.training;
  bind_length(s, config);
  bind_update(s, config);
  bind_reports(s, config);
  s.read("freeze", training.freeze,
         "Names of parameters that do not learn; * stands for any characters.");
  if (!examples_of(config).of_points()) {
    s.section("lora",
              "Low-rank adapters (LoRA): the model stays as it is, usually one of init_from, and "
              "small matrices beside its own learn.",
              [&](ConfigSection& l) { bind_lora(l, config); });
  }
  s.read_if(traits_of(config.model_type).recomputes,
            concat("with type: ", name_of(config.model_type)), "recompute", config.model.recompute,
            "Keeps only the input of each layer and computes the rest again in the backward pass: "
            "less memory, about a third more time, the same bits.");
  bind_memory_and_flight(s, config);
}

}  // namespace tapestry
