// Checks which keys go together. The validate() of a library's options has the library's rules;
// this file only maps members to keys.
#include <algorithm>
#include <map>
#include <set>

#include "apps/config/sections.h"
#include "core/cpu/bfloat16_kernel.h"
#include "data/scores/metrics.h"
#include "nn/models/vision_transformer.h"

namespace tapestry {
namespace {

using Names = std::map<std::string, std::string>;

bool has_section(const Config& config, const TaskSection& section) {
  const std::vector<TaskSection>& sections = config.task->sections;
  return std::any_of(sections.begin(), sections.end(),
                     [&](const TaskSection& own) { return own.bind == section.bind; });
}

/// Rules about the keys of one section (and of `others`): check(OptionReport).
class Rules {
 public:
  explicit Rules(const KeyReport& report) : report_(report) {}

  /// `keys`: full names of the members that are not called as their keys in `section`.
  template <class Check>
  void of(const std::string& section, const std::vector<std::string>& others, const Names& keys,
          Check check) {
    if (!report_.is_sound(section)) return;
    for (const std::string& other : others) {
      if (!report_.is_sound(other) || broken_.contains(other)) return;
    }
    check(OptionReport([&](const std::string& member, const std::string& problem) {
      broken_.insert(section);
      const auto found = keys.find(member);
      report_.complain(found != keys.end() ? found->second
                       : member.empty()    ? section
                                           : section + '.' + member,
                       problem);
    }));
  }

