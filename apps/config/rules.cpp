// Checks which keys go together. The validate() of a library's options has the library's rules;
// this file only maps members to keys.
#include <algorithm>
#include <map>

#include "apps/config/rules.h"
#include "core/cpu/bfloat16_kernel.h"
#include "core/cpu/portable_bits.h"
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
  rules.of("", {}, {{"allow_bf16x3", "allow_bf16x3"}}, [&](const OptionReport& report) {
    const std::string why = config.allow_bf16x3 ? why_no_bf16x3(bfloat16_kernel()) : "";
    report.expect(why.empty(), "allow_bf16x3", why);
    report.expect(!config.allow_bf16x3 || !config.portable_bits, "allow_bf16x3",
                  "has the bits of one kind of processor, deterministic: portable those of all.");
  });
  if (!config.portable_bits) return;
  rules.of("", {}, {{"deterministic", "deterministic"}}, [&](const OptionReport& report) {
    const std::string why = why_no_portable_bits();
    report.expect(why.empty(), "deterministic", why);
    report.expect(!config.device.starts_with("cuda"), "deterministic",
                  "portable is for device: cpu, got device: ", config.device, '.');
    report.expect(config.dtype != DType::kFloat64, "deterministic",
                  "portable is for dtype: float32 and bfloat16, got float64, whose products are "
                  "OpenBLAS's.");
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
    if (config.distributed.on_failure != OnFailure::kShrink) return;
    report.expect(parts > 0, "on_failure",
                  "shrink needs distributed.parts of 1 or more, by which fewer ranks have the same "
                  "bits, got ",
                  parts, '.');
    report.expect(config.distributed.engine != "none", "on_failure",
                  "shrink is for ranks that train together, got distributed.engine: none.");
    report.expect(config.distributed.sum != DeviceSums::kNccl, "on_failure",
                  "shrink does not go with distributed.sum: nccl, which has other bits for another "
                  "number of ranks.");
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
  check_training(rules, config, report.is_new);
  check_distributed(rules, config);
  check_evaluation(rules, config.evaluation);
  if (report.is_new) {
    check_languages(rules, config);
    check_embedding(rules, config);
  }
  if (has_section(config, kGeneration)) {
    rules.of("generation", {}, {},
             [&](const OptionReport& report) { config.generation.validate(report); });
  }
}

}  // namespace tapestry
