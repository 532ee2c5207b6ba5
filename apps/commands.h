// The subcommands of the binary. Each takes its parsed options, writes results to stdout and the rest to
// stderr, and returns the exit code or throws Error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapestry {

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;  ///< section.key=value
  std::string resume = "auto";         ///< auto | never | path of a checkpoint
};
int run_train(const TrainArguments& arguments);

struct TranslateArguments {
  std::string model;
  int64_t num_beams = 0;        ///< 0: the config's
  double length_penalty = -1;   ///< negative: the config's
  int64_t n_best = 1;
  int64_t batch_sentences = 64;
  std::string detail;           ///< "" or "jsonl"
  int threads = 0;
};
int run_translate(const TranslateArguments& arguments);

struct ScoreArguments {
  std::string model;
  std::string source;
  std::string target;
  int threads = 0;
};
int run_score(const ScoreArguments& arguments);

struct EvaluateArguments {
  std::string hypothesis;
  std::string reference;
  std::string tokenize = "13a";
  bool lowercase = false;
  bool json = false;
};
int run_evaluate(const EvaluateArguments& arguments);

struct GradcheckArguments {
  std::string config;  ///< "" or a config whose (shrunk) model is checked too
  std::string filter;
};
int run_gradcheck(const GradcheckArguments& arguments);

struct InspectArguments {
  std::string path;  ///< a checkpoint, a run folder or a config
};
int run_inspect(const InspectArguments& arguments);

struct AverageArguments {
  std::vector<std::string> checkpoints;
  std::string output;
};
int run_average(const AverageArguments& arguments);

struct BenchArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string shape;  ///< BxSxT; "": the config's data
  int64_t steps = 10;
  std::string json;   ///< file to write the figures to
};
int run_bench(const BenchArguments& arguments);

}  // namespace tapestry
