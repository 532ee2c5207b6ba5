// tapestry evaluate: what a model of any task achieves on data, or scores of files of translations.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/command.h"
#include "apps/commands/evaluate_translations.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/options.h"
#include "apps/commands/padded.h"
#include "apps/tasks/answers/alignment_error.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/evaluation_data.h"
#include "apps/tasks/prompts/prompt_answering.h"
#include "apps/tasks/task.h"
#include "core/base/text.h"
#include "core/cpu/parallel.h"
#include "data/examples/block_batching.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

/// With a model: data, or one of text, images, squad and jsonl, which are short for it.
struct EvaluateArguments {
  TranslationScoring translations = {};
  bool json = false;
  std::string model = {};              ///< empty: files of translations
  std::vector<std::string> data = {};  ///< train, valid, test; a file; or keys as of data.train
  std::string text = {};
  std::string documents = {};  ///< of text, as in a config; "": as in the training
  std::string images = {};
  std::string labels = {};  ///< of images
  std::string squad = {};
  std::string jsonl = {};
  // Of a text in blocks; 0: as the config says.
  int64_t block_size = 0;
  int64_t stride = 0;
  std::string judge = {};      ///< command that judges answers; "": none
  std::string alignment = {};  ///< gold of the words of source and target; "": not measured
  int64_t alignment_layer = 0;
  SearchArguments languages = {};
  WeightChoice weights = {};
  ComputeArguments compute = {};
};

// The names of --data and its short forms.
std::vector<std::string> data_of(const EvaluateArguments& arguments) {
  std::vector<std::string> data = arguments.data;
  const std::pair<const char*, const std::string*> shorts[] = {
      {"text", &arguments.text},     {"documents", &arguments.documents},
      {"images", &arguments.images}, {"labels", &arguments.labels},
      {"squad", &arguments.squad},   {"jsonl", &arguments.jsonl}};
  for (const auto& [key, value] : shorts) {
    if (!value->empty()) data.push_back(concat(key, '=', Json(*value).dump()));
  }
  return data;
}

// Each short form of --data is for certain models only.
void check_model(const EvaluateArguments& arguments, const ModelFiles& files) {
  const auto need = [&](const char* who, Ability ability) {
    if (files.config.task->can(ability)) return;
    fail(ErrorKind::kData, '[', who, "] expected a model of task ", tasks_that_can(ability), ", ",
         files.folder, " holds one of task ", files.config.task->name, '.');
  };
  if (!arguments.text.empty()) need("evaluate --text", kModelsText);
  if (!arguments.languages.overrides.empty()) need("evaluate of languages", kTranslates);
  if (!arguments.squad.empty()) need("evaluate --squad", kFindsAnswers);
  if (!arguments.alignment.empty()) need("evaluate --alignment", kTranslates);
  if (!arguments.images.empty() && !examples_of(files.config).of_images()) {
    fail(ErrorKind::kData, "[evaluate --images] expected a model of images, ", files.folder,
         " holds one of texts.");
  }
}

// How a text is cut into blocks, for this evaluation.
void set_blocks(const EvaluateArguments& arguments, const std::string& folder, Config& config) {
  if (arguments.block_size == 0 && arguments.stride == 0) return;
  if (!examples_of(config).joined || !config.task->can(kContinuesText)) {
    fail(ErrorKind::kConfig, "[evaluate] --block-size and --stride are for causal models of text ",
         "in blocks; ", folder, " holds one of ", config.task->name, " on ",
         examples_of(config).name, '.');
  }
  const int64_t longest = config.model.longest_sequence();
  if (arguments.block_size > longest) {
    fail(ErrorKind::kConfig, "[evaluate] --block-size must be at most ", longest,
         ", which the model can read, got ", arguments.block_size, '.');
  }
  int64_t& block_size = config.data.block_size;
  if (arguments.block_size > 0) block_size = arguments.block_size;
  if (arguments.stride > block_size) {
    fail(ErrorKind::kConfig, "[evaluate] --stride must be at most the block size, ", block_size,
         ", got ", arguments.stride, '.');
  }
  if (arguments.stride > 0) config.data.eval_stride = arguments.stride;
  // Batches hold as many tokens as before.
  BatchOptions& batch = config.batch;
  if (batch.batch_type == "tokens") batch.batch_size = std::max(batch.batch_size, block_size);
}

