#include "apps/run/outputs/progress_line.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "core/base/error.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

constexpr double kLong = 2;  // seconds after which work shows

// Guards the single line.
std::recursive_mutex drawing;
bool shown = false;
std::atomic<bool> silent = false;

// A line longer than the terminal is wide would wrap, and "\r" would no longer reach its start.
std::string fit_terminal(const std::string& line) {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return line;
  return line.substr(0, static_cast<size_t>(size.ws_col) - 1);
}

}  // namespace

ProgressLine::ProgressLine() : on_terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressLine::draw(int64_t done, int64_t total, const std::string& status) {
  if (!on_terminal_) return;
  constexpr int64_t kWidth = 24;
  std::string line = concat(done, "  ", status);
  if (total > 0) {
    std::string bar(static_cast<size_t>(std::min(kWidth, kWidth * done / total)), '#');
    bar.resize(kWidth, '.');
    line = concat('[', bar, "] ", done, '/', total, "  ", status);
  } else if (done == 0) {
    line = status;
  }
  const std::lock_guard lock(drawing);
  std::fprintf(stderr, "\r\033[K%s", fit_terminal(line).c_str());
  std::fflush(stderr);
  shown = true;
}

void ProgressLine::clear() {
  const std::lock_guard lock(drawing);
  if (shown) std::fputs("\r\033[K", stderr);
  shown = false;
}

ProgressLine::Hidden::Hidden() : lock_(drawing) { clear(); }

ProgressDisplay::ProgressDisplay() {
  when_progress_ends([] { ProgressLine::clear(); });
  // Signals are for the thread that works.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ProgressDisplay::~ProgressDisplay() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
  when_progress_ends({});
}

void ProgressDisplay::silence() { silent = true; }

void ProgressDisplay::run() {
  constexpr std::chrono::milliseconds kPause{200};
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPause, [&] { return over_; })) look();
}

void ProgressDisplay::look() {
  if (silent) return;
  // Work that ends now must not be drawn behind its end.
  const std::lock_guard lock(drawing);
  const std::optional<ProgressNow> work = ProgressNow::look();
  if (!work || work->seconds < kLong) {
    told_ = 0;
    return;
  }
  if (line_.on_terminal()) {
    const bool counts = work->total > 0 || work->done > 0;
    return line_.draw(work->done, work->total,
                      counts ? concat(status_of(*work), "  ", work->what)
                             : concat(work->what, "  ", status_of(*work)));
  }
  constexpr double kFirst = 10, kThen = 30;
  if (work->seconds < told_) told_ = 0;  // another one
  if (work->seconds < (told_ == 0 ? kFirst : told_ + kThen)) return;
  told_ = work->seconds;
  const std::string of = work->total > 0 ? concat('/', work->total) : "";
  const std::string count =
      work->total > 0 || work->done > 0 ? concat(": ", work->done, of, ' ') : ": ";
  std::fputs(concat(work->what, count, status_of(*work), '\n').c_str(), stderr);
}

std::string status_of(const ProgressNow& work) {
  const double rate = static_cast<double>(work.done) / std::max(1e-9, work.seconds);
  std::string text = work.unit.empty() || work.done + work.total == 0 ? "" : work.unit + "  ";
  if (work.total > 0 && work.done > 0) {
    const auto left = static_cast<double>(work.total - work.done);
    if (work.unit != "%") text += fmt::format("{:.3g}/s  ", rate);
    return text + concat(duration_text(left / rate), " left");
  }
  if (work.done > 0) text += fmt::format("{:.3g}/s  ", rate);
  return text + duration_text(work.seconds);
}

std::string duration_text(double seconds) {
  const long long whole = std::llround(std::max(0.0, seconds));
  if (whole >= 3600) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

}  // namespace tapestry
