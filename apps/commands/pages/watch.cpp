// tapestry watch: the curves of a run in the terminal, while it trains.
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <iostream>

#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/pages/run_record.h"
#include "apps/commands/pages/text_chart.h"
#include "apps/config/tree.h"
#include "apps/run/outputs/progress_line.h"
#include "core/base/error.h"
#include "core/base/printable.h"

namespace tapestry {
namespace {

struct WatchArguments {
  std::vector<std::string> runs = {};  ///< folders
  double interval = 1;                 ///< seconds from one look to the next
  bool once = false;                   ///< prints the present state and ends
};

constexpr size_t kLeastChart = 6;    // lines of a chart with its title
constexpr size_t kTwoColumns = 110;  // least width for two charts side by side

volatile std::sig_atomic_t stopped = 0;

struct Size {
  size_t width = 80, height = 24;
};

Size terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
  return {size.ws_col, size.ws_row};
}

// Writes all of it at once: a frame that comes in parts flickers.
void write_out(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(ErrorKind::kRuntime, "cannot write to stdout.");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

// A screen of its own without a cursor, keys that come at once; all as before at the end.
class Screen {
 public:
  Screen() {
    struct sigaction action {};
    action.sa_handler = [](int signal) {
      if (signal != SIGWINCH) stopped = 1;
    };
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) {
      sigaction(signal, &action, nullptr);
    }
    has_keys_ = tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    write_out("\033[?1049h\033[?25l");
  }
  ~Screen() {
    // If the terminal is gone, nothing has to be restored.
    const std::string_view end = "\033[?25h\033[?1049l";
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, end.data(), end.size());
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Over the last frame, line by line, so that nothing blinks.
  void show(const std::vector<std::string>& lines) {
    std::string frame = "\033[H";
    for (size_t i = 0; i < lines.size(); ++i) {
      frame += lines[i] + "\033[K" + (i + 1 < lines.size() ? "\r\n" : "");
    }
    write_out(frame + "\033[J");
  }
  // Waits for some seconds, for a key, which it returns, or for another size of the terminal.
  // Returns 'q' to quit, 0 for no key.
  char wait(double seconds) {
    pollfd keys{has_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    const int ready = poll(&keys, 1, static_cast<int>(1000 * seconds));
    char key = 0;
    if (ready > 0 && read(STDIN_FILENO, &key, 1) != 1) key = 0;
    return stopped != 0 || key == 'Q' || key == 3 ? 'q' : key;
  }

 private:
  bool has_keys_ = false;
  termios before_{};
};

struct Watched {
  RunRecord record;
  MetricsReader reader;
};

int64_t number_of(const RunRecord& run, const char* key) {
  const auto found = run.config.find(key);
  int64_t value = 0;
  if (found == run.config.end() || !parse_yaml_integer(found->second, value)) return 0;
  return value;
}

double last_of(const MetricTable& table, const char* name) {
  const std::vector<double>* const values = table.find(name);
  return values == nullptr || values->empty() ? 0 : values->back();
}

// "run: update 1200 of 4000  14m 03s"
std::string summary_of(const RunRecord& run) {
  const auto step =
      static_cast<int64_t>(std::max(last_of(run.train, "step"), last_of(run.valid, "step")));
  const int64_t most = number_of(run, "training.max_steps");
  std::string text = fmt::format("{}: update {}", printable(run.name), step);
  if (most > 0) text += fmt::format(" of {}", most);
  const double seconds = last_of(run.train, "seconds");
  text += "  " + duration_text(seconds);
  if (most > 0 && step > 0 && step < most) {
    const double left = seconds / static_cast<double>(step) * static_cast<double>(most - step);
    text += fmt::format(", {} left", duration_text(left));
  }
  return text;
}

// "  best bleu 31.2 at 1000  2 skipped  1 resume", or less.
std::string best_of(const RunRecord& run) {
  std::string text;
  if (const auto best = run.best()) {
    text += fmt::format("  best {} {} at {}", printable(run.metric), short_number(best->value),
                        best->step);
  }
  if (!run.skipped.empty()) text += fmt::format("  {} skipped", run.skipped.size());
  if (const size_t resumes = run.resumes(); resumes > 0) {
    text += fmt::format("  {} resume{}", resumes, resumes == 1 ? "" : "s");
  }
  return text;
}

// The chart of the values with this name in both parts of all runs.
TextChart chart_of(const std::vector<Watched>& runs, const std::string& name) {
  TextChart chart{.title = name, .curves = {}};
  std::ranges::replace(chart.title, '_', ' ');
  chart.title = printable(chart.title);
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunRecord& run = runs[i].record;
    const MetricTable* const parts[] = {&run.train, &run.valid};
    for (int part = 0; part < 2; ++part) {
      const std::vector<double>*const y = parts[part]->find(name), *const x =
                                                                       parts[part]->find("step");
      if (y == nullptr || x == nullptr) continue;
      const size_t colour =
          runs.size() == 1 ? static_cast<size_t>(part) : 2 * i + static_cast<size_t>(part);
      const std::string of_part = part == 0 ? "training" : "validation";
      chart.curves.push_back({runs.size() == 1 ? of_part : printable(run.name) + ' ' + of_part, *x,
                              *y, static_cast<int>(colour % std::size(kCurveColours))});
    }
  }
  return chart;
}

// The most telling ones first: a small terminal shows the others on its next pages.
std::vector<TextChart> charts_of(const std::vector<Watched>& runs) {
  std::vector<std::string> names = {"loss", runs.front().record.metric};
  for (const auto& watched : runs) {
    for (const std::string& name : watched.record.valid.names) names.push_back(name);
  }
  for (const char* name : {"learning_rate", "grad_norm", "tokens_per_s", "peak_bytes"}) {
    names.emplace_back(name);
  }
  std::vector<TextChart> charts;
  std::vector<std::string> seen = {"step", "seconds", "tokens", ""};
  for (const std::string& name : names) {
    if (std::ranges::find(seen, name) != seen.end()) continue;
    seen.push_back(name);
    TextChart chart = chart_of(runs, name);
    for (const auto& watched : runs) {
      chart.last = std::max(chart.last, last_of(watched.record.train, "step"));
    }
    if (!chart.curves.empty()) charts.push_back(std::move(chart));
  }
  return charts;
}

// The first page of charts, or with `page` that one, with the keys in the head; page numbers wrap
// around, and `page` is set to the actual one.
std::vector<std::string> frame_of(const std::vector<Watched>& runs, Size size, bool colours,
                                  int64_t* page) {
  std::vector<std::string> lines;
  for (const Watched& watched : runs) {
    // The summary and the course stand below each other if the line has no room for both.
    std::string line = summary_of(watched.record);
    const std::string rest = best_of(watched.record);
    if (text_width(line) + text_width(rest) > size.width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    lines.push_back(line + rest);
  }
  std::vector<TextChart> charts = charts_of(runs);
  // The keys get a line of their own if the first run leaves no room.
  constexpr size_t kKeys = 30;
  const bool own_line = page != nullptr && text_width(lines.front()) + kKeys > size.width;
  const size_t columns = size.width >= kTwoColumns ? 2 : 1;
  const size_t width = (size.width - 2 * (columns - 1)) / columns;
  const size_t head = lines.size() + (own_line ? 1 : 0);
  const size_t room = size.height > head ? size.height - head : kLeastChart;
  const size_t most = std::max<size_t>(1, room / kLeastChart) * columns;
  size_t first = 0;
  if (page != nullptr) {
    const auto pages = static_cast<int64_t>(std::max<size_t>(1, (charts.size() + most - 1) / most));
    *page = (*page % pages + pages) % pages;
    first = static_cast<size_t>(*page) * most;
    const std::string keys =
        pages == 1 ? "q: leave" : fmt::format("n, p: page {} of {}  q: leave", *page + 1, pages);
    if (own_line) {
      lines.insert(lines.begin(), keys);
    } else {
      lines.front() = fit_width(lines.front(), size.width - text_width(keys)) + keys;
    }
  }
  for (std::string& line : lines) line = fit_width(line, size.width);
  if (charts.empty()) {
    lines.push_back(fit_width("no lines in metrics.jsonl yet", size.width));
    return lines;
  }
  charts.erase(charts.begin(), charts.begin() + static_cast<int64_t>(first));
  charts.resize(std::min(charts.size(), most));
  const size_t rows = (charts.size() + columns - 1) / columns;
  for (size_t row = 0; row < rows; ++row) {
    const size_t height = room * (row + 1) / rows - room * row / rows;
    std::vector<std::string> part(height);
    for (size_t column = 0; column < columns; ++column) {
      const size_t number = row * columns + column;
      if (number >= charts.size()) break;
      const auto chart = text_chart(charts[number], width, height, colours);
      for (size_t i = 0; i < height; ++i) {
        part[i] += (column > 0 ? "  " : "") + chart[i];
      }
    }
    lines.insert(lines.end(), part.begin(), part.end());
  }
  lines.resize(std::min(lines.size(), size.height));
  return lines;
}

int run_watch(const WatchArguments& arguments) {
  std::vector<RunRecord> records;
  for (const std::string& folder : arguments.runs) {
    if (!std::filesystem::is_directory(folder)) {
      fail(ErrorKind::kData, "[watch] ", folder, " is no folder of a run.");
    }
    records.emplace_back().folder = folder;
    read_run_config(records.back());
  }
  name_runs(records);
  std::vector<Watched> runs;
  for (RunRecord& record : records) {
    MetricsReader reader(record.folder + "/metrics.jsonl");
    runs.push_back({std::move(record), std::move(reader)});
  }
  const auto read = [&] {
    for (Watched& run : runs) {
      if (run.reader.read(run.record)) read_run_starts(run.record);
      // A run that is about to begin has no config yet.
      if (run.record.config.empty()) read_run_config(run.record);
    }
  };
  read();
  if (arguments.once || isatty(STDOUT_FILENO) != 1) {
    const bool colours = isatty(STDOUT_FILENO) == 1;
    for (const std::string& line : frame_of(runs, terminal_size(), colours, /*page=*/nullptr)) {
      std::cout << line << '\n';
    }
    return 0;
  }
  Screen screen;
  int64_t page = 0;
  for (char key = 0; key != 'q'; key = screen.wait(arguments.interval)) {
    if (key == ' ' || key == 'n') ++page;
    if (key == 'p') --page;
    read();
    screen.show(frame_of(runs, terminal_size(), /*colours=*/true, &page));
  }
  return 0;
}

void add_watch(CLI::App& app, WatchArguments& arguments) {
  app.add_option("runs", arguments.runs, "run folders")->required();
  app.add_option("--interval", arguments.interval, "seconds from one look to the next")
      ->check(number<double>(between(0.1, 3600)))
      ->capture_default_str();
  app.add_flag("--once", arguments.once, "print what is there and end");
  app.footer(
      "n or space turns to the next page of charts, p to the one before. q leaves it; the training "
      "does not notice.");
}

}  // namespace

extern const Command kWatch("watch", "The curves of runs in the terminal, while they train",
                            add_watch, run_watch);

}  // namespace tapestry
