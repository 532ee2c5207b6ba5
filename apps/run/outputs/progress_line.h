// The last line of a terminal, for progress.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "core/base/progress.h"

namespace tapestry {

/// Draws on stderr, and nothing if that is no terminal. All instances share one line.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool on_terminal() const { return on_terminal_; }
  /// "[####....] 3/6  status"; without a bar if `total` is 0 (unknown). Replaces the previous line,
  /// up to the width of the terminal.
  void draw(int64_t done, int64_t total, const std::string& status);
  /// Removes it, so that a message can take its place.
  static void clear();

  /// Removes it, and nobody draws while this lives.
  class Hidden {
   public:
    Hidden();

   private:
    std::unique_lock<std::recursive_mutex> lock_;
  };

 private:
  bool on_terminal_;
};

/// Shows the progress of work that takes longer than two seconds (core/base/progress.h) on stderr:
/// a bar on a terminal, a line now and then elsewhere. It looks from a thread of its own. One for
/// the process.
class ProgressDisplay {
 public:
  ProgressDisplay();
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  /// Shows nothing from now on, because another rank does.
  static void silence();

 private:
  void run();
  void look();

  ProgressLine line_;
  double told_ = 0;  ///< seconds of the work at the last line
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

/// "sentences  35/s  25s left", or the time so far if the total is unknown.
std::string status_of(const ProgressNow& work);

/// "1h 02m", "3m 20s", "12s"
std::string duration_text(double seconds);

}  // namespace tapestry
