#include "apps/commands/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <new>

#include "apps/commands/commands.h"
#include "apps/commands/exchange.h"
#include "apps/config/nearest_name.h"
#include "core/blas.h"
#include "core/build_info.h"
#include "core/error.h"
#include "core/text.h"
#include "data/corpus.h"
#include "data/metrics.h"
#include "nn/decoding.h"

namespace tapestry {
namespace {

using Run = std::function<int()>;

/// The names of an option's values.
template <class Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto& value : values) {
    if constexpr (std::is_enum_v<std::decay_t<decltype(value)>>) {
      names.emplace_back(name_of(value));
    } else {
      names.emplace_back(value);
    }
  }
  return names;
}

void add_compute(CLI::App* command, ComputeArguments& compute) {
  command->add_option("--device", compute.device, "auto | cpu | cuda | cuda:N")
      ->capture_default_str();
  command->add_option("--threads", compute.threads, "CPU threads; 0: all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void add_config(CLI::App* command, std::string& config, std::vector<std::string>& overrides) {
  command->add_option("config", config, "YAML file")->required();
  command->add_option("overrides", overrides, "section.key=value, winning over the file");
}

void add_train(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("train", "Train the model of a config file");
  auto arguments = std::make_shared<TrainArguments>();
  add_config(command, arguments->config, arguments->overrides);
  command
      ->add_option("--resume", arguments->resume,
                   "auto: go on from output_dir's newest checkpoint; never; or a checkpoint's path")
      ->capture_default_str();
  command->add_flag_callback(
      "--help-keys",
      [&run] {
        run = [] { return run_help({.all = true}); };
        throw CLI::Success();  // no config is needed
      },
      "list every key of a config");
  command->callback([&run, arguments] { run = [arguments] { return run_train(*arguments); }; });
}

void add_model(CLI::App* command, std::string& model, ComputeArguments& compute) {
  command->add_option("--model", model, "checkpoint or run folder")->required();
  add_compute(command, compute);
}

void add_models(CLI::App* command, ModelChoice& models, ComputeArguments& compute) {
  command
      ->add_option("--model", models.paths,
                   "checkpoint or run folder; given again: models over one vocabulary, whose "
                   "probabilities are averaged (the config is the first one's)")
      ->required();
  command->add_option("--weights", models.weights, "of the models, as in .6,.4 (default: equal)")
      ->delimiter(',');
  add_compute(command, compute);
}

void add_attention(CLI::App* command, std::string& file) {
  command->add_option("--attention", file,
                      "also write the attention weights of the first 20 answers: a page (HTML), or "
                      "a table if the name ends in .json");
}

// What is not given comes from the model's config.
void add_search(CLI::App* command, SearchArguments& search) {
  command
      ->add_option("--beam-size", search.beam_size,
                   "hypotheses kept; 1 is greedy search, or sampling (default: the config's, like "
                   "those below)")
      ->check(CLI::Range(int64_t{1}, SearchOptions::kMostBeams));
  command
      ->add_option("--length-penalty", search.length_penalty,
                   "exponent of the length normalisation")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--length-penalty-type", search.length_penalty_type,
                   join(names_of(kLengthPenalties), " | "))
      ->check(CLI::IsMember(names_of(kLengthPenalties)));
  command->add_option("--n-best", search.n_best, "results of each line, best first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  // CLI11 would count a flag bound to an optional as given even when it is absent.
  command->add_flag_callback(
      "--do-sample", [&search] { search.do_sample = true; },
      "draw tokens instead of taking the most probable ones");
  command->add_flag_callback(
      "--no-do-sample", [&search] { search.do_sample = false; }, "take the most probable tokens");
  command->add_option("--temperature", search.temperature, "logits are divided by it")
      ->check(CLI::PositiveNumber);
  command->add_option("--top-k", search.top_k, "draw among so many tokens; 0: among all")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--top-p", search.top_p, "draw from the nucleus of this probability")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--frequency-penalty", search.frequency_penalty,
                      "taken from a logit for each time its token was generated");
  command->add_option("--presence-penalty", search.presence_penalty,
                      "taken from a logit if its token was generated");
  command
      ->add_option(
          "--repetition-penalty", search.repetition_penalty,
          "divides (multiplies, if negative) logits of tokens in the prompt and the output, "
          "and in a source of the same vocabulary")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--no-repeat-ngram-size", search.no_repeat_ngram_size,
                   "no n-gram comes twice; 0: off")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--min-new-tokens", search.min_new_tokens, "tokens before an end")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--max-new-tokens", search.max_new_tokens, "most tokens; 0: no such limit")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", search.seed, "of the draws");
}

