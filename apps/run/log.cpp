#include "apps/run/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/error.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// The step of a line of metrics, or -1 for a line that a killed run left incomplete.
int64_t step_of(const std::string& line) {
  const Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object() || !entry.contains("step")) return -1;
  return entry["step"].is_number_integer() ? entry["step"].get<int64_t>() : -1;
}

// Keeps the lines of a metrics file up to a step. The file is replaced in one move.
void cut_metrics(const std::string& path, int64_t last_step) {
  std::ifstream in(path);
  if (!in) return;
  const std::string temporary = path + ".tmp";
  std::ofstream out(temporary);
  for (std::string line; std::getline(in, line);) {
    const int64_t step = step_of(line);
    if (step >= 0 && step <= last_step) out << line << '\n';
  }
  out.close();
  if (!out || in.bad()) fail(ErrorKind::kRuntime, "[log] cannot write ", temporary, '.');
  std::filesystem::rename(temporary, path);
}

// A line longer than the terminal is wide would wrap, and "\r" would no longer reach its start.
std::string fit_terminal(const std::string& line) {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return line;
  return line.substr(0, static_cast<size_t>(size.ws_col) - 1);
}

}  // namespace

struct RunLog::Sinks {
  std::shared_ptr<spdlog::logger> logger;
  std::ofstream metrics;
};

RunLog::RunLog()
    : sinks_(std::make_unique<Sinks>()),
      on_terminal_(isatty(STDERR_FILENO) == 1),
      loading_told_(steady_seconds()) {
  auto console = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  console->set_pattern("%H:%M:%S %^%v%$");
  sinks_->logger = std::make_shared<spdlog::logger>("run", console);
}

RunLog::RunLog(const std::string& folder, int64_t resumed_step) : RunLog() {
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(folder + "/train.log");
    file->set_pattern("%Y-%m-%d %H:%M:%S %l %v");
    sinks_->logger->sinks().push_back(file);
  } catch (const spdlog::spdlog_ex& error) {
    fail(ErrorKind::kRuntime, "[log] ", error.what());
  }
  sinks_->logger->flush_on(spdlog::level::info);
  const std::string metrics = folder + "/metrics.jsonl";
  cut_metrics(metrics, resumed_step);
  sinks_->metrics.open(metrics, std::ios::app);
  if (!sinks_->metrics) fail(ErrorKind::kRuntime, "[log] cannot write ", metrics, '.');
}

RunLog::~RunLog() { clear_progress(); }

void RunLog::info(const std::string& message) {
  clear_progress();
  sinks_->logger->info("{}", message);
}

void RunLog::warn(const std::string& message) {
  clear_progress();
  sinks_->logger->warn("warning: {}", message);
}

void RunLog::metrics(int64_t step, const std::string& kind,
                     const std::vector<std::pair<std::string, double>>& values) {
  if (!sinks_->metrics.is_open()) return;
  Json line{{"step", step}, {"kind", kind}};
  for (const auto& [name, value] : values) {
    if (std::isfinite(value)) {
      line[name] = value;
    } else {
      line[name] = nullptr;
    }
  }
  sinks_->metrics << line.dump() << std::endl;
}

void RunLog::progress(int64_t step, int64_t total, const std::string& status) {
  if (!on_terminal_) return;
  draw(total > 0 ? static_cast<double>(step) / static_cast<double>(total) : 0,
       concat(step, '/', total, "  ", status));
}

void RunLog::loading(const std::string& what, double share, const std::string& status) {
  const std::string text = fmt::format("{}: {:.0f} %, {}", what, 100 * share, status);
  if (on_terminal_) return draw(share, text);
  constexpr double kSecondsOfALine = 10;
  if (steady_seconds() < loading_told_ + kSecondsOfALine) return;
  loading_told_ = steady_seconds();
  info(text);
}

void RunLog::draw(double share, const std::string& text) {
  constexpr int kWidth = 24;
  std::string bar(static_cast<size_t>(kWidth * share), '#');
  bar.resize(kWidth, '.');
  const std::string line = concat('[', bar, "] ", text);
  std::fprintf(stderr, "\r\033[K%s", fit_terminal(line).c_str());
  std::fflush(stderr);
  progress_shown_ = true;
}

void RunLog::clear_progress() {
  if (progress_shown_) std::fputs("\r\033[K", stderr);
  progress_shown_ = false;
}

std::string duration_text(double seconds) {
  const long long whole = std::llround(std::max(0.0, seconds));
  if (whole >= 3600) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

}  // namespace tapestry
