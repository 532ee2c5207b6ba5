// Records of a run's last updates: the data of each, and its figures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/batches/batching.h"
#include "optim/optimizer.h"

namespace tapestry {

/// An update: its inputs by reference, and figures of its health. Together with the run's config
/// and the weights before it, this is enough to compute it again.
struct UpdateRecord {
  int64_t step = 0;  ///< 1 for the first update
  uint64_t seed = 0;
  DataPosition start;  ///< the place in the data before it
  int64_t micro_batches = 0, tokens = 0;
  double targets = 0;
  double loss = 0, nll = 0;  ///< per target
  double grad_norm = 0;      ///< before clipping
  double clip = 1;           ///< the factor by which clipping multiplied the gradients
  double rate = 0;           ///< of learning
  // Only on a CPU; missing otherwise.
  std::optional<double> largest_activation = {};  ///< among a sample of one in 64 elements
  std::optional<double> zero_gradients = {};      ///< share of elements
  std::vector<std::pair<std::string, double>> layers = {};  ///< norm of the gradients of each

  bool same_bits(const UpdateRecord& other) const;
};

/// A JSON object in one line.
std::string to_json(const UpdateRecord& record);
/// Nothing if the line is not a record.
std::optional<UpdateRecord> parse_update_record(const std::string& line);

/// The norms of the gradients by layer: "encoder.layers.0" is everything below that name; a
/// parameter outside of numbered lists counts to its own module.
std::vector<std::pair<std::string, double>> norms_by_layer(
    const std::vector<GradientFigures>& figures);

/// Learns the usual loss from earlier ones.
class LossWatch {
 public:
  /// True if it is more than `deviations`, and a tenth, above the usual one. Counts it.
  bool jumps(double loss, double deviations);
  double usual() const { return mean_; }

 private:
  int64_t count_ = 0;
  double mean_ = 0, variance_ = 0;
};

/// flight.jsonl of a run folder: a ring of lines of one length, update `step` in line
/// (step - 1) % records. A line is written as a whole, and a full disk costs lines, not the run.
class FlightRecorder {
 public:
  static constexpr const char* kFile = "flight.jsonl";

  /// Continues the file; records of updates after `step` will be overwritten. A file of other sizes
  /// is begun anew. Throws Error(kRuntime) if it cannot be opened.
  FlightRecorder(std::string path, int64_t records, int64_t step);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// False if it could not be written.
  bool write(const UpdateRecord& record);
  /// The watch, with the recorded losses.
  LossWatch& losses() { return losses_; }

  /// All records of a file in the order of their steps; none if there is no file.
  static std::vector<UpdateRecord> read(const std::string& path);

 private:
  std::string path_;
  int64_t records_;
  int64_t line_bytes_ = 0;  ///< with the line's end; 0: the first record decides
  int descriptor_ = -1;
  LossWatch losses_;
};

}  // namespace tapestry
