// The run folder and its commit protocol: a checkpoint is either complete or not there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/folder_lock.h"

namespace tapestry {

/// The checkpoint for a model folder on a command line: the folder itself, or the `best` checkpoint
/// of a run folder, else its newest one.
std::string resolve_checkpoint(const std::string& path);

/// The steps of the checkpoints in a run folder, ascending, whole or not.
std::vector<int64_t> checkpoint_steps(const std::string& run_folder);

/// Who works in a folder, as messages have it.
struct FolderUser {
  const char* who = "run";
  const char* work = "training";
  const char* key = "output_dir";  ///< which names the folder
};

/// output_dir of one training. Holds a lock: a second training in the same folder is refused.
class RunFolder {
 public:
  /// Creates the folder, takes the lock, removes the remains of interrupted writes. Throws
  /// Error(kConfig) when another process holds the lock, or the folder is a sweep's.
  explicit RunFolder(const std::string& path, const FolderUser& user = {});
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  /// Steps with a checkpoint folder, ascending.
  std::vector<int64_t> steps() const;
  std::string checkpoint_path(int64_t step) const;

  /// Commits checkpoint-<step>, moves `last` (and `best`, if it is the best one), and only then
  /// deletes the oldest beyond `keep` (0: keep all), never one that a link names or that is
  /// protected. Calls `report` once for each that cannot be deleted; the next commit or the next
  /// start tries again.
  void commit(int64_t step, const CheckpointContent& content, bool best, int64_t keep,
              const std::function<void(const std::string&)>& report = {});

  /// Protects this checkpoint from deletion, instead of the one that was protected before.
  void protect(int64_t step) { protected_step_ = step; }

  /// Points `last` and `best` at these steps (-1: none) if they do not: a commit that was
  /// interrupted between its rename and its links leaves them behind. A step without a whole
  /// checkpoint changes nothing. Throws Error(kRuntime).
  void mend_links(int64_t last, int64_t best) const;

  /// replace_file() in the folder.
  void write(const std::string& name, const std::string& text) const;

  /// The newest checkpoint whose manifest verifies, all its files open, or nothing. Calls `report`
  /// with the reason why a newer one was skipped.
  std::optional<Checkpoint> newest(const std::function<void(const std::string&)>& report) const;

 private:
  void point(const std::string& link, int64_t step) const;
  /// True if there is such a checkpoint and all its files verify.
  bool is_whole(int64_t step) const;

  std::string path_;
  std::optional<FolderLock> lock_;  ///< once there is a folder
  int64_t protected_step_ = -1;
  std::set<int64_t> undeleted_;  ///< that `report` heard of
};

}  // namespace tapestry
