#include "apps/run/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/run/appended_file.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/printable.h"

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

// A file of the run, and whether the user knows that it cannot be written.
struct RunLog::WatchedFile {
  explicit WatchedFile(const std::string& path) : file(path) {}
  AppendedFile file;
  bool told = false;
};

struct RunLog::Sinks {
  std::shared_ptr<spdlog::logger> logger;
  std::shared_ptr<WatchedFile> messages, metrics;  ///< null: there are no files
  std::vector<std::unique_ptr<Reporter>> reporters;
  bool report_told = false;  // that one of them cannot write
};

class RunLog::MessageSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit MessageSink(std::shared_ptr<WatchedFile> to) : to_(std::move(to)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    to_->file.append({text.data(), text.size()});
  }
  void flush_() override {}

  std::shared_ptr<WatchedFile> to_;
};

RunLog::RunLog() : sinks_(std::make_unique<Sinks>()), loading_told_(steady_seconds()) {
  auto console = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  console->set_pattern("%H:%M:%S %^%v%$");
  sinks_->logger = std::make_shared<spdlog::logger>("run", console);
}

RunLog::RunLog(const std::string& folder, int64_t resumed_step) : RunLog() {
  sinks_->messages = std::make_shared<WatchedFile>(folder + "/train.log");
  auto sink = std::make_shared<MessageSink>(sinks_->messages);
  sink->set_pattern("%Y-%m-%d %H:%M:%S %l %v");
  sinks_->logger->sinks().push_back(sink);
  const std::string metrics = folder + "/metrics.jsonl";
  cut_metrics(metrics, resumed_step);
  sinks_->metrics = std::make_shared<WatchedFile>(metrics);
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
  sinks_->logger->info("{}", printable(message));
  watch(sinks_->messages.get());
}

void RunLog::warn(const std::string& message) {
  if (!silent_) warn_of_machine(message);
}

void RunLog::warn_of_machine(const std::string& message) {
  progress_.clear();
  sinks_->logger->warn("warning: {}{}", prefix_, printable(message));
  watch(sinks_->messages.get());
}

void RunLog::watch(WatchedFile* watched) {
  if (watched == nullptr) return;
  const std::string& problem = watched->file.problem();
  const bool news = !problem.empty() && !watched->told;
  watched->told = !problem.empty();
  if (!news) return;
  warn_of_machine(concat(watched->file.path(), " cannot be written: ", problem,
                         "; its lines are kept until it can"));
}

void RunLog::report_to(std::unique_ptr<Reporter> reporter) {
  sinks_->reporters.push_back(std::move(reporter));
}

void RunLog::finish() {
  for (const auto& reporter : sinks_->reporters) reporter->finish();
}

void RunLog::metrics(int64_t step, const std::string& kind, const MetricValues& values) {
  std::string problem;
  for (const auto& reporter : sinks_->reporters) {
    reporter->metrics(step, kind, values);
    if (problem.empty()) problem = reporter->problem();
  }
  if (!problem.empty() && !sinks_->report_told) {
    warn_of_machine(
        concat("an event file cannot be written: ", problem, "; its events are kept until it can"));
  }
  sinks_->report_told = !problem.empty();
  if (sinks_->metrics == nullptr) return;
  Json line{{"step", step}, {"kind", kind}};
  for (const auto& [name, value] : values) {
    if (std::isfinite(value)) {
      line[name] = value;
    } else {
      line[name] = nullptr;
    }
  }
  sinks_->metrics->file.append(line.dump() + '\n');
  watch(sinks_->metrics.get());
}

bool RunLog::has_metrics(int64_t step, const std::string& kind) const {
  if (sinks_->metrics == nullptr) return false;
  std::ifstream in(sinks_->metrics->file.path());
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
