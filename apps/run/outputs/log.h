// The outputs of a run: messages go to stderr and train.log, numbers to metrics.jsonl and to
// reporters, examples to samples.jsonl, facts about each start to starts.jsonl, progress to a
// terminal. Files that cannot be written for a while get their lines later.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/run/outputs/progress_line.h"
#include "apps/run/outputs/reporter.h"
#include "apps/tasks/validation_details.h"

namespace tapestry {

/// Facts by name: "processor", "AMD EPYC 9654".
using Facts = std::vector<std::pair<std::string, std::string>>;

class RunLog {
 public:
  /// Messages go only to stderr.
  RunLog();
  /// The log of a rank other than the first: prints only its own warnings, after `prefix`.
  static std::unique_ptr<RunLog> of_other_rank(const std::string& prefix);
  /// Messages also go to <folder>/train.log, and the rest to its .jsonl files. Their lines after
  /// `resumed_step` are removed: the run writes them again.
  RunLog(const std::string& folder, int64_t resumed_step);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void info(const std::string& message);
  void warn(const std::string& message);
  /// A warning that is about this machine, which no other rank gives.
  void warn_of_machine(const std::string& message);

  /// Passes all metrics to the reporter from now on.
  void report_to(std::unique_ptr<Reporter> reporter);

  /// One line of metrics.jsonl: {"step": step, "kind": kind, ...values}.
  void metrics(int64_t step, const std::string& kind, const MetricValues& values);

  /// An update that changed nothing: a line of metrics.jsonl of kind "skipped".
  void skipped(int64_t step, const MetricValues& values);

  /// Writes lines of samples.jsonl: kind "sample" for each example, "lengths" and "confusion". Only
  /// the first call writes pictures.
  void show(int64_t step, const ValidationDetails& details);

  /// A line of starts.jsonl: {"step": step, "time": ..., ...facts}.
  void started(int64_t step, const Facts& facts);

  /// The run is over: no more metrics come.
  void finish();

  /// True if metrics.jsonl has a line of this update and kind.
  bool has_metrics(int64_t step, const std::string& kind) const;

  /// Redraws the progress line of a terminal; does nothing if stderr is not a terminal.
  void progress(int64_t step, int64_t total, const std::string& status);

 private:
  struct Sinks;
  struct WatchedFile;
  class MessageSink;
  /// Warns when the file cannot be written any more.
  void watch(WatchedFile* watched);
  void append_metrics(int64_t step, const std::string& kind, const MetricValues& values);

  std::unique_ptr<Sinks> sinks_;
  ProgressLine progress_;
  std::string prefix_;
  bool silent_ = false;  ///< but for warnings of the machine
  bool shown_ = false;   ///< examples
};

}  // namespace tapestry
