#include <algorithm>
#include <set>

#include "apps/commands/cli_options.h"
#include "core/text.h"
#include "nn/decoding.h"

namespace tapestry {
namespace {

void add_model(CLI::App* command, std::string& model, ComputeArguments& compute) {
  command->add_option("--model", model, "checkpoint or run folder")->required();
  add_compute(command, compute);
}

constexpr const char* kFormatHelp =
    "float32 | int8: the matrices of the model (on a CPU); int8 takes a quarter of the memory";

std::optional<WeightFormat> format_of(const std::string& word) {
  for (const WeightFormat format : kWeightFormats) {
    if (word == name_of(format)) return format;
  }
  return std::nullopt;
}

void add_format(CLI::App* command, WeightFormat& format) {
  command
      ->add_option_function<std::string>(
          "--weights", [&format](const std::string& word) { format = *format_of(word); },
          kFormatHelp)
      ->check(CLI::IsMember(names_of(kWeightFormats)))
      ->default_str(name_of(format));
}

// Reads a share of an ensemble, or a format as in add_format().
void read_weights(const std::vector<std::string>& words, ModelChoice& models) {
  for (const std::string& word : words) {
    double share = 0;
    if (const auto format = format_of(word)) {
      models.format = *format;
    } else if (CLI::detail::lexical_cast(word, share)) {
      models.weights.push_back(share);
    } else {
      throw CLI::ValidationError("--weights",
                                 concat("expected ", join(names_of(kWeightFormats), ", "),
                                        " or numbers, got '", word, "'"));
    }
  }
}

void add_models(CLI::App* command, ModelChoice& models, ComputeArguments& compute) {
  command
      ->add_option("--model", models.paths,
                   "checkpoint or run folder; given again: models over one vocabulary, whose "
                   "probabilities are averaged (the config is the first one's)")
      ->required();
  command
      ->add_option_function<std::vector<std::string>>(
          "--weights",
          [&models](const std::vector<std::string>& words) { read_weights(words, models); },
          concat(kFormatHelp,
                 "; of several models also their shares, as in .6,.4 (default: equal)"))
      ->delimiter(',');
  add_compute(command, compute);
}

void add_output(CLI::App* command, FilterArguments& files) {
  command
      ->add_option("--output", files.output,
                   "file; it has its name when all is done, before that the name FILE.part; -: "
                   "standard output")
      ->capture_default_str();
}

void add_ill_formed(CLI::App* command, FilterArguments& files) {
  command
      ->add_option("--ill-formed", files.ill_formed,
                   "what becomes of a line that is not UTF-8, or no record where records are read: "
                   "empty (it is answered like an empty line, and counted) | replace (its "
                   "ill-formed bytes are read as U+FFFD) | error")
      ->check(CLI::IsMember(names_of(FilterArguments::kIllFormed)))
      ->capture_default_str();
}

void add_files(CLI::App* command, FilterArguments& files) {
  command
      ->add_option("--input", files.input,
                   "file of lines (compressed is fine); -: standard input. On a terminal a file "
                   "shows how far it is")
      ->capture_default_str();
  add_output(command, files);
  add_ill_formed(command, files);
}

void add_batch_size(CLI::App* command, FilterArguments& files, const char* meaning) {
  command->add_option("--batch-size", files.batch_size, meaning)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
}

void add_attention(CLI::App* command, std::string& file) {
  command->add_option("--attention", file,
                      "also write the attention weights of the first 20 answers: a page (HTML), or "
                      "a table if the name ends in .json, which has the scores before and after "
                      "scaling, too");
}

// The option of a key of `generation`.
std::string option_of(const std::string& key) {
  if (key == "num_beams") return "--beam-size";
  std::string option = "--" + key;
  std::ranges::replace(option, '_', '-');
  return option;
}

// "at least 1", "average | gnmt | none"
std::string bounds_of(const ConfigKey& key) {
  return key.choices.empty() ? key.range.text : join(key.choices, " | ");
}

constexpr const char* kSearchGroup = "Search (the model's config decides where nothing is given)";

// An option for each key of `generation`.
void add_search(CLI::App* command, SearchArguments& search,
                const std::set<std::string>& without_effect) {
  for (const ConfigKey& key : generation_keys()) {
    if (without_effect.contains(key.name)) continue;
    const std::string option = option_of(key.name);
    const auto set = [&search, name = key.name](const std::string& given,
                                                const std::string& value) {
      search.overrides.push_back({given, name, value});
    };
    if (key.type == "true or false") {
      const std::string no = "--no-" + option.substr(2);
      command
          ->add_flag_callback(
              option, [=] { set(option, "true"); }, key.meaning)
          ->group(kSearchGroup);
      command
          ->add_flag_callback(
              no, [=] { set(no, "false"); }, concat("turns ", option, " off"))
          ->group(kSearchGroup);
      continue;
    }
    const std::string bounds = bounds_of(key);
    const bool draws = key.name == "temperature";
    command
        ->add_option_function<std::string>(
            option,
            [=, &search](const std::string& value) {
              double number = 1;
              if (draws && parse_yaml_double(value, number) &&
                  number == 0) {  // the limit of small ones
                search.overrides.push_back(
                    {concat(option, " 0 as --no-do-sample"), "do_sample", "false"});
              } else {
                set(option, value);
              }
            },
            concat(key.meaning, draws ? " 0: the most probable token." : "",
                   bounds.empty() ? "" : concat(" (", bounds, ')')))
        ->type_name(key.choices.empty() ? key.type == "integer" ? "INT" : "FLOAT" : "TEXT")
        ->group(kSearchGroup);
  }
  command
      ->add_option("--n-best", search.n_best,
                   "results of each line, best first: of beams, or with --do-sample so many draws")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(kSearchGroup);
  command->add_option("--seed", search.seed, "of the draws")->group(kSearchGroup);
}

void add_translate(CLI::App& app, Run& run) {
  auto* command =
      app.add_subcommand("translate", "Translate standard input, or a file, line by line");
  auto arguments = std::make_shared<TranslateArguments>();
  add_models(command, arguments->models, arguments->compute);
  add_search(command, arguments->search, {});
  command
      ->add_option("--max-source-length", arguments->max_source_length,
                   "tokens of a source line: a longer one is cut, with a warning (default: 2048, "
                   "or the model's max_position_embeddings if that is more)")
      ->check(CLI::PositiveNumber);
  add_files(command, arguments->files);
  add_batch_size(
      command, arguments->files,
      "lines that a thread translates at a time; others join as soon as some are done, out "
      "of windows of 32 times as many that are sorted by length; 1: each line as soon "
      "as it is read");
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
  command
      ->add_option("--n-best-format", arguments->n_best_format,
                   "lines (n for each line, the text alone) | moses (0 ||| text ||| F0= "
                   "log-probability ||| score, with the number of the line from 0)")
      ->check(CLI::IsMember({"lines", "moses"}))
      ->excludes(word_scores)
      ->excludes(command->get_option("--detail"))
      ->capture_default_str();
  command->add_option("--alignments", arguments->alignments,
                      "file for the alignment of each translation, from the attention, as in 0-0 "
                      "1-2; -: behind each translation, or in its object");
  command
      ->add_option(
          "--alignment-units", arguments->alignment_units,
          "words (between spaces and tabs of the line as it is given) | tokens (of the tokenizers)")
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
  add_search(command, arguments->search, {"max_length_ratio"});
  command->add_option("--stop", arguments->stop, "text that ends a continuation; may be repeated");
  add_files(command, arguments->files);
  command->get_option("--input")->excludes(prompt);
  add_batch_size(command, arguments->files,
                 "sequences that are continued at a time; others join as soon as some are done");
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
  add_format(command, arguments->weights);
  add_files(command, arguments->files);
  add_batch_size(command, arguments->files, "lines restored at a time; denoising models");
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
      "classify", "The class of each line of standard input, or of a file, with its probability");
  auto arguments = std::make_shared<ClassifyArguments>();
  add_model(command, arguments->model, arguments->compute);
  add_format(command, arguments->weights);
  add_files(command, arguments->files);
  add_batch_size(command, arguments->files, "texts classified at a time");
  command
      ->add_option("--top-k", arguments->top_k,
                   "classes and probabilities in a line, the most probable first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_attention(command, arguments->attention);
  command->callback([&run, arguments] { run = [arguments] { return run_classify(*arguments); }; });
}

void add_answer(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "answer",
      "The answer to each line \"context<TAB>question\" of standard input, cut out of it");
  auto arguments = std::make_shared<AnswerArguments>();
  add_model(command, arguments->model, arguments->compute);
  add_format(command, arguments->weights);
  command->add_flag("--jsonl", arguments->jsonl,
                    "lines are JSON objects with the fields context and question");
  command->add_option("--n-best", arguments->n_best, "answers to each question, best first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_files(command, arguments->files);
  add_batch_size(command, arguments->files, "lines answered at a time");
  command
      ->add_option("--detail", arguments->detail,
                   "jsonl: places and probabilities, one object a line")
      ->check(CLI::IsMember({"jsonl"}));
  add_attention(command, arguments->attention);
  command->callback([&run, arguments] { run = [arguments] { return run_answer(*arguments); }; });
}

void add_predict(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("predict",
                                     "y, or the class and its share, for each line of standard "
                                     "input by a regression: an x, or the numbers of several");
  auto arguments = std::make_shared<PredictArguments>();
  add_model(command, arguments->model, arguments->compute);
  add_files(command, arguments->files);
  add_batch_size(command, arguments->files, "numbers at a time");
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
  command->add_option("--target,--input", arguments->files.input, "file; -: standard input")
      ->required();
  add_output(command, arguments->files);
  add_ill_formed(command, arguments->files);
  add_batch_size(command, arguments->files, "pairs scored at a time, with --source");
  add_attention(command, arguments->attention);
  command->callback([&run, arguments] { run = [arguments] { return run_score(*arguments); }; });
}

}  // namespace

void add_compute(CLI::App* command, ComputeArguments& compute) {
  command->add_option("--device", compute.device, "auto | cpu | cuda | cuda:N")
      ->capture_default_str();
  command->add_option("--threads", compute.threads, "CPU threads; 0: all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void add_filters(CLI::App& app, Run& run) {
  add_translate(app, run);
  add_generate(app, run);
  add_fill_mask(app, run);
  add_classify(app, run);
  add_answer(app, run);
  add_predict(app, run);
  add_score(app, run);
}

}  // namespace tapestry
