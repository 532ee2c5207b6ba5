#include "apps/config/rules.h"
#include "data/scores/metrics.h"

namespace tapestry {
namespace {

void check_optimizer(Rules& rules, const Config& config) {
  const TrainingOptions& training = config.training;
  rules.of("training.optimizer", {}, {}, [&](const OptionReport& report) {
    validate(config.optimizer, report);
    const bool decays = config.optimizer.weight_decay > 0;
    report.expect(decays || !training.decay_all, "decay_all", "needs a weight_decay, got 0.");
    report.expect(
        config.optimizer.state_dtype != StateType::kFloat8 || !config.device.starts_with("cuda"),
        "state_dtype", "float8 is for device: cpu, got device: ", config.device, '.');
    report.expect(decays || training.decay_exclude.empty(), "decay_exclude",
                  "needs a weight_decay, got 0.");
  });
}

void check_schedule(Rules& rules, const Config& config) {
  const TrainingOptions& training = config.training;
  rules.of("training", {}, {}, [&](const OptionReport& report) {
    report.expect(training.max_steps >= 1 || training.num_train_epochs > 0, "max_steps",
                  "must be at least 1 without num_train_epochs, got ", training.max_steps, '.');
    config.batch.validate(report);
  });
  rules.of("training", {},
           {{"power", "training.lr_power"},
            {"step_size", "training.lr_step_size"},
            {"gamma", "training.lr_gamma"},
            {"num_cycles", "training.lr_num_cycles"},
            {"decay_steps", "training.lr_decay_steps"},
            {"min_ratio", "training.min_lr_ratio"},
            {"model_size", "model.hidden_size"}},
           [&](const OptionReport& report) {
             ScheduleOptions schedule = config.schedule;
             // The number of updates in the epochs is known only with the data; this is more than
             // any.
             constexpr int64_t kEndless = int64_t{1} << 60;
             if (training.num_train_epochs > 0 && schedule.max_steps == 0)
               schedule.max_steps = kEndless;
             validate(schedule, config.learning_rate, report);
           });
  if (config.schedule.type == ScheduleType::kReduceOnPlateau) {
    rules.of("training", {},
             {{"factor", "training.lr_factor"},
              {"patience", "training.lr_patience"},
              {"threshold", "training.lr_threshold"},
              {"cooldown", "training.lr_cooldown"}},
             [&](const OptionReport& report) { validate(config.plateau, report); });
  }
}

// The metrics that tell the best checkpoint, and those of a validation that decides something.
void check_measures(Rules& rules, const Config& config) {
  const TrainingOptions& training = config.training;
  rules.of("training", {"data"}, {}, [&](const OptionReport& report) {
    const auto [key, longest] = longest_example(config);
    report.expect(config.batch.batch_type != "tokens" || config.batch.batch_size >= longest,
                  "batch_size", "must hold the tokens of ", key, ", got ", config.batch.batch_size,
                  " and ", longest, '.');
    const auto& extra = config.evaluation.extra_metrics;
    const auto is_measured = [&](const char* key, const std::string& metric) {
      report.expect(config.evaluation.rouge || !metric.starts_with("rouge"), key,
                    "needs evaluation.rouge: true, got '", metric, "'.");
      const bool is_extra = metric != "bleu" && metric != "chrf" && find_metric(metric) != nullptr;
      report.expect(!is_extra || std::count(extra.begin(), extra.end(), metric) > 0, key,
                    "needs itself in evaluation.extra_metrics, got '", metric, "'.");
      const bool of_numbers = examples_of(config).of_points() && !config.data.train.empty() &&
                              config.data.train.front().class_column.empty();
      report.expect(!of_numbers || metric != "accuracy", key,
                    "needs a class_column of the points, got '", metric, "'.");
    };
    is_measured("metric_for_best_model", training.metric_for_best_model);
    if (config.schedule.type == ScheduleType::kReduceOnPlateau) {
      is_measured("lr_metric", training.lr_metric);
      report.expect(!config.data.valid.empty(), "lr_scheduler_type",
                    "reduce_lr_on_plateau needs a validation set, got no 'data.valid'.");
    }
    report.expect(training.early_stopping_patience == 0 || !config.data.valid.empty(),
                  "early_stopping_patience", "needs a validation set, got no 'data.valid'.");
  });
}

// Without dropout both passes are the same, and twice the time brings nothing.
void check_r_drop(Rules& rules, const Config& config) {
  const ModelOptions& model = config.model;
  const bool linear = config.model_type == ModelType::kLinear;
  const bool adapters_drop = config.lora.rank > 0 && config.lora.dropout > 0;
  const bool drops = !linear && (model.dropout > 0 || model.attention_dropout > 0 ||
                                 model.activation_dropout > 0 || adapters_drop);
  rules.of("training", {"model"}, {}, [&](const OptionReport& report) {
    report.expect(config.training.r_drop == 0 || drops, "r_drop",
                  "needs a dropout, by which two passes differ: model.dropout, attention_dropout, "
                  "activation_dropout or training.lora.dropout above 0.");
  });
}

// Products with a base in a format are there for CPUs.
void check_lora_base(Rules& rules, const Config& config) {
  const std::optional<WeightFormat>& base = config.training.lora_base;
  rules.of("training", {}, {}, [&](const OptionReport& report) {
    report.expect(!base || !config.device.starts_with("cuda"), "lora.base",
                  "is for device: cpu, got ", base ? name_of(*base) : "",
                  " and device: ", config.device, '.');
  });
}

// Adapters are merged into their matrix before it is rounded, but learn beside a rounded one.
void check_quantize(Rules& rules, const Config& config) {
  rules.of("training", {}, {}, [&](const OptionReport& report) {
    report.expect(!config.training.quantize || config.lora.rank == 0, "quantize",
                  "does not go with training.lora, got ",
                  config.training.quantize ? name_of(*config.training.quantize) : "none", '.');
  });
}

// A gradient must be complete after one pass, and is gone before the norm of all is known.
void check_in_backward(Rules& rules, const Config& config) {
  const TrainingOptions& training = config.training;
  if (!training.optimizer_in_backward) return;
  rules.of("training", {}, {}, [&](const OptionReport& report) {
    const auto expect = [&](bool holds, const auto&... wanted) {
      report.expect(holds, "optimizer_in_backward", wanted..., '.');
    };
    expect(!config.device.starts_with("cuda"), "is for device: cpu, got device: ", config.device);
    expect(training.gradient_accumulation_steps == 1, "needs gradient_accumulation_steps: 1, got ",
           training.gradient_accumulation_steps,
           ": the gradients of several batches are added up before an update");
    expect(training.splits == 1, "needs splits: 1, got ", training.splits,
           ": the gradients of a batch's parts are added up before an update");
    expect(training.max_grad_norm == 0 || training.clips_by_former_norm,
           "needs max_grad_norm_of: former with max_grad_norm: ", training.max_grad_norm,
           ", got update: the norm of all gradients is known only when they are gone");
  });
}

// Each of the two has a loss of its own.
void check_teacher(Rules& rules, const TrainingOptions& training) {
  rules.of("training", {}, {}, [&](const OptionReport& report) {
    report.expect(training.teacher.empty() || training.r_drop == 0, "r_drop",
                  "does not go with training.teacher, got ", training.r_drop, '.');
  });
}

void check_alignment(Rules& rules, const Config& config) {
  const TrainingOptions& training = config.training;
  if (training.alignments.empty()) return;
  rules.of("training.guided_alignment", {"model"}, {}, [&](const OptionReport& report) {
    const int64_t layers = config.model.decoder_layers;
    report.expect(config.model_type == ModelType::kEncoderDecoder, "file",
                  "is for model.type: encoder_decoder, got ", name_of(config.model_type), '.');
    report.expect(training.alignment_layer <= layers, "layer", "must be at most ", layers,
                  ", the model's decoder_layers, got ", training.alignment_layer, '.');
    const size_t corpora = config.data.train.size();
    report.expect(corpora == 1, "file", "belongs to one corpus, got ", corpora,
                  " in data.train: join their files in the same order.");
    report.expect(corpora != 1 || !config.data.train[0].source.empty(), "file",
                  "needs data.train with source and target, got ",
                  corpora == 1 ? config.data.train[0].str() : "", '.');
    const bool sampled = config.variation.source.is_on() || config.variation.target.is_on();
    report.expect(!sampled, "file",
                  "does not go with tokenizer.sampling (dropout, alpha, nbest), whose pieces "
                  "differ from epoch to epoch.");
    report.expect(
        !config.variation.changes.is_on(), "file",
        "does not go with data.augment (upper_case, title_case, no_end_mark, typos), whose "
        "words differ from epoch to epoch.");
  });
}

}  // namespace

void check_training(Rules& rules, const Config& config, bool is_new) {
  check_optimizer(rules, config);
  check_schedule(rules, config);
  check_measures(rules, config);
  check_teacher(rules, config.training);
  check_alignment(rules, config);
  check_lora_base(rules, config);
  check_quantize(rules, config);
  check_in_backward(rules, config);
  if (is_new) check_r_drop(rules, config);
}

}  // namespace tapestry
