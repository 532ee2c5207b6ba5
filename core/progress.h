// How far long work is. Whoever works says it, and whoever runs the program may show it: nothing is
// printed here.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tapestry {

/// A piece of work while it is done. Cheap enough for each batch of a loop.
class Progress {
 public:
  /// `what` is done, "translating"; `total` of `unit`, "sentences"; 0: not known.
  explicit Progress(std::string what, int64_t total = 0, std::string unit = "");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// So much is done.
  void to(int64_t done) { done_ = done; }
  void add(int64_t more = 1) { done_ += more; }

 private:
  friend struct ProgressNow;

  const std::string what_, unit_;
  const int64_t total_;
  const double begun_;
  std::atomic<int64_t> done_ = 0;
};

/// What a moment shows of it.
struct ProgressNow {
  std::string what, unit;
  int64_t done = 0, total = 0;
  double seconds = 0;  ///< since it began

  /// Of the work that began first and still goes on: what it consists of does not show.
  static std::optional<ProgressNow> look();
};

/// Calls `ended` at the end of each piece of work, before anything is printed behind it. One
/// function for the process; empty: none.
void when_progress_ends(std::function<void()> ended);

}  // namespace tapestry
