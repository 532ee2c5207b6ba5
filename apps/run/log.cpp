#include "apps/run/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cmath>
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

}  // namespace

struct RunLog::Sinks {
  std::shared_ptr<spdlog::logger> logger;
  std::string metrics_path;  ///< empty: there is no file
  std::ofstream metrics;
  std::vector<std::unique_ptr<Reporter>> reporters;
};

RunLog::RunLog() : sinks_(std::make_unique<Sinks>()), loading_told_(steady_seconds()) {
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
  sinks_->metrics_path = metrics;
  sinks_->metrics.open(metrics, std::ios::app);
  if (!sinks_->metrics) fail(ErrorKind::kRuntime, "[log] cannot write ", metrics, '.');
}

RunLog::~RunLog() = default;

std::unique_ptr<RunLog> RunLog::of_other_rank(const std::string& prefix) {
  auto log = std::make_unique<RunLog>();
  log->prefix_ = prefix;
  log->silent_ = true;
  return log;
}

void RunLog::info(const std::string& message) {
  if (silent_) return;
  progress_.clear();
  sinks_->logger->info("{}", message);
}

void RunLog::warn(const std::string& message) {
  if (!silent_) warn_of_machine(message);
}

void RunLog::warn_of_machine(const std::string& message) {
  progress_.clear();
  sinks_->logger->warn("warning: {}{}", prefix_, message);
}

void RunLog::report_to(std::unique_ptr<Reporter> reporter) {
  sinks_->reporters.push_back(std::move(reporter));
}

void RunLog::finish() {
  for (const auto& reporter : sinks_->reporters) reporter->finish();
}

void RunLog::metrics(int64_t step, const std::string& kind, const MetricValues& values) {
  for (const auto& reporter : sinks_->reporters) reporter->metrics(step, kind, values);
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

bool RunLog::has_metrics(int64_t step, const std::string& kind) const {
  std::ifstream in(sinks_->metrics_path);
  for (std::string line; std::getline(in, line);) {
    if (step_of(line) != step) continue;
    if (Json::parse(line).value("kind", "") == kind) return true;
  }
  return false;
}

void RunLog::progress(int64_t step, int64_t total, const std::string& status) {
  if (!silent_) progress_.draw(step, total, status);
}

void RunLog::loading(const std::string& what, double share, const std::string& status) {
  if (silent_) return;
  constexpr int64_t kParts = 100;
  const auto part = static_cast<int64_t>(kParts * share);
  if (progress_.on_terminal())
    return progress_.draw(part, kParts, concat("% of the ", what, ", ", status));
  constexpr double kSecondsOfALine = 10;
  if (steady_seconds() < loading_told_ + kSecondsOfALine) return;
  loading_told_ = steady_seconds();
  info(concat(what, ": ", part, " %, ", status));
}

}  // namespace tapestry
