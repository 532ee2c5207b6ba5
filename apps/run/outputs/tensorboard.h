// Event files that TensorBoard shows: the curves of a run, its config as text, and its settings
// beside those of other runs (the HParams page).
//
// A file is a list of records: the length (u64) and its checksum, an Event, and the Event's
// checksum, little-endian; a checksum is a rotated and shifted CRC-32C.
// Source: TensorBoard's summary/writer/record_writer.py and compat/proto/{event,summary}.proto.
#pragma once

#include <string>
#include <string_view>

#include "apps/run/outputs/appended_file.h"
#include "apps/run/outputs/reporter.h"
#include "data/tokenizers/protobuf.h"

namespace tapestry {

/// CRC-32C (Castagnoli), reflected, of all bytes: 0xe3069283 for "123456789".
uint32_t crc32c(std::string_view bytes);

class TensorBoard : public Reporter {
 public:
  /// Opens a file of its own in run.folder, as every start of a run does. A resumed run withdraws
  /// an earlier start's values of later updates. Throws Error(kRuntime).
  explicit TensorBoard(const ReportedRun& run);

  /// A curve for each value: "train/loss", "valid/bleu".
  void metrics(int64_t step, const std::string& kind, const MetricValues& values) override;
  void finish() override;
  std::string problem() const override { return file_.problem(); }

 private:
  void describe(const ReportedRun& run);
  /// Writes one Event to the file.
  void event(int64_t step, uint32_t field, std::string_view content);
  void record(std::string_view bytes);

  const bool first_;  ///< of the run's event files
  AppendedFile file_;
};

}  // namespace tapestry
