// The subcommands of the binary: the arguments of each, and its function. Each function writes
// results to stdout and everything else to stderr, and returns the exit code or throws Error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/checkpoint/model_choice.h"
#include "apps/commands/evaluate_translations.h"
#include "apps/config/search_overrides.h"

namespace tapestry {

class Ranks;

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;  ///< section.key=value
  std::string resume = "auto";         ///< auto | never | path of a checkpoint
  std::string commit = {};             ///< of the sources
};

struct ReportArguments {
  std::vector<std::string> runs;  ///< folders
  std::string output = "report.html";
};

struct HelpArguments {
  std::string key = {};   ///< of a config, or a section; empty: the sections
  bool all = false;       ///< every key
  bool markdown = false;  ///< every key, as the page configs/README.md
  bool schema = false;    ///< every key, as the JSON Schema configs/schema.json
};

/// The device and threads of a filter.
struct ComputeArguments {
  std::string device = "auto";
  int threads = 0;  ///< 0: all cores
};

/// The input and output of a filter.
struct FilterArguments {
  /// Treatments of a line that is not UTF-8.
  static constexpr const char* kIllFormed[] = {"empty", "replace", "error"};

  std::string input = "-";   ///< file, "-": stdin
  std::string output = "-";  ///< file that is whole or not there, "-": stdout
  int64_t batch_size = 64;   ///< lines computed together
  /// One of kIllFormed: the line counts as empty, its ill-formed bytes are read as U+FFFD, or the
  /// command ends.
  std::string ill_formed = "empty";
};

/// How to choose tokens: what is not given comes from the checkpoint's config.
struct SearchArguments {
  std::vector<SearchOverride> overrides = {};  ///< keys of `generation`
  std::optional<uint64_t> seed = {};
  int64_t n_best = 1;
};

/// Translates each line of the input to a line of the output.
struct TranslateArguments {
  ModelChoice models;
  ComputeArguments compute;
  FilterArguments files;
  SearchArguments search;
  std::string prefix;          ///< file with what each translation begins with, or ""
  bool prefix_column = false;  ///< it is the second column of the input instead
  bool word_scores = false;    ///< behind a tab, the log-probability of each word and of the end
  std::string detail;          ///< "" or "jsonl"
  std::string n_best_format = "lines";       ///< lines | moses
  std::optional<int64_t> max_source_length;  ///< tokens that a source is cut to
  std::string alignments;                    ///< file to write, "-": behind each translation, or ""
  std::string alignment_units = "words";     ///< words | tokens
  int64_t alignment_layer = 0;               ///< of the decoder, from 1; 0: the last but one
  std::string attention;  ///< file to write with the first lines' attention, or ""
};

/// Continues one prompt, or each line of the input: one line each, in which line ends are written
/// \\n. A prompt's text appears on a terminal as it is made.
struct GenerateArguments {
  ModelChoice models;
  ComputeArguments compute;
  FilterArguments files;  ///< a batch is of sequences
  SearchArguments search;
  std::optional<std::string> prompt;  ///< unset: one prompt a line of the input
  int64_t samples = 1;                ///< continuations of each prompt
  std::vector<std::string> stop;      ///< text that ends a continuation, and is left out
  std::string detail;                 ///< "" or "jsonl"
  std::string attention;              ///< as in TranslateArguments
  bool jsonl = false;  ///< lines of the input are JSON objects for the prompt of the training
};

/// Prints the most probable words for each <mask> in a line, or the line as a denoising model
/// restores it.
struct FillMaskArguments {
  std::string model;
  WeightFormat weights = WeightFormat::kFloat32;
  ComputeArguments compute;
  FilterArguments files;             ///< a batch is of lines that are restored
  std::optional<int64_t> top_k;      ///< words for each <mask> of a masked model; 5 if unset
  std::optional<int64_t> beam_size;  ///< of a denoising model
  std::string attention;             ///< as in TranslateArguments
};

