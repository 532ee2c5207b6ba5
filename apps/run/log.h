// The outputs of a run: messages go to stderr and train.log, numbers to metrics.jsonl, progress to
// a terminal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapestry {

class RunLog {
 public:
  /// Messages go only to stderr.
  RunLog();
  /// Messages also go to <folder>/train.log, metrics to <folder>/metrics.jsonl. Lines of
  /// metrics.jsonl after `resumed_step` are removed: the run writes them again.
  RunLog(const std::string& folder, int64_t resumed_step);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void info(const std::string& message);
  void warn(const std::string& message);

  /// One line of metrics.jsonl: {"step": step, "kind": kind, ...values}.
  void metrics(int64_t step, const std::string& kind,
               const std::vector<std::pair<std::string, double>>& values);

  /// Whether metrics.jsonl has a line of this update and kind.
  bool has_metrics(int64_t step, const std::string& kind) const;

  /// Redraws the progress line of a terminal; does nothing if stderr is not a terminal.
  void progress(int64_t step, int64_t total, const std::string& status);

 private:
  void clear_progress();

  struct Sinks;
  std::unique_ptr<Sinks> sinks_;
  bool on_terminal_ = false;
  bool progress_shown_ = false;
};

/// "1h 02m", "3m 20s", "12s"
std::string duration_text(double seconds);

}  // namespace tapestry
