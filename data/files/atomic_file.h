// Files that are written aside and get their names when they are complete; private to data/.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tapestry {

/// The reason why a file could not be written: the system's message and the path.
class WriteFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Writes "<path>.tmp-<pid>-<number>" and renames it to `path` by commit(); removes it otherwise.
/// Any number of processes may write the same path: each has a file of its own, the last commit
/// stays. The next writer of a path removes files of killed processes, whose locks are free. All
/// functions throw WriteFailure.
class AtomicFile {
 public:
  /// Makes the folder of the path if it is missing.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write_at(int64_t offset, const void* data, size_t bytes);
  /// Appends all of another file.
  void append(const AtomicFile& other);
  int64_t size() const { return size_; }
  int descriptor() const { return file_; }
  /// Does not wait for the disk: readers of the file check it.
  void commit();

 private:
  [[noreturn]] void fail_writing(const std::string& path, const char* what) const;

  std::string path_;
  std::string temporary_;
  int file_ = -1;
  int64_t size_ = 0;
};

}  // namespace tapestry
