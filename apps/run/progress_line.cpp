#include "apps/run/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/text.h"

namespace tapestry {
namespace {

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
  }
  std::fprintf(stderr, "\r\033[K%s", fit_terminal(line).c_str());
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

std::string duration_text(double seconds) {
  const long long whole = std::llround(std::max(0.0, seconds));
  if (whole >= 3600) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

}  // namespace tapestry