 private:
  const KeyReport& report_;
  std::set<std::string> broken_;  ///< sections with a problem
};

void check_corpora(Rules& rules, const std::string& key, const std::vector<CorpusSpec>& corpora,
                   const Config& config) {
  const ExampleKind& kind = examples_of(config);
  for (size_t i = 0; i < corpora.size(); ++i) {
    const std::string name = corpora.size() == 1 ? key : concat(key, '.', i);
    const Names keys = {{"range_begin", name + ".range"}, {"range_end", name + ".range"}};
    rules.of(name, {}, keys, [&](const OptionReport& report) {
      corpora[i].validate(report);
      report.expect(&examples_of(*config.task, &corpora[i], config.data.rows) == &kind, "",
                    "must be of ", kind.name, ", as the first of data.train is.");
    });
  }
}

// True if another corpus reads a part of the same files.
bool is_split_elsewhere(const CorpusSpec& corpus, const std::vector<const CorpusSpec*>& others) {
  return std::any_of(others.begin(), others.end(), [&](const CorpusSpec* other) {
    return other->split != "all" && other->str() == corpus.str();
  });
}

// A part of a file that nothing else splits is a mistake: 1 % of a file for validation, although
// all of it was meant.
void check_splits(Rules& rules, const std::string& key, const std::vector<CorpusSpec>& corpora,
                  const std::vector<const std::vector<CorpusSpec>*>& elsewhere) {
  std::vector<const CorpusSpec*> others;
  for (const auto* list : elsewhere) {
    for (const CorpusSpec& corpus : *list) others.push_back(&corpus);
  }
  for (size_t i = 0; i < corpora.size(); ++i) {
    const std::string name = corpora.size() == 1 ? key : concat(key, '.', i);
    const CorpusSpec& corpus = corpora[i];
    rules.of(name, {}, {}, [&](const OptionReport& report) {
      report.expect(corpus.split == "all" || is_split_elsewhere(corpus, others), "split", "is ",
                    corpus.split, ", a part of ", corpus.str(),
                    ", but nothing else reads a part of it: with ", name,
                    ".split=all it is read whole, and data.train must have another file or a split "
                    "of its own.");
    });
  }
}

void check_labels(Rules& rules, const std::vector<std::string>& labels) {
  rules.of("data", {}, {}, [&](const OptionReport& report) {
    report.expect(labels.size() != 1, "labels", "must name two classes or more, got one.");
    std::set<std::string> seen;
    for (const std::string& label : labels) {
      report.expect(!label.empty(), "labels", "must be names, got an empty one.");
      report.expect(seen.insert(label).second, "labels", "must name each class once, got '", label,
                    "' twice.");
    }
  });
}

void check_image(Rules& rules, const ImageFormat& image) {
  rules.of("data.image", {}, {}, [&](const OptionReport& report) {
    const ImageSize& size = image.size;
    const bool all = size.height > 0 && size.width > 0 && size.channels > 0;
    report.expect(all || size == ImageSize(), "",
                  "must have height, width and channels or none of them, got ", size.height, ", ",
                  size.width, " and ", size.channels, '.');
    const auto channels = static_cast<size_t>(size.channels);
    report.expect(image.mean.size() == image.std.size() &&
                      (image.mean.empty() || image.mean.size() == channels),
                  "mean", "and std must have a number for each of the ", channels,
                  " channels, or none, got ", image.mean.size(), " and ", image.std.size(), '.');
  });
}

void check_blocks(Rules& rules, const DataOptions& data, const MixOptions& mix, bool cuda_graphs) {
  rules.of("data", {}, {}, [&](const OptionReport& report) {
    report.expect(data.eval_stride <= data.block_size, "eval_stride",
                  "must be at most block_size, got ", data.eval_stride, " and ", data.block_size,
                  '.');
    report.expect(!data.best_fit || !mix.mixes(), "packing",
                  "of best_fit does not go with shares of corpora (weight, sampling_temperature).");
    report.expect(!data.document_mask || !cuda_graphs, "document_mask",
                  "does not go with cuda_graphs: each batch has other documents.");
  });
}

/// The key that limits the length of an example, and its value.
std::pair<const char*, int64_t> longest_example(const Config& config) {
  if (examples_of(config).joined) return {"data.block_size", config.data.block_size};
  return {"data.max_length", config.data.corpus.max_length};
}

void check_model(Rules& rules, const Config& config) {
  const ModelOptions& model = config.model;
  rules.of("model", {}, {}, [&](const OptionReport& report) {
    std::vector<const char*> types;
    for (const ModelType type : model_types(config)) types.push_back(name_of(type));
    report.expect_one_of("type", name_of(config.model_type), types);
  });
  rules.of("model", {}, {{"learned", "model.learn_width"}}, [&](const OptionReport& report) {
    if (traits_of(config.model_type).has_attention) {
      model.validate(report);
    } else if (config.model_type == ModelType::kAttentionPooling) {
      model.pooling.validate(report);
    } else {
      validate_initializer(model, report);
    }
  });
  const ImageSize& size = config.data.image.size;
  if (config.model_type == ModelType::kVit && size.known()) {
    rules.of("model", {"data.image"}, {}, [&](const OptionReport& report) {
      validate_patches(model.patch_size, size.height, size.width, report);
    });
  }
  if (!examples_of(config).of_text()) return;
  rules.of("model", {"data"}, {}, [&](const OptionReport& report) {
    const auto [key, longest] = longest_example(config);
    report.expect(longest <= model.longest_sequence(), "max_position_embeddings",
                  "must be at least ", key, " for learned positions, got ",
                  model.max_position_embeddings, " and ", longest, '.');
  });
}

void check_evaluation(Rules& rules, const EvaluationOptions& evaluation) {
  rules.of("evaluation", {}, {}, [&](const OptionReport& report) {
    std::vector<const char*> names;
    for (const MetricKind& kind : metric_kinds()) names.push_back(kind.name);
    for (const std::string& name : evaluation.extra_metrics) {
      report.expect_one_of("extra_metrics", name, names);
    }
  });
}

// A tokenizer that is trained has no tokens that name languages.
void check_languages(Rules& rules, const Config& config) {
  const bool reads_one = !config.tokenizer.path.empty() || !config.init_from.empty();
  rules.of("generation", {"tokenizer"}, {}, [&](const OptionReport& report) {
    for (const auto& [key, name] :
         {std::pair{"source_language", &config.languages.source_language},
          std::pair{"target_language", &config.languages.target_language}}) {
      report.expect(name->empty() || reads_one, key,
                    "needs a tokenizer that has languages, from init_from or tokenizer.path, got '",
                    *name, "'.");
    }
  });
}

// Of a tokenizer that a file has, only the file says what it can do.
void check_sampling(Rules& rules, const Config& config) {
  const TokenizerOptions& tokenizer = config.tokenizer;
  const bool unigram = tokenizer.type == "sentencepiece" && tokenizer.algorithm == "unigram";
  const bool merges = tokenizer.type == "bpe" ||
                      (tokenizer.type == "sentencepiece" && tokenizer.algorithm == "bpe");
  const bool known = tokenizer.is_trained() && config.init_from.empty();
  for (const auto& [side, how] : {std::pair{"source", &config.variation.source},
                                  std::pair{"target", &config.variation.target}}) {
    rules.of(
        concat("tokenizer.sampling.", side), {"tokenizer"}, {}, [&](const OptionReport& report) {
          report.expect(how->dropout == 0 || how->alpha == 0, "dropout",
                        "excludes alpha: one is for byte-pair encodings, the other for "
                        "algorithm unigram.");
          report.expect(how->nbest == 0 || how->alpha > 0, "nbest", "needs an alpha, got 0.");
          report.expect(!known || how->dropout == 0 || merges, "dropout",
                        "needs a byte-pair encoding: type bpe, or algorithm bpe.");
          report.expect(!known || how->alpha == 0 || unigram, "alpha", "needs algorithm: unigram.");
        });
  }
}

void check_optimizer(Rules& rules, const Config& config) {
  const TrainingOptions& training = config.training;
  rules.of("training.optimizer", {}, {}, [&](const OptionReport& report) {
    validate(config.optimizer, report);
    const bool decays = config.optimizer.weight_decay > 0;
    report.expect(decays || !training.decay_all, "decay_all", "needs a weight_decay, got 0.");
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

// Vectors of texts learn from the other pairs of a batch, and one model reads both sides.
void check_embedding(Rules& rules, const Config& config) {
  if (!config.task->can(kEmbedsTexts)) return;
  rules.of("training", {}, {}, [&](const OptionReport& report) {
    report.expect(config.batch.batch_type != "sentences" || config.batch.batch_size > 1,
                  "batch_size", "must be at least 2 with task: ", config.task->name,
                  ", which compares each pair with the others of its batch, got ",
                  config.batch.batch_size, '.');
  });
  rules.of("tokenizer", {}, {}, [&](const OptionReport& report) {
    report.expect(config.tokenizer.share, "share", "must be true with task: ", config.task->name,
                  ", whose one model reads both sides, got false.");
  });
}

// A config of a checkpoint may come from another machine.
void check_machine(Rules& rules, const Config& config) {
  if (!config.allow_bf16x3) return;
  rules.of("", {}, {{"allow_bf16x3", "allow_bf16x3"}}, [&](const OptionReport& report) {
    const std::string why = why_no_bf16x3(bfloat16_kernel());
    report.expect(why.empty(), "allow_bf16x3", why);
  });
}

void check_distributed(Rules& rules, const Config& config) {
  rules.of("distributed", {"training"}, {}, [&](const OptionReport& report) {
    const int64_t parts = config.distributed.parts;
    const int64_t steps = config.training.gradient_accumulation_steps;
    report.expect(parts == 0 || steps % parts == 0, "parts",
                  "must divide training.gradient_accumulation_steps, got ", parts, " and ", steps,
                  '.');
    report.expect(parts <= 1 || !config.cuda_graphs, "parts",
                  "of more than 1 do not go with cuda_graphs, got ", parts, '.');
  });
}

}  // namespace

void check_rules(const Config& config, const KeyReport& report) {
  Rules rules(report);
  const bool images = examples_of(config).of_images();
  rules.of("data", {}, {}, [&](const OptionReport& report) {
    report.expect(!config.data.train.empty(), "train", "must name a corpus, got none.");
  });
  check_corpora(rules, "data.train", config.data.train, config);
  check_corpora(rules, "data.valid", config.data.valid, config);
  check_corpora(rules, "data.test", config.data.test, config);
  if (report.is_new) {
    check_splits(rules, "data.valid", config.data.valid, {&config.data.train, &config.data.test});
    check_splits(rules, "data.test", config.data.test, {&config.data.train, &config.data.valid});
    check_machine(rules, config);
  }
  rules.of("data", {},
           {{"weight", "data.train.weight"}, {"temperature", "data.sampling_temperature"}},
           [&](const OptionReport& report) { config.batch.mix.validate(report); });
  rules.of("data.clean", {}, {},
           [&](const OptionReport& report) { config.data.clean.validate(report); });
  check_labels(rules, config.data.labels);
  if (images) check_image(rules, config.data.image);
  check_blocks(rules, config.data, config.batch.mix, config.cuda_graphs);
  if (examples_of(config).of_text()) {
    rules.of("tokenizer", {}, {},
             [&](const OptionReport& report) { config.tokenizer.validate(report); });
    check_sampling(rules, config);
  }
  if (has_section(config, kMasking)) {
    rules.of("masking", {}, {},
             [&](const OptionReport& report) { config.masking.validate(report); });
  }
  if (has_section(config, kDenoisingNoise)) {
    rules.of("denoising", {"data"}, {{"max_length", "data.max_length"}},
             [&](const OptionReport& report) { config.denoising.validate(report); });
  }
  check_model(rules, config);
  check_optimizer(rules, config);
  check_schedule(rules, config);
  check_measures(rules, config);
  check_teacher(rules, config.training);
  check_alignment(rules, config);
  check_lora_base(rules, config);
  check_quantize(rules, config);
  check_distributed(rules, config);
  check_evaluation(rules, config.evaluation);
  if (report.is_new) {
    check_languages(rules, config);
    check_embedding(rules, config);
    check_r_drop(rules, config);
  }
  if (has_section(config, kGeneration)) {
    rules.of("generation", {}, {},
             [&](const OptionReport& report) { config.generation.validate(report); });
  }
}

}  // namespace tapestry
