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

  /// Redraws the progress line of a terminal; does nothing if stderr is not a terminal.
  void progress(int64_t step, int64_t total, const std::string& status);
  /// The same for work before the first step, of which `share` is done; without a terminal a line
  /// every ten seconds.
  void loading(const std::string& what, double share, const std::string& status);

 private:
  void clear_progress();
  /// A bar of `share` in [0, 1], and the text behind it.
  void draw(double share, const std::string& text);

  struct Sinks;
  std::unique_ptr<Sinks> sinks_;
  bool on_terminal_ = false;
  bool progress_shown_ = false;
  double loading_told_;  ///< when
};

/// "1h 02m", "3m 20s", "12s"
std::string duration_text(double seconds);

}  // namespace tapestry
