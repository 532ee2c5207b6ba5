#include "apps/commands/pages/run_record.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "apps/config/tree.h"
#include "apps/tasks/task.h"
#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostWarnings = 5;  // of a file

// Parses the line as an object with a step; returns the reason if it is not one.
std::string parse_line(const std::string& line, Json& entry) {
  entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (entry.is_discarded()) return "is not JSON";
  if (!entry.is_object()) return "is no object";
  const auto step = entry.find("step");
  if (step == entry.end() || !step->is_number_integer()) return "has no step";
  return "";
}

// Reads the lines of a file that may be missing; bad ones give warnings.
template <class Take>
void each_line(const std::string& path, std::vector<std::string>& warnings, Take take) {
  std::ifstream in(path);
  size_t bad = 0;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const bool cut = in.eof();
    if (line.empty()) continue;
    Json entry;
    std::string problem = parse_line(line, entry);
    if (problem.empty()) {
      try {
        take(entry);
        continue;
      } catch (const std::exception& error) {
        problem = concat("is not as a run writes it (", error.what(), ')');
      }
    }
    if (cut) problem = "is cut";
    if (++bad <= kMostWarnings) {
      warnings.push_back(concat(path, ':', number, ": this line ", problem, "; it is left out"));
    }
  }
  if (bad > kMostWarnings) {
    warnings.push_back(concat(path, ": ", bad - kMostWarnings, " more lines are left out"));
  }
}

// "labels.0", "labels.1" as one key "labels": "[cat, dog]".
std::map<std::string, std::string> with_lists(const std::map<std::string, std::string>& keys) {
  std::map<std::string, std::map<int64_t, std::string>> lists;
  std::map<std::string, std::string> result;
  for (const auto& [key, value] : keys) {
    const size_t dot = key.rfind('.');
    int64_t number = 0;
    if (dot != std::string::npos && parse_yaml_integer(key.substr(dot + 1), number)) {
      lists[key.substr(0, dot)][number] = value;
    } else {
      result[key] = value;
    }
  }
  for (const auto& [key, values] : lists) {
    std::string& text = result[key];
    for (const auto& [number, value] : values) text += (text.empty() ? "[" : ", ") + value;
    text += ']';
  }
  return result;
}

// Reads everything that a page reads, so that a line of other types throws here and not in the
// browser.
void add_sample_line(RunRecord& record, const Json& line) {
  const std::string kind = line.value("kind", "");
  if (kind == "sample") {
    line.at("example").get<int64_t>();
    line.at("output").get<std::string>();
    line.value("png", std::string());
    line.value("guesses", std::vector<std::pair<std::string, double>>());
    record.samples.push_back(line);
  } else if (kind == "lengths") {
    line.at("metric").get<std::string>();
    for (const Json& group : line.at("groups")) {
      for (const char* const key : {"from", "to", "sentences", "score"}) {
        group.at(key).get<double>();
      }
    }
    record.lengths.push_back(line);
  } else if (kind == "confusion") {
    const auto classes = line.at("classes").get<std::vector<std::string>>();
    const auto counts = line.at("counts").get<std::vector<std::vector<int64_t>>>();
    const auto whole = [&](const auto& row) { return row.size() == classes.size(); };
    if (!whole(counts) || !std::ranges::all_of(counts, whole)) {
      fail(ErrorKind::kData, "counts must be ", classes.size(), " x ", classes.size());
    }
    record.confusions.push_back(line);
  }
}

}  // namespace

const std::vector<double>* MetricTable::find(const std::string& name) const {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? nullptr : &columns[static_cast<size_t>(found - names.begin())];
}

void MetricTable::add(const Json& line) {
  const size_t row = rows();
  for (const auto& [name, value] : line.items()) {
    if (!value.is_number() && !value.is_null()) continue;
    auto at = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (at == names.size()) {
      names.push_back(name);
      columns.emplace_back(row, kNone);
    }
    columns[at].resize(row, kNone);
    columns[at].push_back(value.is_number() ? value.get<double>() : kNone);
  }
  for (std::vector<double>& column : columns) column.resize(row + 1, kNone);
}

std::optional<RunRecord::Best> RunRecord::best() const {
  const std::vector<double>*values = valid.find(metric), *steps = valid.find("step");
  if (values == nullptr || steps == nullptr) return std::nullopt;
  const bool larger = larger_is_better(metric);
  std::optional<Best> best;
  for (size_t i = 0; i < values->size(); ++i) {
    const double value = (*values)[i];
    if (!std::isfinite(value)) continue;
    if (!best || (larger ? value > best->value : value < best->value)) {
      best = {static_cast<int64_t>((*steps)[i]), value};
    }
  }
  return best;
}

size_t RunRecord::resumes() const {
  const std::vector<double>* const steps = train.find("step");
  if (steps == nullptr || steps->empty()) return 0;
  return static_cast<size_t>(std::ranges::count_if(starts, [&](const Json& start) {
    const auto step = start["step"].get<double>();
    return step > 0 && step < steps->back();
  }));
}

