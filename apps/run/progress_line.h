// The last line of a terminal, on which work tells how far it is.
#pragma once

#include <cstdint>
#include <string>

namespace tapestry {

/// Draws on stderr, and nothing if that is no terminal.
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
  void clear();

 private:
  bool on_terminal_;
  bool shown_ = false;
};

/// "1h 02m", "3m 20s", "12s"
std::string duration_text(double seconds);

}  // namespace tapestry
