#include "apps/run/sweep/sweep.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "apps/checkpoint/run_folder.h"
#include "apps/run/pretrained.h"
#include "apps/run/signals.h"
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

// Keys that the sweep itself sets, or that a trial may begin with and go on without: they change
// neither its updates nor its validations.
bool changes_no_result(const std::string& key) {
  static const std::set<std::string> kKeys = {"output_dir",
                                              "threads",
                                              "device",
                                              "data.cache",
                                              "data.cache_dir",
                                              "training.logging_steps",
                                              "training.save_steps",
                                              "training.save_total_limit",
                                              "training.samples",
                                              "training.flight_records",
                                              "training.incidents"};
  return kKeys.contains(key) || key.starts_with("training.report_to");
}

std::string name_of_trial(size_t trial) {
  char name[32];
  std::snprintf(name, sizeof name, "trial-%03zu", trial + 1);
  return name;
}

// Absolute, without a slash at its end.
std::string folder_of(const std::string& output) {
  if (output.empty()) fail(ErrorKind::kConfig, "[sweep] expected a folder as --output, got ''.");
  const fs::path path = (fs::absolute(output) / "").lexically_normal();
  return path.parent_path().string();
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

constexpr int kOutOfMemoryCode = static_cast<int>(ErrorKind::kOutOfMemory);
constexpr int kKilledCode = 128 + SIGKILL;  // a system that runs out of memory kills programs so

std::string end_in_words(int code) {
  if (code <= 128) return concat("ended with exit code ", code);
  return concat("was ended by signal ", code - 128, " (", strsignal(code - 128), ")");
}

}  // namespace

std::string figure(double value) {
  char text[32];
  const bool small = value != 0 && std::abs(value) < 0.1;
  std::snprintf(text, sizeof text, small ? "%.4g" : "%.4f", value);
  return text;
}

double interval_of_mean(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  if (values.size() < 2) return 0;
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  for (const double value : values) squares += (value - sum / count) * (value - sum / count);
  return kStudent[values.size() - 2] * std::sqrt(squares / (count - 1) / count);
}

Sweep::Sweep(const SweepOptions& options)
    : options_(options),
      space_(parse_sweep_space(options.overrides)),
      folder_(folder_of(options.output)) {
  for (const SweepAxis& axis : space_.axes) {
    if (axis.key == "output_dir" || (axis.key == "seed" && options.seeds > 1)) {
      fail(ErrorKind::kConfig, "[sweep] '", axis.key, "' cannot vary: ",
           axis.key == "seed" ? "--seeds varies it." : "each trial has a folder in --output.");
    }
  }
  expect_folder_for_sweep(folder_);
  read_trials(draw_trials(space_, options.trials, options.seed));
}

// The last output_dir counts, so that no two trials write to the one that the config names.
Config Sweep::load(const std::vector<std::string>& overrides, const std::string& folder) const {
  std::vector<std::string> all = space_.fixed;
  all.insert(all.end(), overrides.begin(), overrides.end());
  all.push_back("output_dir=" + folder);
  return load_run_config(options_.config, all);
}

// People edit a config for their next experiment while this one still runs.
void Sweep::expect_same_config() {
  const std::string text = read_file(options_.config);
  if (text == text_) return;
  if (flat_keys(load(trials_.front().overrides, folder_)) != flat_keys(first_)) {
    fail(ErrorKind::kConfig, "[sweep] ", options_.config,
         " was changed while the sweep ran; the same command goes on once it is as before.");
  }
  text_ = text;
}

void Sweep::read_trials(const SweepTrials& drawn) {
  text_ = read_file(options_.config);
  // Not in the trial's folder, where the next start may find a checkpoint and take its model.
  first_ = load(drawn.front(), folder_);
  metric_ = first_.training.metric_for_best_model;
  larger_ = larger_is_better(metric_);
  for (size_t i = 0; i < drawn.size(); ++i) read_trial(drawn[i], i);
  halving_ = options_.halving ? halving_of(lengths_, options_.factor) : without_halving(lengths_);
}