/// Prints the most probable classes of each line (a text, or the path of an image), with their
/// probabilities.
struct ClassifyArguments {
  std::string model;
  WeightFormat weights = WeightFormat::kFloat32;
  ComputeArguments compute;
  FilterArguments files;
  int64_t top_k = 1;      ///< classes in a line, the most probable first
  std::string attention;  ///< as in TranslateArguments
};

/// Prints the span of a context that answers a question, for each line `context<TAB>question`.
struct AnswerArguments {
  std::string model;
  WeightFormat weights = WeightFormat::kFloat32;
  ComputeArguments compute;
  FilterArguments files;
  int64_t n_best = 1;          ///< lines for each question, best first
  std::string detail;          ///< "" or "jsonl"
  bool jsonl = false;          ///< lines are JSON objects with context and question
  std::string attention = {};  ///< as in TranslateArguments
};

/// Prints y for each line of the input, an x.
struct PredictArguments {
  std::string model;
  ComputeArguments compute;
  FilterArguments files;
  std::string attention;  ///< page to write with the curve and the weights of the points, or ""
};

/// Scores the lines of the input, the targets.
struct ScoreArguments {
  ModelChoice models;
  ComputeArguments compute;
  FilterArguments files;
  std::string source;     ///< file, of a translation model
  std::string attention;  ///< as in TranslateArguments
};

/// Scores files of translations, or a model on data (model; data, or one of text, images, squad and
/// jsonl, which are short for it).
struct EvaluateArguments {
  TranslationArguments translations;
  bool json = false;
  std::string model;
  std::vector<std::string> data;  ///< train, valid, test; a file; or keys as of data.train
  std::string text;
  std::string documents;  ///< of text, as in a config; "": as in the training
  std::string images;
  std::string labels;  ///< of images
  std::string squad;
  std::string jsonl;
  ComputeArguments compute;
};

struct GradcheckArguments {
  std::string config;  ///< empty: only the operations, layers and tiny models
  std::vector<std::string> overrides;
  std::string filter;  ///< only rows whose name contains this
};

struct InspectArguments {
  std::string path;  ///< a checkpoint, a run folder or a config
  std::vector<std::string> overrides;
  bool shapes = false;  ///< also prints the shapes in the model
};

struct AverageArguments {
  std::vector<std::string> inputs;
  std::string output;
};

struct BenchArguments {
  std::string config;
  std::vector<std::string> overrides;
  /// "128x32x32" (sentences, source and target tokens), "12x64" (rows and tokens of a language
  /// model) or empty: the data. With `decode` always three numbers, the second one of the prompt
  std::string shape;
  int64_t steps = 10;
  int64_t warmup_steps = 2;
  std::string json;                  ///< file to write, or empty
  bool decode = false;               ///< times answers instead of training; `config` may be a run
  std::optional<int64_t> beam_size;  ///< then: of the beam search; unset: the config's
  int threads = 0;                   ///< with `decode`; 0: the config's
};

int run_help(const HelpArguments& arguments);
/// `ranks` finds the other ranks, if there are any.
int run_train(const TrainArguments& arguments, Ranks& ranks);
int run_translate(const TranslateArguments& arguments);
int run_generate(const GenerateArguments& arguments);
int run_fill_mask(const FillMaskArguments& arguments);
int run_classify(const ClassifyArguments& arguments);
int run_answer(const AnswerArguments& arguments);
int run_predict(const PredictArguments& arguments);
int run_score(const ScoreArguments& arguments);
int run_evaluate(const EvaluateArguments& arguments);
/// The part of it that has a --model.
int evaluate_model(const EvaluateArguments& arguments);
int run_gradcheck(const GradcheckArguments& arguments);
int run_inspect(const InspectArguments& arguments);
int run_average(const AverageArguments& arguments);
int run_report(const ReportArguments& arguments);
/// `ranks` finds the other ranks, if there are any.
int run_bench(const BenchArguments& arguments, Ranks& ranks);
/// The part of it that has --decode.
int bench_decoding(const BenchArguments& arguments);

}  // namespace tapestry
