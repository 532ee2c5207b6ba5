// Destinations of a run's numbers besides train.log and metrics.jsonl: `training.report_to`. A
// reporter is a file and a row of reporter.cpp; its name stands in config.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapestry {

using MetricValues = std::vector<std::pair<std::string, double>>;

/// Facts about a run for reporters.
struct ReportedRun {
  std::string folder;
  int64_t resumed_step = 0;                 ///< the updates that came before; 0: the run is new
  std::map<std::string, std::string> keys;  ///< of the config: "training.max_steps" -> "2000"
  std::string metric;                       ///< the validation metric that decides the best
};

class Reporter {
 public:
  virtual ~Reporter() = default;
  /// `kind` is "train", "valid" or "test". Values that are not finite come as they are.
  virtual void metrics(int64_t step, const std::string& kind, const MetricValues& values) = 0;
  /// Called at the end of a run, but not when it is stopped and may go on later.
  virtual void finish() = 0;
  /// The reason why its data is not in its file yet; empty if it is.
  virtual std::string problem() const { return ""; }
};

/// `name` is one of TrainingOptions::kReporters. Throws Error(kRuntime) when it cannot write.
std::unique_ptr<Reporter> make_reporter(const std::string& name, const ReportedRun& run);

}  // namespace tapestry
