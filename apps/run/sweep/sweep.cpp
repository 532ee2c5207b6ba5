#include "apps/run/sweep/sweep.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>

#include "apps/checkpoint/run_folder.h"
#include "apps/run/pretrained.h"
#include "apps/run/sweep/children.h"
#include "apps/run/trainer_state.h"
#include "apps/tasks/task.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/cpu/parallel.h"
#include "data/files/files.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// 97.5 % of Student's t, of 1 degree of freedom and more.
constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                               2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                               2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                               2.060,  2.056, 2.052, 2.048, 2.045, 2.042};

// Keys that the sweep itself sets, or that change no result.
constexpr const char* kOwnKeys[] = {"output_dir", "threads", "device"};

std::string name_of_trial(size_t trial) {
  char name[32];
  std::snprintf(name, sizeof name, "trial-%03zu", trial + 1);
  return name;
}

// The last line that is not empty: the message of a run that failed.
std::string last_line(const std::string& path) {
  std::istringstream in(read_file(path));
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

std::string in_words(const std::optional<double>& value) {
  if (!value) return "nothing";
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", *value);
  return text;
}

}  // namespace

double interval_of_mean(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  if (values.size() < 2) return 0;
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  for (const double value : values) squares += (value - sum / count) * (value - sum / count);
  const size_t freedom = std::min(values.size() - 1, std::size(kStudent));
  return kStudent[freedom - 1] * std::sqrt(squares / (count - 1) / count);
}

Sweep::Sweep(const SweepOptions& options)
    : options_(options),
      space_(parse_sweep_space(options.overrides)),
      folder_(fs::absolute(options.output).lexically_normal().string()) {
  for (const SweepAxis& axis : space_.axes) {
    if (axis.key == "output_dir" || (axis.key == "seed" && options.seeds > 1)) {
      fail(ErrorKind::kConfig, "[sweep] '", axis.key, "' cannot vary: ",
           axis.key == "seed" ? "--seeds varies it." : "each trial has a folder in --output.");
    }
  }
  read_trials(draw_trials(space_, options.trials, options.seed));
}

Config Sweep::load(const std::vector<std::string>& overrides, bool check_files) const {
  std::vector<std::string> all = space_.fixed;
  all.insert(all.end(), overrides.begin(), overrides.end());
  all.push_back("output_dir=" + folder_);
  return load_run_config(options_.config, all, check_files);
}

void Sweep::expect_validation(const Config& config) const {
  if (config.data.valid.empty()) {
    fail(ErrorKind::kConfig,
         "[sweep] expected data.valid, by which trials are compared, got none.");
  }
}

void Sweep::read_trials(const SweepTrials& drawn) {
  std::vector<TrialLength> lengths;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const Config config = load(drawn[i], /*check_files=*/i == 0);
    if (i == 0) {
      expect_validation(config);
      base_ = config;
      metric_ = config.training.metric_for_best_model;
      larger_ = larger_is_better(metric_);
    }
    if (config.training.metric_for_best_model != metric_) {
      fail(ErrorKind::kConfig, "[sweep] trials are compared by one metric, got ", metric_, " and ",
           config.training.metric_for_best_model, '.');
    }
    lengths.push_back({config.training.max_steps, config.training.eval_steps});
    Trial& trial = trials_.emplace_back();
    trial.overrides = drawn[i];
    for (int64_t k = 0; k < options_.seeds; ++k) {
      trial.runs.push_back(options_.seeds == 1 ? name_of_trial(i)
                                               : concat(name_of_trial(i), "-seed-",
                                                        config.seed + static_cast<uint64_t>(k)));
    }
  }
  halving_ = options_.halving ? halving_of(lengths, options_.factor) : without_halving(lengths);
}

// Everything that decides the results.
Json Sweep::identity() const {
  std::map<std::string, std::string> keys = flat_keys(base_);
  for (const char* const own : kOwnKeys) keys.erase(own);
  for (const SweepAxis& axis : space_.axes) {
    std::erase_if(keys, [&](const auto& entry) {
      return entry.first == axis.key || entry.first.starts_with(axis.key + '.');
    });
  }
  Json trials = Json::array();
  for (const Trial& trial : trials_) trials.push_back(trial.overrides);
  return {{"trials", trials},
          {"seeds", options_.seeds},
          {"updates", halving_.updates},
          {"survivors", halving_.trials},
          {"config", keys}};
}

std::vector<std::string> Sweep::arguments_of(const Job& job, size_t rung) const {
  const Trial& trial = trials_[job.trial];
  std::vector<std::string> arguments = {"train", options_.config};
  arguments.insert(arguments.end(), space_.fixed.begin(), space_.fixed.end());
  arguments.insert(arguments.end(), trial.overrides.begin(), trial.overrides.end());
  arguments.push_back("output_dir=" + path_of(trial.runs[job.of_seed]));
  if (options_.seeds > 1) arguments.push_back(concat("seed=", base_.seed + job.of_seed));
  if (examples_of(base_).of_text() && base_.data.cache && base_.data.cache_dir.empty()) {
    arguments.push_back("data.cache_dir=" + folder_ + "/cache");
  }
  if (base_.threads == 0 && options_.processes > 1) {
    const int64_t share = std::max<int64_t>(1, num_threads() / options_.processes);
    arguments.push_back(concat("threads=", share));
  }
  if (rung + 1 < halving_.rungs()) {
    arguments.push_back(concat("--stop-at=", halving_.updates[rung][job.trial]));
  }
  return arguments;
}