void add_translate(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("translate", "Translate standard input line by line");
  auto arguments = std::make_shared<TranslateArguments>();
  add_models(command, arguments->models, arguments->compute);
  add_search(command, arguments->search);
  command
      ->add_option("--max-length-ratio", arguments->max_length_ratio,
                   "longest output in tokens for each source token, plus 10")
      ->check(CLI::PositiveNumber);
  command->add_option("--batch-size", arguments->batch_size, "lines translated at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  auto* prefix = command->add_option(
      "--prefix", arguments->prefix,
      "file with a line for each line of the input: what its translation begins with; the "
      "translation may go on inside the prefix's last word");
  command
      ->add_flag("--prefix-column", arguments->prefix_column,
                 "the same from the input: what stands behind a tab (as with Marian's "
                 "--force-decode)")
      ->excludes(prefix);
  auto* word_scores = command->add_flag(
      "--word-scores", arguments->word_scores,
      "behind each translation a tab and the log-probability of each word and of the end");
  command
      ->add_option("--detail", arguments->detail,
                   "jsonl: scores, tokens and words, one object a line")
      ->check(CLI::IsMember({"jsonl"}))
      ->excludes(word_scores);
  command->add_option("--alignments", arguments->alignments,
                      "file for the alignment of each translation, from the attention, as in 0-0 "
                      "1-2; -: behind each translation, or in its object");
  command
      ->add_option("--alignment-units", arguments->alignment_units,
                   "words (between spaces) | tokens (of the tokenizers)")
      ->check(CLI::IsMember({"words", "tokens"}))
      ->capture_default_str();
  command
      ->add_option("--alignment-layer", arguments->alignment_layer,
                   "of the decoder, from 1; 0: the last but one")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_attention(command, arguments->attention);
  command->callback([&run, arguments] { run = [arguments] { return run_translate(*arguments); }; });
}

void add_generate(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "generate",
      "Continue a prompt, or each line of standard input, with a causal language model");
  auto arguments = std::make_shared<GenerateArguments>();
  add_models(command, arguments->models, arguments->compute);
  auto* prompt = command->add_option("--prompt", arguments->prompt,
                                     "text to continue, instead of standard input");
  command
      ->add_flag(
          "--jsonl", arguments->jsonl,
          "lines are JSON objects: answers the prompt that the training made of such records")
      ->excludes(prompt);
  command->add_option("--samples", arguments->samples, "continuations of each prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_search(command, arguments->search);
  command->add_option("--stop", arguments->stop, "text that ends a continuation; may be repeated");
  command->add_option("--batch-size", arguments->batch_size, "sequences at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--detail", arguments->detail, "jsonl: scores and tokens, one object a line")
      ->check(CLI::IsMember({"jsonl"}));
  add_attention(command, arguments->attention);
  command->callback([&run, arguments] { run = [arguments] { return run_generate(*arguments); }; });
}

void add_fill_mask(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "fill-mask",
      "The most probable words for each <mask> in lines of standard input, or with a denoising "
      "model the lines with <mask> or <extra_id_0>, ... restored");
  auto arguments = std::make_shared<FillMaskArguments>();
  add_model(command, arguments->model, arguments->compute);
  command
      ->add_option("--top-k", arguments->top_k, "words for each mask (default: 5); masked models")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--beam-size", arguments->beam_size,
                   "hypotheses kept (default: the config's); denoising models")
      ->check(CLI::Range(int64_t{1}, SearchOptions::kMostBeams));
  add_attention(command, arguments->attention);
  command->callback([&run, arguments] { run = [arguments] { return run_fill_mask(*arguments); }; });
}

