// The folder of a checkpoint: files with a manifest, written all or not at all, and verified when
// they are read.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "apps/checkpoint/bytes.h"
#include "core/base/error.h"

namespace tapestry {

/// A file to write: its bytes, or a function that gives them to a sink.
using FileContent = std::variant<std::string, std::function<void(const ByteSink& sink)>>;
/// Files by name. Written with a MANIFEST.json of sizes and XXH3 checksums.
using CheckpointContent = std::map<std::string, FileContent>;

/// Writes <folder>: first <folder>.tmp-<pid>, every file and the folder flushed to disk, then a
/// rename and a flush of the parent. An existing <folder> is replaced. Throws Error(kRuntime) with
/// the system's reason (a full disk, say) and leaves what was there before untouched.
void write_checkpoint(const std::string& folder, const CheckpointContent& content);

/// Replaces a file as a whole: writes <path>.tmp-<pid>, flushes it to disk, renames it, and
/// flushes the folder. A link is replaced, not followed. Throws Error(kRuntime) with the system's
/// reason, and leaves what was there before.
void replace_file(const std::string& path, const FileContent& content);

/// True if the folder holds a manifest.
bool is_checkpoint(const std::string& folder);

/// A checkpoint to read. A file is verified when it is asked for, and no other one is looked at.
class Checkpoint {
 public:
  /// Reads the manifest. Throws Error(kData) when it is missing or damaged.
  explicit Checkpoint(const std::string& folder);

  const std::string& folder() const { return folder_; }
  /// True if the manifest names the file.
  bool contains(const std::string& name) const { return files_.contains(name); }
  std::vector<std::string> names() const;

  /// Opens a file; the first time, reads it once to compare its size and checksum with the
  /// manifest's. It stays open as long as this object. Throws Error(kData) naming what differs.
  const ByteSource& open(const std::string& name);
  /// The bytes of a small file.
  std::string read(const std::string& name) { return bytes_of(open(name)); }
  /// Opens all files, and so verifies them.
  void open_all();

 private:
  struct File {
    uint64_t bytes;
    std::string checksum;
    ByteSource source = {};  // once it is opened
  };

  std::string folder_;
  std::map<std::string, File> files_;
};

namespace internal {
/// Called after each stage of the commit protocol; tests end the process there.
inline void (*checkpoint_stage_hook)(const char* stage) = nullptr;

// Used by the run folder, too, when it writes.
void reached(const char* stage);
[[noreturn]] void system_failure(const std::string& action, const std::string& path);
void rename_path(const std::string& from, const std::string& to);
/// Flushes it to disk.
void flush_folder(const std::string& path);
}  // namespace internal

}  // namespace tapestry
