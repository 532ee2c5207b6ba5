// sweep.json: what a sweep is, and what it has found so far.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

namespace tapestry {

/// What one run had reached at the end of a rung.
struct RungResult {
  std::optional<double> value = {};  ///< the best metric so far; none if it has failed
  int64_t updates = 0;
  std::string outcome = "done";  ///< "done", "diverged", "out of memory"
};

/// "trials/3/0 was "a" and is "b"", of the first difference; "" if there is none.
std::string difference(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);

class SweepRecord {
 public:
  /// Takes the lock of the folder, which must exist; children inherit it. Waits for the trials of a
  /// sweep that was killed. Reads sweep.json, or begins it. Throws Error(kConfig) if another sweep
  /// runs there or if `identity`, what the sweep is, is not the one of the file, and Error(kData)
  /// if the file is damaged.
  SweepRecord(const std::string& folder, const nlohmann::ordered_json& identity);
  ~SweepRecord();
  SweepRecord(const SweepRecord&) = delete;
  SweepRecord& operator=(const SweepRecord&) = delete;

  /// Results that the file had when it was opened.
  size_t found() const { return found_; }
  const RungResult* find(const std::string& run, size_t rung) const;
  /// Keeps a result, and writes the file as a whole.
  void add(const std::string& run, size_t rung, RungResult result);

 private:
  void lock();
  void read(const nlohmann::ordered_json& identity);
  void write() const;

  std::string folder_, path_;
  int lock_ = -1;
  size_t found_ = 0;
  nlohmann::ordered_json identity_;
  std::map<std::pair<std::string, size_t>, RungResult> results_;
};

}  // namespace tapestry