void add_classify(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "classify", "The class of each line of standard input, with its probability");
  auto arguments = std::make_shared<ClassifyArguments>();
  add_model(command, arguments->model, arguments->compute);
  add_attention(command, arguments->attention);
  command->callback([&run, arguments] { run = [arguments] { return run_classify(*arguments); }; });
}

void add_answer(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "answer",
      "The answer to each line \"context<TAB>question\" of standard input, cut out of it");
  auto arguments = std::make_shared<AnswerArguments>();
  add_model(command, arguments->model, arguments->compute);
  command->add_flag("--jsonl", arguments->jsonl,
                    "lines are JSON objects with the fields context and question");
  command->add_option("--n-best", arguments->n_best, "answers to each question, best first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batch-size", arguments->batch_size, "lines answered at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--detail", arguments->detail,
                   "jsonl: places and probabilities, one object a line")
      ->check(CLI::IsMember({"jsonl"}));
  command->callback([&run, arguments] { run = [arguments] { return run_answer(*arguments); }; });
}

void add_predict(CLI::App& app, Run& run) {
  auto* command =
      app.add_subcommand("predict", "y for each line of standard input, an x, by a regression");
  auto arguments = std::make_shared<PredictArguments>();
  add_model(command, arguments->model, arguments->compute);
  command->add_option("--attention", arguments->attention,
                      "also write a page (HTML) with the curve and the weights of the points");
  command->callback([&run, arguments] { run = [arguments] { return run_predict(*arguments); }; });
}

void add_score(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "score",
      "Log-probability and tokens of each target line, given its source line if there is one");
  auto arguments = std::make_shared<ScoreArguments>();
  add_models(command, arguments->models, arguments->compute);
  command->add_option("--source", arguments->source, "file, for a translation model");
  command->add_option("--target", arguments->target, "file")->required();
  add_attention(command, arguments->attention);
  command->callback([&run, arguments] { run = [arguments] { return run_score(*arguments); }; });
}

void add_evaluate(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("evaluate",
                                     "BLEU and chrF with sacreBLEU's signature, ROUGE, a language "
                                     "model's perplexity, the accuracy "
                                     "on images, or exact match and F1 of answers");
  auto arguments = std::make_shared<EvaluateArguments>();
  auto* hypothesis =
      command->add_option("--hypothesis", arguments->hypothesis, "file; -: standard input");
  auto* reference = command->add_option("--reference", arguments->reference, "file");
  command
      ->add_option("--metrics", arguments->metrics,
                   "of a hypothesis: " + join(kEvaluationMetrics, ",") + " (default: bleu,chrf)")
      ->delimiter(',')
      ->check(CLI::IsMember(names_of(kEvaluationMetrics)));
  command
      ->add_option("--tokenize", arguments->tokenize,
                   join(names_of(BleuOptions::kTokenizers), " | "))
      ->check(CLI::IsMember(names_of(BleuOptions::kTokenizers)))
      ->capture_default_str();
  command->add_flag("--lowercase", arguments->lowercase, "compare lower-cased text");
  auto* model = command->add_option("--model", arguments->model, "run or checkpoint");
  auto* text = command->add_option("--text", arguments->text, "file to measure the model on");
  command
      ->add_option("--documents", arguments->documents,
                   join(names_of(CorpusSpec::kDocuments), " | ") + " (default: as in the training)")
      ->check(CLI::IsMember(names_of(CorpusSpec::kDocuments)));
  command->add_flag("--json", arguments->json, "one JSON object");
  hypothesis->needs(reference)->excludes(model);
  reference->needs(hypothesis);
  auto* images = command->add_option("--images", arguments->images,
                                     "IDX file, or list of labels and files, as in a config");
  auto* labels = command->add_option("--labels", arguments->labels, "IDX file of the labels");
  auto* squad = command->add_option("--squad", arguments->squad,
                                    "questions in SQuAD's format, as in a config");
  auto* jsonl = command->add_option(
      "--jsonl", arguments->jsonl, "questions, or records for the model's prompts, as in a config");
  squad->needs(model)->excludes(text)->excludes(images);
  jsonl->needs(model)->excludes(text)->excludes(images)->excludes(squad);
  text->needs(model)->excludes(images);
  images->needs(model);
  labels->needs(images);
  add_compute(command, arguments->compute);
  command->callback([&run, arguments] { run = [arguments] { return run_evaluate(*arguments); }; });
}

