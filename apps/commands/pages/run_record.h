// The contents of a run folder, for the report and for watch. Damaged parts are left out, with a
// warning that names the place, since folders may come from other people.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tapestry {

/// Numbers by name, a row for each line: NaN if a line lacks the number.
struct MetricTable {
  std::vector<std::string> names;            ///< in the order of their first line
  std::vector<std::vector<double>> columns;  ///< all equally long

  size_t rows() const { return columns.empty() ? 0 : columns.front().size(); }
  /// Null if there is no such name.
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
  std::string metric;  ///< the metric that decides the best; empty if the config does not name it
  std::vector<std::string> warnings;

  /// The best validation, as the trainer found it.
  std::optional<Best> best() const;
  /// Number of resumes; starting a run that was over does not count.
  size_t resumes() const;
};

/// Reads the lines of metrics.jsonl that a run has written since the last call.
class MetricsReader {
 public:
  explicit MetricsReader(std::string path) : path_(std::move(path)) {}

  /// Adds whole lines to the record. An unfinished line is left for later. If the file got shorter
  /// or was replaced (a run was resumed), all of it is read again. Returns true if there was
  /// anything new.
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

/// Reads a whole run folder. Throws Error(kData) if it has no metrics.jsonl.
RunRecord read_run(const std::string& folder);

/// The config.yaml of a run folder, by path; a warning goes to the record.
void read_run_config(RunRecord& record);

/// The starts.jsonl of a run folder, which may be missing; bad lines give warnings.
void read_run_starts(RunRecord& record);

/// Names that distinguish the runs: their folders, with as much of the paths as is needed.
void name_runs(std::vector<RunRecord>& runs);

/// The keys whose values differ between the runs, except output_dir.
std::vector<std::string> differing_keys(const std::vector<RunRecord>& runs);

}  // namespace tapestry
