// The subcommands of the binary: what each takes, and the function that does it. Each writes
// results to stdout and the rest to stderr, and returns the exit code or throws Error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapestry {

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;  ///< section.key=value
  std::string resume = "auto";         ///< auto | never | path of a checkpoint
};

/// Where a filter computes.
struct ComputeArguments {
  std::string device = "auto";
  int threads = 0;  ///< 0: all cores
};

/// stdin to stdout, one line each. What is unset comes from the checkpoint's config.
struct TranslateArguments {
  std::string model;
  ComputeArguments compute;
  std::optional<int64_t> beam_size;
  std::optional<double> length_penalty;
  std::optional<std::string> length_penalty_type;  ///< average | gnmt | none
  std::optional<double> max_length_ratio;
  int64_t n_best = 1;
  int64_t batch_size = 64;  ///< sentences searched at a time
  std::string detail;       ///< "" or "jsonl"
};

struct ScoreArguments {
  std::string model;
  ComputeArguments compute;
  std::string source;
  std::string target;
  int64_t batch_size = 64;
};

struct EvaluateArguments {
  std::string hypothesis;  ///< "-": stdin
  std::string reference;
  std::string tokenize = "13a";
  bool lowercase = false;
  bool json = false;
};

struct GradcheckArguments {
  std::string config;  ///< empty: the operations, layers and tiny models alone
  std::vector<std::string> overrides;
  std::string filter;  ///< only rows whose name holds this
};

struct InspectArguments {
  std::string path;  ///< a checkpoint, a run folder or a config
  std::vector<std::string> overrides;
};

struct AverageArguments {
  std::vector<std::string> inputs;
  std::string output;
};

struct BenchArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string shape;  ///< "128x32x32" (sentences, source and target tokens) or empty: the data
  int64_t steps = 10;
  int64_t warmup_steps = 2;
  std::string json;  ///< file to write, or empty
};

int run_train(const TrainArguments& arguments);
int run_translate(const TranslateArguments& arguments);
int run_score(const ScoreArguments& arguments);
int run_evaluate(const EvaluateArguments& arguments);
int run_gradcheck(const GradcheckArguments& arguments);
int run_inspect(const InspectArguments& arguments);
int run_average(const AverageArguments& arguments);
int run_bench(const BenchArguments& arguments);

}  // namespace tapestry