void add_gradcheck(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "gradcheck", "Check every gradient by finite differences; exit code 1 when one fails");
  auto arguments = std::make_shared<GradcheckArguments>();
  command->add_option("config", arguments->config, "also check this config's model, made small");
  command->add_option("overrides", arguments->overrides, "section.key=value");
  command->add_option("--filter", arguments->filter, "only rows whose name holds this");
  command->callback([&run, arguments] { run = [arguments] { return run_gradcheck(*arguments); }; });
}

void add_inspect(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("inspect", "Parameters, shapes, memory and tokenizer");
  auto arguments = std::make_shared<InspectArguments>();
  command->add_option("path", arguments->path, "checkpoint, run folder or config")->required();
  command->add_option("overrides", arguments->overrides, "section.key=value");
  command->add_flag("--shapes", arguments->shapes,
                    "the shapes that go through the model, too, from a dry run");
  command->callback([&run, arguments] { run = [arguments] { return run_inspect(*arguments); }; });
}

void add_average(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("average", "Average the parameters of checkpoints");
  auto arguments = std::make_shared<AverageArguments>();
  command->add_option("checkpoints", arguments->inputs, "checkpoint folders")->required();
  command->add_option("--output", arguments->output, "folder to write")->required();
  command->callback([&run, arguments] { run = [arguments] { return run_average(*arguments); }; });
}

void add_import(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("import", "Make a checkpoint of a Hugging Face folder");
  auto arguments = std::make_shared<ImportArguments>();
  command->add_option("folder", arguments->folder, "with config.json and model.safetensors")
      ->required();
  command->add_option("--output", arguments->output, "checkpoint to write")->required();
  command->callback([&run, arguments] { run = [arguments] { return run_import(*arguments); }; });
}

void add_export(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("export", "Write a model as other systems read it");
  auto arguments = std::make_shared<ExportArguments>();
  command->add_option("--model", arguments->model, "checkpoint or run folder")->required();
  command->add_option("--format", arguments->format, join(kExportFormats, " | "))
      ->check(CLI::IsMember(names_of(kExportFormats)))
      ->capture_default_str();
  command->add_option("--architecture", arguments->architecture,
                      "of a Hugging Face folder: gpt2, llama, bert, roberta, marian, pegasus, "
                      "bart, mbart or vit (default: the first that the model fits)");
  command->add_option("--output", arguments->output, "folder to write")->required();
  command->callback([&run, arguments] { run = [arguments] { return run_export(*arguments); }; });
}

void add_bench(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("bench", "Time training steps");
  auto arguments = std::make_shared<BenchArguments>();
  add_config(command, arguments->config, arguments->overrides);
  command->add_option("--shape", arguments->shape,
                      "BxSxT, or BxT for a language model: synthetic tokens (default: the config's "
                      "data)");
  command->add_option("--steps", arguments->steps, "timed steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--warmup-steps", arguments->warmup_steps, "steps before those")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--json", arguments->json, "also write the figures to this file");
  command->callback([&run, arguments] { run = [arguments] { return run_bench(*arguments); }; });
}

