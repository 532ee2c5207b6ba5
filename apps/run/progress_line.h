// The last line of a terminal, on which work tells how far it is.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "core/progress.h"

namespace tapestry {

/// Draws on stderr, and nothing if that is no terminal. There is one such line, whoever draws it.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool on_terminal() const { return on_terminal_; }
  /// "[####....] 3/6  status"; without a bar where `total` is 0: not known. Replaces what was drawn
  /// before, as far as the terminal is wide.
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

/// Shows on stderr how far the work is that takes longer than two seconds (core/progress.h): a bar
/// on a terminal, a line now and then elsewhere. It looks from a thread of its own. One for the
/// process.
class ProgressDisplay {
 public:
  ProgressDisplay();
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  /// From here on it shows nothing: another rank does.
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

/// "sentences  35/s  25s left", or how long it lasts where nobody knows the end.
std::string status_of(const ProgressNow& work);

/// "1h 02m", "3m 20s", "12s"
std::string duration_text(double seconds);

}  // namespace tapestry
