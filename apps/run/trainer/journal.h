// What a training tells and remembers about its updates.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/run/flight_recorder.h"
#include "apps/run/trainer/updater.h"

namespace tapestry {

class Journal {
 public:
  Journal(Training& training, Updater& updater);

  /// The facts of the run that begins.
  void begin() const;
  /// A warning and an incident, if the loss is far above those before. On a CPU the weights are
  /// still the ones that gave it.
  void watch_for_jump(const Update& update, const std::vector<Tensor>& sums);
  /// Writes a line of the ring, and an incident if the update is the first of a row that is not
  /// finite. Before the state counts it.
  void remember(const Update& update);
  /// The update as the ring has it.
  UpdateRecord record_of(const Update& update) const;
  /// Adds an update that was computed, and the seconds in which training went on.
  void count(const Update& update);
  void passed(double seconds) { window_.seconds += seconds; }
  /// Shows how training goes; with `logged` as a log line, too.
  void report(bool logged);
  void end() const;

 private:
  /// The last log line's values, and the sums since.
  struct Window {
    double seconds = 0, loss = 0, nll = 0, divergence = 0, alignment = 0, grad_norm = 0;
    int64_t tokens_before = 0;  ///< state.tokens at its begin
    double targets = 0;
  };
  /// The log line of an update.
  struct Line {
    double loss, nll, rate, left;  ///< NaN if every update was skipped; tokens/s; seconds
  };

  void write_line(const Line& line);
  /// "  exchange 3.1 %  slowest rank 2, hostb +1.4 %", and the numbers for metrics.jsonl.
  std::string report_ranks(MetricValues& line) const;
  /// Writes incident-STEP in the run folder: the weights, and the update's place in the data.
  void write_incident(const Update& update, const std::string& what);

  Training& training_;
  Updater& updater_;
  std::unique_ptr<FlightRecorder> recorder_;  ///< of rank 0
  bool recorder_failed_ = false;
  Window window_;
};

}  // namespace tapestry