void add_help(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("help", "Explain the keys of a config");
  auto arguments = std::make_shared<HelpArguments>();
  command->add_option("key", arguments->key, "key or section, such as training.optimizer");
  command->add_flag("--markdown", arguments->markdown, "all keys, as the page configs/README.md");
  command->callback([&run, arguments] { run = [arguments] { return run_help(*arguments); }; });
}

/// " Did you mean '--model'?" where one of the names is near the word, both without dashes in
/// front.
std::string suggestion(const std::string& word, std::vector<std::string> names,
                       const char* dashes) {
  for (std::string& name : names) std::replace(name.begin(), name.end(), '-', '_');
  std::string nearest = nearest_name(word, names);
  std::replace(nearest.begin(), nearest.end(), '_', '-');
  return nearest.empty() ? "" : concat(" Did you mean '", dashes, nearest, "'?");
}

/// What a command line that cannot be parsed should have been.
std::string explain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  if (commands.empty()) {
    const std::string word = argc > 1 ? argv[1] : "";
    if (word.empty() || word.starts_with('-')) return error.what();
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands(nullptr))
      names.push_back(command->get_name());
    return concat("no command is called '", word, "'.", suggestion(word, names, ""));
  }
  for (const std::string& given : commands.front()->remaining()) {
    if (!given.starts_with("--")) continue;
    const std::string word = given.substr(0, given.find('='));
    std::vector<std::string> names;
    for (const CLI::Option* option : commands.front()->get_options()) {
      const std::vector<std::string>& own = option->get_lnames();
      names.insert(names.end(), own.begin(), own.end());
    }
    return concat("no option is called '", word, "'.", suggestion(word.substr(2), names, "--"));
  }
  return error.what();
}

int report(const std::string& message, ErrorKind kind) {
  std::cout.flush();  // results come before the error, even if both go to one file
  std::cerr << "error: " << message << std::endl;
  return static_cast<int>(kind);
}

// What a bug report needs.
std::string version_text(const char* commit) {
  const BuildInfo& build = build_info();
  std::string blas;
  try {
    blas = blas_description();
  } catch (const Error& error) {
    blas = error.what();
  }
  return concat("tapestry ", build.version, "\ncommit: ", commit, "\nbuild: ", build.type, ", ",
                build.devices, ", ", build.compiler, "\nprocessor: ", cpu_name(), ", vectors ",
                vector_target(), "\nBLAS: ", blas);
}

/// Results that did not reach stdout (a full disk, say) are a failure like any other.
bool stdout_is_written() { return std::cout.flush().good() && std::fflush(stdout) == 0; }

int run_guarded(const Run& run) {
  try {
    const int code = run();
    return stdout_is_written() ? code : report("cannot write to stdout.", ErrorKind::kRuntime);
  } catch (const Error& error) {
    return report(error.what(), error.kind());
  } catch (const std::bad_alloc&) {
    return report("out of memory.", ErrorKind::kOutOfMemory);
  } catch (const std::exception& error) {
    return report(error.what(), ErrorKind::kRuntime);
  }
}

}  // namespace

int run_command_line(int argc, char** argv, const char* commit) {
  CLI::App app{"Tapestry trains Transformers from a YAML file."};
  app.require_subcommand(1);
  app.set_version_flag("--version", [commit] { return version_text(commit); });
  Run run;
  add_train(app, run);
  add_translate(app, run);
  add_generate(app, run);
  add_fill_mask(app, run);
  add_classify(app, run);
  add_answer(app, run);
  add_predict(app, run);
  add_score(app, run);
  add_evaluate(app, run);
  add_gradcheck(app, run);
  add_inspect(app, run);
  add_average(app, run);
  add_import(app, run);
  add_export(app, run);
  add_bench(app, run);
  add_help(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version, --help-keys
    return run ? run_guarded(run) : app.exit(success);
  } catch (const CLI::ParseError& error) {
    return report(concat(explain(app, error, argc, argv), " See tapestry --help."),
                  ErrorKind::kConfig);
  }
  return run_guarded(run);
}

}  // namespace tapestry
