// The run folder and its commit protocol: a checkpoint is either complete or not there.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace tapestry {

/// File name -> bytes. Written with a MANIFEST.json of sizes and XXH3 checksums.
using CheckpointFiles = std::map<std::string, std::string>;

/// Writes <folder>: first <folder>.tmp-<pid>, every file and the folder flushed to disk, then a
/// rename and a flush of the parent. An existing <folder> is replaced. Throws Error(kRuntime) with
/// the system's reason (a full disk, say) and leaves what was there before untouched.
void write_checkpoint(const std::string& folder, const CheckpointFiles& files);

/// Reads a checkpoint folder and verifies its manifest. Throws Error(kData) naming the file that is
/// missing, has another size or another checksum.
CheckpointFiles read_checkpoint(const std::string& folder);

/// What a model folder on a command line means: a checkpoint itself, or a run folder, whose `best`
/// checkpoint is taken, else its newest one.
std::string resolve_checkpoint(const std::string& path);

namespace internal {
/// Called after each stage of the commit protocol; tests end the process there.
inline void (*checkpoint_stage_hook)(const char* stage) = nullptr;
}  // namespace internal

/// output_dir of one training. Holds a lock: a second training in the same folder is refused.
class RunFolder {
 public:
  /// Creates the folder, takes the lock, removes what interrupted writes left behind.
  /// Throws Error(kConfig) when another process holds the lock.
  explicit RunFolder(const std::string& path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  /// Steps with a checkpoint folder, ascending.
  std::vector<int64_t> steps() const;
  std::string checkpoint_path(int64_t step) const;

  /// Commits checkpoint-<step>, moves `last` (and `best`, if it is the best one), and only then
  /// deletes the oldest beyond `keep` (0: keep all), never one that a link names.
  void commit(int64_t step, const CheckpointFiles& files, bool best, int64_t keep);

  struct Loaded {
    int64_t step;
    CheckpointFiles files;
  };
  /// The newest checkpoint whose manifest verifies, or nothing. `report` hears why a newer one was
  /// passed over.
  std::optional<Loaded> newest(const std::function<void(const std::string&)>& report) const;

 private:
  void point(const std::string& link, int64_t step) const;

  std::string path_;
  int lock_ = -1;
};

}  // namespace tapestry
