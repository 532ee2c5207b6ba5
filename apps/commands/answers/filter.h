// Options and texts of commands that answer line by line. line_filter.h reads the lines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/checkpoint/model_choice.h"
#include "apps/commands/options.h"
#include "data/tokenizers/tokenizer.h"
#include "nn/decoding/decoding.h"

namespace tapestry {

/// What all of these commands have.
struct FilterArguments {
  /// Treatments of a line that is not UTF-8.
  static constexpr const char* kIllFormed[] = {"empty", "replace", "error"};

  ModelChoice models = {};
  ComputeArguments compute = {};
  std::string input = "-";   ///< file, "-": stdin
  std::string output = "-";  ///< file that is whole or not there, "-": stdout
  int64_t batch_size = 64;   ///< lines, or sequences, computed together
  /// One of kIllFormed: the line counts as empty, its ill-formed bytes are read as U+FFFD, or the
  /// command ends.
  std::string ill_formed = "empty";
  bool pairs = false;          ///< a line has two texts with a tab between them
  std::string attention = {};  ///< file to write with the first lines' attention, or ""

  const std::string& model() const { return models.paths.at(0); }
};

/// --model, --device and --threads: one model.
void add_model(CLI::App& app, FilterArguments& arguments);
/// --model, --weights, --device and --threads of such models.
void add_models(CLI::App& app, FilterArguments& arguments);
/// --input
CLI::Option* add_input(CLI::App& app, FilterArguments& arguments);
/// --output
void add_output_file(CLI::App& app, std::string& output);
/// --output, --ill-formed and --batch-size
void add_output(CLI::App& app, FilterArguments& arguments, const char* batch);
/// --detail, which sets `detail` to "jsonl"
CLI::Option* add_detail(CLI::App& app, std::string& detail, const char* meaning);
/// --pairs
void add_pairs(CLI::App& app, FilterArguments& arguments);
/// --attention
void add_attention(CLI::App& app, FilterArguments& arguments);

/// A text as one line of a filter's output: \\n and \\r for line ends, and \\v, \\f, \\u0085,
/// \\u2028 and \\u2029 for characters that other programs take for line ends.
std::string one_line(const std::string& text);
/// An object as a line; ill-formed bytes become U+FFFD.
std::string json_line(const nlohmann::ordered_json& object);

/// "tokens", "token_log_probabilities" (one for each of them) and "end_log_probability", null
/// where a text has no end.
nlohmann::ordered_json token_details(const Hypothesis& hypothesis, const Tokenizer& tokenizer);

}  // namespace tapestry
