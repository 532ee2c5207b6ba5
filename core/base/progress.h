// Progress of long work. Libraries count; the program may draw a bar. Nothing is printed here.
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
  /// `what` is the activity ("translating"); `total` counts `unit` ("sentences"); 0: unknown.
  explicit Progress(std::string what, int64_t total = 0, std::string unit = "");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Sets the number of units that are done.
  void to(int64_t done) { done_ = done; }
  void add(int64_t more = 1) { done_ += more; }

 private:
  friend struct ProgressNow;

  const std::string what_, unit_;
  const int64_t total_;
  const double begun_;
  std::atomic<int64_t> done_ = 0;
};

/// A snapshot of the progress.
struct ProgressNow {
  std::string what, unit;
  int64_t done = 0, total = 0;
  double seconds = 0;  ///< since it began

  /// The progress of the outermost work in progress; its parts do not show.
  static std::optional<ProgressNow> look();
};

/// Sets the function that is called at the end of each piece of work, before anything else is
/// printed. One for the process; empty: none.
void when_progress_ends(std::function<void()> ended);

}  // namespace tapestry