// Losses are those of weights that are rounded as packing rounds them; searches pack them.
void set_weights(const WeightChoice& weights, const std::string& folder, Config& config) {
  if (!weights.format) return;
  const bool rounds = *weights.format != WeightFormat::kFloat32;
  if (rounds && config.lora.rank > 0) {
    fail(ErrorKind::kConfig, "[evaluate] --weights ", name_of(*weights.format),
         " rounds merged weights, but ", folder,
         " holds adapters: export it, and evaluate what `tapestry import` makes of that.");
  }
  config.training.quantize = rounds ? weights.format : std::nullopt;
}

void print_classes(const ClassScores& scores) {
  constexpr size_t kMostShown = 20;  // of the confusion: more classes do not fit on a screen
  int64_t width = 5;
  for (const auto& one : scores.classes) width = std::max(width, count_code_points(one.name));
  fmt::print("\n{}  precision  recall      f1  examples\n", padded("class", width));
  for (const auto& one : scores.classes) {
    fmt::print("{}  {:9.2f}  {:6.2f}  {:6.2f}  {:8}\n", padded(one.name, width), one.precision,
               one.recall, one.f1, one.examples);
  }
  if (scores.confusion.empty()) return;
  if (scores.classes.size() > kMostShown) {
    fmt::print("\n--json has the confusion of the {} classes.\n", scores.classes.size());
    return;
  }
  fmt::print("\nconfusion: a row for each class, a column for each prediction, in this order\n");
  for (size_t i = 0; i < scores.classes.size(); ++i) {
    fmt::print("{}", padded(scores.classes[i].name, width));
    for (const int64_t count : scores.confusion[i]) fmt::print(" {:6}", count);
    fmt::print("\n");
  }
}

void print(const Evaluation& result) {
  std::string line;
  for (const auto& [name, value, kind, interval] : result.figures) {
    std::string words = name;
    std::ranges::replace(words, '_', ' ');
    line += concat(line.empty() ? "" : "  ", words, ' ');
    const int digits = kind == Evaluation::Kind::kCount     ? 0
                       : kind == Evaluation::Kind::kPercent ? 2
                                                            : 4;
    line += fmt::format("{:.{}f}", value, digits);
    if (interval) {
      line += fmt::format(" ({:.{}f} to {:.{}f})", interval->low, digits, interval->high, digits);
    }
    if (kind == Evaluation::Kind::kPercent) line += " %";
  }
  fmt::print("{}\n", line);
  if (result.classes) print_classes(*result.classes);
}

Evaluation measure_alignment(const EvaluateArguments& arguments,
                             const std::vector<CorpusSpec>& corpora) {
  if (corpora.size() != 1 || corpora[0].source.empty()) {
    fail(
        ErrorKind::kConfig,
        "[evaluate --alignment] expected --data source=FILE target=FILE, or a data set of one such "
        "corpus, got ",
        corpora.empty() ? "none" : corpora[0].str(), corpora.size() > 1 ? " and others." : ".");
  }
  constexpr int64_t kSentences = 32;
  CorpusSpec corpus = corpora[0];
  corpus.alignments = arguments.alignment;
  const Translator translator({.paths = {arguments.model}, .format = arguments.weights},
                              arguments.compute.device, "evaluate --alignment", kTranslates, {});
  return evaluate_alignment(translator, corpus, arguments.alignment_layer, kSentences);
}

Evaluation measure(const EvaluateArguments& arguments, ModelFiles files,
                   const std::vector<CorpusSpec>& corpora) {
  const std::string& device = arguments.compute.device;
  if (!arguments.alignment.empty()) return measure_alignment(arguments, corpora);
  if (arguments.judge.empty()) return evaluate_on(std::move(files), device, corpora);
  for (const CorpusSpec& corpus : corpora) {
    const ExampleKind& kind = examples_of(*files.config.task, &corpus, files.config.data.rows);
    if (files.config.task->can(kContinuesText) && kind.prompted) continue;
    fail(ErrorKind::kConfig,
         "[evaluate --judge] expected a causal model and records with the keys prompt and answer, "
         "got ",
         files.config.task->name, " on ", kind.name, " in ", corpus.str(), '.');
  }
  return evaluate_judged(std::move(files), device, corpora, arguments.judge);
}

