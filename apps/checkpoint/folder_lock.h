// The lock of a folder that one program at a time writes to.
#pragma once

#include <string>
#include <utility>

namespace tapestry {

/// The file .lock in the folder. The lock ends with this object, or with the process.
class FolderLock {
 public:
  /// Whether processes that this one starts hold the lock, too, until they have ended as well.
  enum class Children { kShareIt, kDoNot };

  /// Opens the file; nothing is locked yet. Throws Error(kConfig) as `who` if it cannot be written.
  FolderLock(const std::string& folder, const char* who, Children children);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;

  /// Takes the lock without waiting; false if another process holds it.
  bool take() const;

 private:
  int file_ = -1;
};

}  // namespace tapestry