RungResult Sweep::result_of(const std::string& run, int code) const {
  RungResult result;
  const std::string last = path_of(run) + "/last";
  if (is_checkpoint(last)) {
    Checkpoint checkpoint(last);
    const std::string name = "trainer_state.json";
    const TrainerState state = parse_trainer_state(checkpoint.read(name), last + '/' + name);
    result.updates = state.step;
    if (code == 0 && state.best_step >= 0) result.value = state.best_metric;
  }
  switch (static_cast<ErrorKind>(code)) {
    case ErrorKind::kDiverged:
      result.outcome = "diverged";
      return result;
    case ErrorKind::kOutOfMemory:
      result.outcome = "out of memory";
      return result;
    default:
      if (code == 0) return result;
  }
  const std::string log = path_of(run) + ".log";
  fail(code > 5 ? ErrorKind::kRuntime : static_cast<ErrorKind>(code), "[sweep] ", run,
       " ended with exit code ", code, ": ", last_line(log), " (", log,
       "); the same command goes on.");
}

std::optional<double> Sweep::mean_of(const Trial& trial) const {
  double sum = 0;
  for (const RungResult& result : trial.results) {
    if (!result.value) return std::nullopt;
    sum += *result.value;
  }
  return sum / static_cast<double>(trial.results.size());
}

int Sweep::train_rung(size_t rung, const std::vector<size_t>& going, SweepRecord& record,
                      const std::function<void(const std::string&)>& say) {
  std::vector<Job> jobs;
  std::vector<ChildJob> children;
  for (const size_t trial : going) {
    for (size_t k = 0; k < trials_[trial].runs.size(); ++k) {
      const std::string& run = trials_[trial].runs[k];
      if (record.find(run, rung) != nullptr) continue;
      jobs.push_back({trial, k});
      children.push_back({arguments_of(jobs.back(), rung), path_of(run) + ".log"});
    }
  }
  size_t done = 0;
  return run_children(children, options_.processes, [&](size_t number, int code) {
    const Trial& trial = trials_[jobs[number].trial];
    const std::string& run = trial.runs[jobs[number].of_seed];
    const RungResult result = result_of(run, code);
    record.add(run, rung, result);
    say(concat(
        "[", ++done, '/', jobs.size(), "] ", run, ": ",
        result.outcome == "done" ? concat(metric_, ' ', in_words(result.value)) : result.outcome,
        " after ", result.updates, " updates (", join(trial.overrides, " "), ")"));
  });
}

int Sweep::run(const std::function<void(const std::string&)>& say) {
  fs::create_directories(folder_);
  SweepRecord record(folder_, identity());
  if (record.found() > 0)
    say(concat("goes on after ", record.found(), " results of an earlier start"));
  std::vector<size_t> going(trials_.size());
  for (size_t i = 0; i < going.size(); ++i) going[i] = i;
  for (size_t rung = 0; rung < halving_.rungs() && !going.empty(); ++rung) {
    if (const int signal = train_rung(rung, going, record, say); signal != 0) return signal;
    std::vector<std::optional<double>> values(trials_.size());
    for (const size_t i : going) {
      Trial& trial = trials_[i];
      trial.rung = rung;
      trial.results.clear();
      for (const std::string& run : trial.runs) trial.results.push_back(*record.find(run, rung));
      values[i] = mean_of(trial);
    }
    if (rung + 1 == halving_.rungs()) break;
    going = survivors(going, values, larger_, halving_.trials[rung + 1]);
    if (!going.empty()) say(concat(going.size(), " of ", trials_.size(), " trials go on"));
  }
  return 0;
}

std::vector<SweepRow> Sweep::rows() const {
  std::vector<SweepRow> rows;
  for (size_t i = 0; i < trials_.size(); ++i) {
    const Trial& trial = trials_[i];
    SweepRow& row = rows.emplace_back(SweepRow{.trial = i, .overrides = trial.overrides});
    if (!trial.results.empty()) row.mean = mean_of(trial);
    std::vector<double> values;
    for (const RungResult& result : trial.results) {
      if (result.value) values.push_back(*result.value);
      if (row.outcome.empty() || result.outcome != "done") row.outcome = result.outcome;
      row.updates = std::max(row.updates, result.updates);
    }
    if (row.mean) row.half_width = interval_of_mean(values);
    for (const std::string& run : trial.runs) row.folders.push_back(path_of(run));
  }
  std::ranges::stable_sort(rows, [&](const SweepRow& a, const SweepRow& b) {
    const size_t rung_a = trials_[a.trial].rung, rung_b = trials_[b.trial].rung;
    if (a.mean.has_value() != b.mean.has_value()) return a.mean.has_value();
    return rung_a != rung_b ? rung_a > rung_b : is_better(a.mean, b.mean, larger_);
  });
  return rows;
}

}  // namespace tapestry
