// sweep.json: what a sweep is, and what it has found so far.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "apps/checkpoint/folder_lock.h"

namespace tapestry {

/// What one run had reached at the end of a rung.
struct RungResult {
  std::optional<double> value = {};  ///< the best metric so far; none if it has failed
  int64_t updates = 0;
  std::string outcome = "done";  ///< "done", "diverged", "out of memory", "killed"
};

/// "trials/3/0 was "a" and is "b"", of the first difference; "" if there is none.
std::string difference(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);

/// Throws Error(kConfig) unless the folder is new, empty or of a sweep: the files of a sweep would
/// replace some of an ordinary run, and runs of nobody knows which values would count as trials.
void expect_folder_for_sweep(const std::string& folder);

/// Makes the folder and takes its lock, which trials inherit, so that no two ever train in one
/// folder. Waits for the trials of a sweep that was killed, and tells `say` so. Returns nothing if
/// a signal asked this process to stop. Throws Error(kConfig) if another sweep runs there, or if
/// the folder cannot be written.
std::optional<FolderLock> lock_for_sweep(const std::string& folder,
                                         const std::function<void(const std::string&)>& say);

class SweepRecord {
 public:
  /// Reads sweep.json, or begins it; the caller holds the folder's lock. Throws Error(kConfig) if
  /// `identity`, what the sweep is, is not the one of the file, and Error(kData) if the file is
  /// damaged. Without halving it may have more trials than the file, behind the same ones.
  SweepRecord(const std::string& folder, const nlohmann::ordered_json& identity);

  /// Results that the file had when it was opened.
  size_t found() const { return found_; }
  const RungResult* find(const std::string& run, size_t rung) const;
  /// Keeps a result, and writes the file as a whole.
  void add(const std::string& run, size_t rung, RungResult result);

 private:
  void read(const nlohmann::ordered_json& identity);
  void write() const;

  std::string path_;
  size_t found_ = 0;
  nlohmann::ordered_json identity_;
  std::map<std::pair<std::string, size_t>, RungResult> results_;
};

}  // namespace tapestry