void Sweep::read_trial(const std::vector<std::string>& overrides, size_t number) {
  Trial& trial = trials_.emplace_back();
  trial.overrides = overrides;
  const Config config = load(overrides, path_of(name_of_trial(number)));
  if (config.data.valid.empty()) {
    fail(ErrorKind::kConfig,
         "[sweep] expected data.valid, by which trials are compared, got none.");
  }
  if (config.training.metric_for_best_model != metric_) {
    fail(ErrorKind::kConfig, "[sweep] trials are compared by one metric, got ", metric_, " and ",
         config.training.metric_for_best_model, '.');
  }
  lengths_.push_back({config.training.max_steps, config.training.eval_steps});
  trial.seed = config.seed;
  trial.caches =
      examples_of(config).of_text() && config.data.cache && config.data.cache_dir.empty();
  trial.takes_all_threads = config.threads == 0;
  for (int64_t k = 0; k < options_.seeds; ++k) {
    const std::string name = name_of_trial(number);
    trial.runs.push_back(
        options_.seeds == 1 ? name : concat(name, "-seed-", trial.seed + static_cast<uint64_t>(k)));
  }
}

// Everything that decides the results.
Json Sweep::identity() const {
  std::map<std::string, std::string> keys = flat_keys(first_);
  std::erase_if(keys, [](const auto& entry) { return changes_no_result(entry.first); });
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
  if (options_.seeds > 1) arguments.push_back(concat("seed=", trial.seed + job.of_seed));
  if (trial.caches) arguments.push_back("data.cache_dir=" + folder_ + "/cache");
  if (trial.takes_all_threads && options_.processes > 1) {
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
  if (code == 0) return result;
  if (code == static_cast<int>(ErrorKind::kDiverged)) {
    result.outcome = "diverged";
  } else if (code == kOutOfMemoryCode) {
    result.outcome = "out of memory";
  } else if (code == kKilledCode) {
    result.outcome = "killed";
  } else {
    const std::string log = path_of(run) + ".log";
    fail(code > 5 ? ErrorKind::kRuntime : static_cast<ErrorKind>(code), "[sweep] ", run, ' ',
         end_in_words(code), ": ", last_line(log), " (", log, "); the same command goes on.");
  }
  return result;
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
  const auto finish = [&](const Job& job, int code) {
    const std::string sentence = keep_result(job, rung, code, record);
    say(concat('[', ++done, '/', jobs.size(), "] ", sentence));
    expect_same_config();
  };
  // A trial may lack the memory that others hold. What it comes to must not depend on how many run
  // at a time.
  std::vector<Job> again;
  std::vector<ChildJob> second_tries;
  const bool beside_others = options_.processes > 1 && jobs.size() > 1;
  const int signal = run_children(children, options_.processes, [&](size_t number, int code) {
    if (code == kKilledCode || (code == kOutOfMemoryCode && beside_others)) {
      const Job& job = again.emplace_back(jobs[number]);
      second_tries.push_back(children[number]);
      say(concat(trials_[job.trial].runs[job.of_seed],
                 code == kKilledCode ? " was killed, maybe for want of memory"
                                     : " ran out of memory beside other trials",
                 "; it is tried once more, by itself"));
      expect_same_config();
      return;
    }
    finish(jobs[number], code);
  });
  if (signal != 0) return signal;
  return run_children(second_tries, 1,
                      [&](size_t number, int code) { finish(again[number], code); });
}

std::string Sweep::keep_result(const Job& job, size_t rung, int code, SweepRecord& record) const {
  const Trial& trial = trials_[job.trial];
  const std::string& run = trial.runs[job.of_seed];
  const RungResult result = result_of(run, code);
  record.add(run, rung, result);
  const std::string what = result.outcome != "done"
                               ? result.outcome
                               : concat(metric_, ' ', result.value ? figure(*result.value) : "-");
  return concat(run, ": ", what, " after ", result.updates, " updates (",
                join(trial.overrides, " "), ")");
}

int Sweep::run(const std::function<void(const std::string&)>& say) {
  const std::optional<FolderLock> lock = lock_for_sweep(folder_, say);
  if (!lock) return pending_signal();
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
