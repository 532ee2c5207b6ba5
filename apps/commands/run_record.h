// What a run folder says about a training, for the report and for watch. Other people's folders are
// read as they are: what is damaged is left out, with a warning that names the place.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tapestry {

/// Numbers by name, a row for each line: NaN where a line has no such number.
struct MetricTable {
  std::vector<std::string> names;            ///< in the order of their first line
  std::vector<std::vector<double>> columns;  ///< all equally long

  size_t rows() const { return columns.empty() ? 0 : columns.front().size(); }
  /// Null where there is none.
  const std::vector<double>* find(const std::string& name) const;
  void add(const nlohmann::ordered_json& line);
};

struct RunRecord {
  struct Best {
    int64_t step = 0;
    double value = 0;
  };

  std::string folder;
  std::string name;  ///< of the folder; of several runs different ones
  MetricTable train, valid;
  std::map<std::string, double> test;
  std::vector<int64_t> skipped;                                      ///< updates
  std::vector<nlohmann::ordered_json> starts;                        ///< lines of starts.jsonl
  std::vector<nlohmann::ordered_json> samples, lengths, confusions;  ///< lines of samples.jsonl
  std::map<std::string, std::string> config;  ///< by path, as it was resolved
  std::string metric;  ///< that tells the best; empty where the config does not say
  std::vector<std::string> warnings;

  /// As the trainer found it.
  std::optional<Best> best() const;
  /// How often it went on from a checkpoint; a start of a run that was over is none.
  size_t resumes() const;
};

/// Lines of metrics.jsonl as they come: what a run has written since the last call.
class MetricsReader {
 public:
  explicit MetricsReader(std::string path) : path_(std::move(path)) {}

  /// Adds whole lines to the record. A line without an end is left for later. Where the file got
  /// shorter or was replaced (a run was resumed), all of it is read again. Returns whether there
  /// was anything new.
  bool read(RunRecord& record);
  /// The rest, at the end: a line that a killed run left incomplete gives a warning.
  void finish(RunRecord& record);

 private:
  void add(const std::string& line, RunRecord& record);

  std::string path_;
  std::string rest_;
  int64_t offset_ = 0, line_ = 0;
  uint64_t file_ = 0;  ///< its number on the disk
};

/// All of a run folder. Throws Error(kData) where it has no metrics.jsonl.
RunRecord read_run(const std::string& folder);

/// The config.yaml of a run folder, by path; a warning goes to the record.
void read_run_config(RunRecord& record);

/// The starts.jsonl of a run folder, which may be missing; bad lines give warnings.
void read_run_starts(RunRecord& record);

/// Names that tell the runs apart: of the folders, or as much of their paths as that takes.
void name_runs(std::vector<RunRecord>& runs);

/// The keys whose values are not the same in all runs, but for output_dir.
std::vector<std::string> differing_keys(const std::vector<RunRecord>& runs);

}  // namespace tapestry
