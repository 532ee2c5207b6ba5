// Files that are mapped into memory instead of being read.
#pragma once

#include <cstdint>
#include <string>

namespace tapestry {

/// Read-only. If another process cuts the file while it is mapped, an access to a lost page ends
/// the process (SIGBUS): mapped_file_of() tells a signal handler which file it was.
class MappedFile {
 public:
  /// data() is null if the system maps nothing.
  MappedFile(int descriptor, int64_t bytes, std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return data_; }
  /// Releases the pages of [begin, end) from memory; they are read again on the next access.
  void release(const void* begin, const void* end) const;

 private:
  const std::string path_;
  const size_t bytes_;
  const char* data_ = nullptr;
  int slot_ = -1;
};

/// The path of the file that is mapped at an address; null: none. For signal handlers: takes no
/// lock and no memory.
const char* mapped_file_of(const void* address) noexcept;

}  // namespace tapestry
