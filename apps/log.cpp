#include "apps/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// Keeps the lines of a metrics file up to a step. The file is replaced in one move.
void cut_metrics(const std::string& path, int64_t last_step) {
  std::ifstream in(path);
  if (!in) return;
  const std::string temporary = path + ".tmp";
  {
    std::ofstream out(temporary);
    for (std::string line; std::getline(in, line);) {
      const Json entry = Json::parse(line, nullptr, false);
      if (entry.is_discarded() || entry.value("step", int64_t{0}) > last_step) continue;
      out << line << '\n';
    }
  }
  std::filesystem::rename(temporary, path);
}

}  // namespace

struct RunLog::Sinks {
  std::shared_ptr<spdlog::logger> logger;
  std::ofstream metrics;
};

RunLog::RunLog() : sinks_(std::make_unique<Sinks>()), on_terminal_(isatty(STDERR_FILENO) == 1) {
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
  constexpr int kWidth = 24;
  const int filled = total > 0 ? static_cast<int>(kWidth * step / total) : 0;
  std::string bar(static_cast<size_t>(filled), '#');
  bar.resize(kWidth, '.');
  std::fprintf(stderr, "\r\033[K[%s] %lld/%lld  %s", bar.c_str(), static_cast<long long>(step),
               static_cast<long long>(total), status.c_str());
  std::fflush(stderr);
  progress_shown_ = true;
}

void RunLog::clear_progress() {
  if (progress_shown_) std::fputs("\r\033[K", stderr);
  progress_shown_ = false;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(std::max(0.0, seconds)));
  char text[40];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%lldh %02lldm", whole / 3600, whole / 60 % 60);
  } else if (whole >= 60) {
    std::snprintf(text, sizeof text, "%lldm %02llds", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%llds", whole);
  }
  return text;
}

}  // namespace tapestry