int evaluate_model(const EvaluateArguments& arguments) {
  ModelFiles files = read_model_files(arguments.model);
  check_model(arguments, files);
  const std::vector<CorpusSpec> corpora = corpora_to_measure(files.config, data_of(arguments));
  files.config.languages =
      override_languages(files.config.languages, arguments.languages.overrides);
  set_blocks(arguments, files.folder, files.config);
  set_weights(arguments.weights, files.folder, files.config);
  const Evaluation result = measure(arguments, std::move(files), corpora);
  if (arguments.json) {
    std::cout << to_json(result) << '\n';
  } else {
    print(result);
  }
  return 0;
}

int run_evaluate(const EvaluateArguments& arguments) {
  const TranslationScoring& translations = arguments.translations;
  if (arguments.model.empty() && translations.hypothesis->empty()) {
    fail(ErrorKind::kConfig,
         "[evaluate] give --hypothesis and --reference, or --model and --data (--text, --images, "
         "--squad and --jsonl are short for it).");
  }
  set_num_threads(arguments.compute.threads);
  return arguments.model.empty() ? translations.run(arguments.json) : evaluate_model(arguments);
}

void add_evaluate(CLI::App& app, EvaluateArguments& arguments) {
  arguments.translations = add_translations(app);
  auto* model = app.add_option("--model", arguments.model, "run or checkpoint");
  auto* data = app.add_option(
      "--data", arguments.data,
      concat("what to measure the model on: train, valid or test (of its config), a file (",
             known_data_endings(),
             "; also compressed), or keys as of data.train (source=FILE target=FILE)"));
  auto* text = app.add_option("--text", arguments.text, "short for --data text=FILE");
  app.add_option("--documents", arguments.documents,
                 join(names_of(CorpusSpec::kDocuments), " | ") + " (default: as in the training)")
      ->check(CLI::IsMember(names_of(CorpusSpec::kDocuments)))
      ->needs(model);
  for (auto [name, value, meaning] :
       {std::tuple("--block-size", &arguments.block_size, "tokens of a block of the text"),
        std::tuple("--stride", &arguments.stride,
                   "tokens by which blocks advance, each of which counts only those that the one "
                   "before does not predict: all but the first have more text before them")}) {
    app.add_option(name, *value, concat(meaning, " (default: as in the training)"))
        ->check(number<int64_t>(between(1, BlockOptions::kLongest)))
        ->needs(model);
  }
  auto* alignment =
      app.add_option(
             "--alignment", arguments.alignment,
             "file with the alignment of each pair of --data (source and target): measures "
             "that of the model's attention by the alignment error rate; i-j are sure links "
             "of words from 0, i?j or ipj possible ones")
          ->needs(model);
  app.add_option("--alignment-layer", arguments.alignment_layer,
                 "of the decoder, from 1, the mean of its heads; 0: the guided head, else the last "
                 "but one")
      ->check(number<int64_t>(at_least(0)))
      ->needs(alignment);
  app.add_option(
         "--judge", arguments.judge,
         "command of the shell that judges the answers to prompts: it reads a line "
         "{\"prompt\": ..., \"reference\": ..., \"answer\": ...} for each and writes a line "
         "with a number from 0 to 1, true or false")
      ->needs(model)
      ->excludes(alignment);
  app.add_flag("--json", arguments.json, "one JSON object");
  arguments.translations.hypothesis->excludes(model);
  auto* images = app.add_option("--images", arguments.images, "short for --data images=FILE");
  auto* labels = app.add_option("--labels", arguments.labels, "IDX file of their labels");
  auto* squad = app.add_option("--squad", arguments.squad, "short for --data squad=FILE");
  auto* jsonl = app.add_option("--jsonl", arguments.jsonl, "short for --data jsonl=FILE");
  const std::vector<CLI::Option*> sources = {data, text, images, squad, jsonl};
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i]->needs(model);
    for (size_t j = 0; j < i; ++j) sources[i]->excludes(sources[j]);
  }
  labels->needs(images);
  for (CLI::Option* language : add_languages(app, arguments.languages)) language->needs(model);
  add_format(app, arguments.weights)->needs(model);
  add_compute(app, arguments.compute);
}

}  // namespace

extern const Command kEvaluate(
    "evaluate", "BLEU and chrF with sacreBLEU's signature, ROUGE; or what a model achieves on data",
    add_evaluate, run_evaluate);

}  // namespace tapestry
