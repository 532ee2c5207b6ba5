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

// CLI11's own check prints the largest double with 309 digits in its messages.
CLI::Validator number(bool may_be_zero) {
  const std::string expected = may_be_zero ? "a number of at least 0" : "a number above 0";
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && std::isfinite(value) &&
                          (may_be_zero ? value >= 0 : value > 0);
        return good ? std::string() : concat("must be ", expected, ", got ", text);
      },
      may_be_zero ? "FROM 0" : "ABOVE 0");
}

// Options that are not given come from the model's config.
void add_search(CLI::App* command, SearchArguments& search) {
  command
      ->add_option("--beam-size", search.beam_size,
                   "hypotheses kept; 1 is greedy search, or sampling (default: the config's, like "
                   "those below)")
      ->check(CLI::Range(int64_t{1}, SearchOptions::kMostBeams));
  command
      ->add_option("--length-penalty", search.length_penalty,
                   "exponent of the length normalisation")
      ->check(number(/*may_be_zero=*/true));
  command
      ->add_option("--length-penalty-type", search.length_penalty_type,
                   join(names_of(kLengthPenalties), " | "))
      ->check(CLI::IsMember(names_of(kLengthPenalties)));
  command
      ->add_option("--early-stopping", search.early_stopping,
                   "when a beam search ends: " + join(names_of(kEarlyStoppings), " | "))
      ->check(CLI::IsMember(names_of(kEarlyStoppings)));
  command
      ->add_option("--n-best", search.n_best,
                   "results of each line, best first: of beams, or with --do-sample so many draws")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  // CLI11 would count a flag bound to an optional as given even when it is absent.
  command->add_flag_callback(
      "--do-sample", [&search] { search.do_sample = true; },
      "draw tokens instead of taking the most probable ones");
  command->add_flag_callback(
      "--no-do-sample", [&search] { search.do_sample = false; }, "take the most probable tokens");
  command
      ->add_option("--temperature", search.temperature,
                   "logits are divided by it before a draw; 0: as --no-do-sample")
      ->check(number(/*may_be_zero=*/true));
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
      ->check(number(/*may_be_zero=*/false));
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
  auto* command =
      app.add_subcommand("translate", "Translate standard input, or a file, line by line");
  auto arguments = std::make_shared<TranslateArguments>();
  add_models(command, arguments->models, arguments->compute);
  add_search(command, arguments->search);
  command
      ->add_option("--max-length-ratio", arguments->max_length_ratio,
                   "longest output in tokens for each source token, plus 10 (default: the "
                   "config's); translations that end there are counted")
      ->check(CLI::PositiveNumber);
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
  add_search(command, arguments->search);
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
