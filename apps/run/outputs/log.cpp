#include "apps/run/outputs/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <fmt/chrono.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/files.h"
#include "apps/run/outputs/appended_file.h"
#include "core/base/base64.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "data/images/images.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// The step of a line of metrics, or -1 for a line that a killed run left incomplete.
int64_t step_of(const std::string& line) {
  const Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object() || !entry.contains("step")) return -1;
  return entry["step"].is_number_integer() ? entry["step"].get<int64_t>() : -1;
}

// Keeps the lines of a file up to a step. The file is replaced as a whole, and only when its lines
// are on the disk.
void cut_lines(const std::string& path, int64_t last_step) {
  std::ifstream in(path);
  if (!in) return;
  replace_file(path, [&](const ByteSink& sink) {
    for (std::string line; std::getline(in, line);) {
      const int64_t step = step_of(line);
      if (step < 0 || step > last_step) continue;
      line += '\n';
      sink(line.data(), line.size());
    }
    if (in.bad()) fail(ErrorKind::kRuntime, "[log] cannot read ", path, '.');
  });
}

}  // namespace

// A file of the run; remembers if the user was warned that it cannot be written.
struct RunLog::WatchedFile {
  explicit WatchedFile(const std::string& path) : file(path) {}
  AppendedFile file;
  bool told = false;
};

struct RunLog::Sinks {
  std::shared_ptr<spdlog::logger> logger;
  std::shared_ptr<WatchedFile> messages, metrics, samples, starts;  ///< null: there are no files
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

namespace {

// Prints "warning: " in front of a warning. In a file the level shows it.
class WarningFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& to) override {
    constexpr std::string_view kWarning = "warning: ";
    if (message.level == spdlog::level::warn) to.append(kWarning.begin(), kWarning.end());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<WarningFlag>();
  }
};

}  // namespace

RunLog::RunLog() : sinks_(std::make_unique<Sinks>()) {
  auto console = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<WarningFlag>('*').set_pattern("%H:%M:%S %^%*%v%$");
  console->set_formatter(std::move(formatter));
  sinks_->logger = std::make_shared<spdlog::logger>("run", console);
}

RunLog::RunLog(const std::string& folder, int64_t resumed_step) : RunLog() {
  sinks_->messages = std::make_shared<WatchedFile>(folder + "/train.log");
  auto sink = std::make_shared<MessageSink>(sinks_->messages);
  sink->set_pattern("%Y-%m-%d %H:%M:%S %l %v");
  sinks_->logger->sinks().push_back(sink);
  const auto lines = [&](const char* name) {
    const std::string path = concat(folder, '/', name);
    cut_lines(path, resumed_step);
    return std::make_shared<WatchedFile>(path);
  };
  sinks_->metrics = lines("metrics.jsonl");
  sinks_->samples = lines("samples.jsonl");
  sinks_->starts = lines("starts.jsonl");
}

RunLog::~RunLog() = default;

std::unique_ptr<RunLog> RunLog::of_other_rank(const std::string& prefix) {
  auto log = std::make_unique<RunLog>();
  log->prefix_ = prefix;
  log->silent_ = true;
  ProgressDisplay::silence();
  return log;
}

void RunLog::info(const std::string& message) {
  if (silent_) return;
  const ProgressLine::Hidden hidden;
  sinks_->logger->info("{}", printable(message));
  watch(sinks_->messages.get());
}

void RunLog::warn(const std::string& message) {
  if (!silent_) warn_of_machine(message);
}

void RunLog::warn_of_machine(const std::string& message) {
  const ProgressLine::Hidden hidden;
  sinks_->logger->warn("{}{}", prefix_, printable(message));
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
  append_metrics(step, kind, values);
}

void RunLog::skipped(int64_t step, const MetricValues& values) {
  append_metrics(step, "skipped", values);
}

void RunLog::append_metrics(int64_t step, const std::string& kind, const MetricValues& values) {
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

void RunLog::show(int64_t step, const ValidationDetails& details) {
  if (sinks_->samples == nullptr) return;
  const auto append = [&](const char* kind, const Json& content) {
    Json line{{"step", step}, {"kind", kind}};
    line.update(content);
    sinks_->samples->file.append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
  };
  for (size_t i = 0; i < details.samples.size(); ++i) {
    const Sample& sample = details.samples[i];
    Json content{{"example", i}};
    for (const auto& [name, text] : sample.given) content[name] = text;
    content["output"] = sample.output;
    if (!sample.guesses.empty()) content["guesses"] = Json::array();
    for (const auto& [name, probability] : sample.guesses) {
      content["guesses"].push_back({name, probability});
    }
    if (sample.picture && !shown_) content["png"] = base64(png_of(*sample.picture));
    append("sample", content);
  }
  if (!details.lengths.empty()) {
    Json groups = Json::array();
    for (const LengthScore& group : details.lengths) {
      groups.push_back({{"from", group.from},
                        {"to", group.to},
                        {"sentences", group.sentences},
                        {"score", group.score}});
    }
    append("lengths", {{"metric", details.length_metric}, {"groups", std::move(groups)}});
  }
  if (details.confusion) {
    append("confusion",
           {{"classes", details.confusion->classes}, {"counts", details.confusion->counts}});
  }
  if (!details.problem.empty() && !shown_) {
    warn(concat("no samples of the validation: ", details.problem));
  }
  shown_ = true;
  watch(sinks_->samples.get());
}

void RunLog::started(int64_t step, const Facts& facts) {
  if (sinks_->starts == nullptr) return;
  Json line{{"step", step},
            {"time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))}};
  for (const auto& [name, text] : facts) line[name] = text;
  sinks_->starts->file.append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
  watch(sinks_->starts.get());
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

}  // namespace tapestry
