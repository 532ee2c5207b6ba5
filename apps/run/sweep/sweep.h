// Trials of a config with other values, each an ordinary run, compared by their validation.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/run/sweep/halving.h"
#include "apps/run/sweep/record.h"
#include "apps/run/sweep/space.h"

namespace tapestry {

struct SweepOptions {
  std::string config;                  ///< file
  std::vector<std::string> overrides;  ///< for parse_sweep_space()
  int64_t trials = 0;                  ///< 0: the grid
  bool halving = false;
  int64_t factor = 2;     ///< of the halving
  int64_t seeds = 1;      ///< runs of each trial, of the config's seed and those after it; to 31
  uint64_t seed = 1;      ///< of the draws
  int64_t processes = 1;  ///< at a time
  std::string output;     ///< folder
};

/// One trial in the table.
struct SweepRow {
  size_t trial = 0;                    ///< from 0
  std::vector<std::string> overrides;  ///< its values
  std::optional<double> mean = {};     ///< of its runs; none if one of them failed
  double half_width = 0;               ///< of the 95 % interval of the mean; 0 for one run
  int64_t updates = 0;
  std::string outcome = {};               ///< as RungResult
  std::vector<std::string> folders = {};  ///< of its runs
};

/// Half the width of the 95 % interval of the mean (Student's t), of 31 values at most; 0 for one
/// value.
double interval_of_mean(const std::vector<double>& values);

/// A metric with four decimals, or with four digits where those would show fewer: "1.234e-05".
std::string figure(double value);

class Sweep {
 public:
  /// Draws the trials and reads the config of each. Throws Error(kConfig) for anything that is
  /// wrong, before a folder is made.
  explicit Sweep(const SweepOptions& options);

  const std::string& metric() const { return metric_; }
  const Halving& halving() const { return halving_; }
  /// Overrides of every trial.
  const std::vector<std::string>& fixed() const { return space_.fixed; }
  size_t trials() const { return trials_.size(); }

  /// Trains what is missing, and calls `say` with a sentence about each run. Returns 0, or the
  /// signal that stopped it: the same call goes on later. A trial that ran out of memory beside
  /// others, or was killed, gets a second try by itself, which counts. Throws Error when a trial
  /// fails otherwise, and as lock_for_sweep() and SweepRecord; Error(kConfig) when the config file
  /// gets other values meanwhile, which the next trial would read.
  int run(const std::function<void(const std::string&)>& say);

  /// The trials so far, best first: those that trained longest, then by their value.
  std::vector<SweepRow> rows() const;

 private:
  struct Trial {
    std::vector<std::string> overrides;
    std::vector<std::string> runs;  ///< names of its folders
    uint64_t seed = 0;              ///< of its first run
    bool caches = false;            ///< tokens, in no folder that its config names
    bool takes_all_threads = false;
    std::vector<RungResult> results = {};
    size_t rung = 0;  ///< that its results are of
  };
  struct Job {
    size_t trial, of_seed;
  };

  void expect_same_config();
  Config load(const std::vector<std::string>& overrides, const std::string& folder) const;
  void read_trials(const SweepTrials& drawn);
  void read_trial(const std::vector<std::string>& overrides, size_t number);
  nlohmann::ordered_json identity() const;
  std::vector<std::string> arguments_of(const Job& job, size_t rung) const;
  int train_rung(size_t rung, const std::vector<size_t>& going, SweepRecord& record,
                 const std::function<void(const std::string&)>& say);
  /// Returns a sentence about it.
  std::string keep_result(const Job& job, size_t rung, int code, SweepRecord& record) const;
  RungResult result_of(const std::string& run, int code) const;
  std::optional<double> mean_of(const Trial& trial) const;
  std::string path_of(const std::string& run) const { return folder_ + '/' + run; }

  SweepOptions options_;
  SweepSpace space_;
  std::string folder_;  ///< absolute
  std::string text_;    ///< of the config file
  Config first_;        ///< of the first trial; keys that vary are not looked at
  std::string metric_;
  bool larger_ = false;
  std::vector<Trial> trials_;
  std::vector<TrialLength> lengths_;
  Halving halving_;
};

}  // namespace tapestry