void MetricsReader::add(const std::string& line, RunRecord& record) {
  ++line_;
  if (line.empty()) return;
  Json entry;
  const std::string problem = parse_line(line, entry);
  if (!problem.empty()) {
    record.warnings.push_back(
        concat(path_, ':', line_, ": this line ", problem, "; it is left out"));
    return;
  }
  const Json kind = entry.contains("kind") ? entry["kind"] : Json();
  if (kind == "train") record.train.add(entry);
  if (kind == "valid") record.valid.add(entry);
  if (kind == "skipped") record.skipped.push_back(entry["step"].get<int64_t>());
  if (kind == "test") {
    record.test.clear();
    for (const auto& [name, value] : entry.items()) {
      if (value.is_number() && name != "step") record.test[name] = value.get<double>();
    }
  }
}

bool MetricsReader::read(RunRecord& record) {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) return false;
  if (status.st_size < offset_ || (file_ != 0 && file_ != status.st_ino)) {
    record.train = record.valid = {};
    record.test.clear();
    record.skipped.clear();
    rest_.clear();
    offset_ = line_ = 0;
  }
  file_ = status.st_ino;
  std::ifstream in(path_, std::ios::binary);
  in.seekg(offset_);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  offset_ += std::ssize(bytes);
  rest_ += bytes;
  size_t begin = 0;
  for (size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    add(rest_.substr(begin, end - begin), record);
  }
  rest_.erase(0, begin);
  return begin > 0;
}

void MetricsReader::finish(RunRecord& record) {
  if (rest_.empty()) return;
  Json entry;
  if (parse_line(rest_, entry).empty()) {
    add(rest_, record);
  } else {
    record.warnings.push_back(concat(path_, ':', line_ + 1, ": the last line is cut"));
  }
  rest_.clear();
}

void read_run_config(RunRecord& record) {
  const std::string path = record.folder + "/config.yaml";
  try {
    record.config = with_lists(flat_keys(parse_config_file(path)));
  } catch (const Error& error) {
    record.warnings.push_back(concat("no config is shown: ", error.what()));
  }
  const auto found = record.config.find("training.metric_for_best_model");
  if (found != record.config.end()) record.metric = found->second;
}

void read_run_starts(RunRecord& record) {
  record.starts.clear();
  each_line(record.folder + "/starts.jsonl", record.warnings,
            [&](const Json& line) { record.starts.push_back(line); });
}

RunRecord read_run(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl";
  if (!fs::is_regular_file(path)) {
    fail(ErrorKind::kData, "[report] ", folder,
         " has no metrics.jsonl: expected the folder of a run (its output_dir).");
  }
  RunRecord record;
  record.folder = folder;
  MetricsReader reader(path);
  reader.read(record);
  reader.finish(record);
  if (record.warnings.size() > kMostWarnings) {
    const size_t more = record.warnings.size() - kMostWarnings;
    record.warnings.resize(kMostWarnings);
    record.warnings.push_back(concat(path, ": ", more, " more lines are left out"));
  }
  read_run_config(record);
  read_run_starts(record);
  each_line(folder + "/samples.jsonl", record.warnings,
            [&](const Json& line) { add_sample_line(record, line); });
  return record;
}

void name_runs(std::vector<RunRecord>& runs) {
  std::vector<std::vector<std::string>> parts;
  for (const RunRecord& run : runs) {
    const fs::path path = fs::weakly_canonical(run.folder);
    parts.emplace_back(path.begin(), path.end());
  }
  for (size_t count = 1;; ++count) {
    std::set<std::string> names;
    bool whole = true;
    for (size_t i = 0; i < runs.size(); ++i) {
      const size_t own = std::min(count, parts[i].size());
      whole = whole && own == parts[i].size();
      fs::path name;
      for (size_t k = parts[i].size() - own; k < parts[i].size(); ++k) name /= parts[i][k];
      runs[i].name = name.string();
      names.insert(runs[i].name);
    }
    if (names.size() == runs.size() || whole) return;
  }
}

std::vector<std::string> differing_keys(const std::vector<RunRecord>& runs) {
  std::set<std::string> keys;
  for (const RunRecord& run : runs) {
    for (const auto& [key, value] : run.config) keys.insert(key);
  }
  std::vector<std::string> differing;
  for (const std::string& key : keys) {
    if (key == "output_dir") continue;
    const auto value_of = [&](const RunRecord& run) {
      const auto found = run.config.find(key);
      return found == run.config.end() ? std::optional<std::string>() : found->second;
    };
    const bool same = std::ranges::all_of(
        runs, [&](const RunRecord& run) { return value_of(run) == value_of(runs.front()); });
    if (!same) differing.push_back(key);
  }
  return differing;
}

}  // namespace tapestry
