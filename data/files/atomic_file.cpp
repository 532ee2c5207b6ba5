#include "data/files/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/base/error.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;

void remove_left_overs(const fs::path& path) {
  const std::string prefix = path.filename().string() + ".tmp-";
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator(path.has_parent_path() ? path.parent_path() : ".", ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) fs::remove(entry.path(), ignored);
    ::close(file);
  }
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  const fs::path folder = fs::path(path_).parent_path();
  std::error_code ignored;  // open() will report the reason
  if (!folder.empty()) fs::create_directories(folder, ignored);
  remove_left_overs(path_);
  static std::atomic<int> number{0};
  while (true) {
    temporary_ = concat(path_, ".tmp-", ::getpid(), '-', number++);
    file_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && errno == EEXIST) continue;  // another machine may have the same pid
    if (file_ < 0) fail_writing(temporary_, "cannot be created");
    // Before the lock is there, another process may take the file for a left-over.
    struct stat status {};
    if (::flock(file_, LOCK_EX) != 0 || ::fstat(file_, &status) != 0 || status.st_nlink > 0) break;
    ::close(file_);
  }
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail_writing(const std::string& path, const char* what) const {
  throw WriteFailure(concat(path, ' ', what, ": ", std::strerror(errno)));
}

void AtomicFile::write(const void* data, size_t bytes) {
  write_at(size_, data, bytes);
  size_ += static_cast<int64_t>(bytes);
}

void AtomicFile::write_at(int64_t offset, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::pwrite(file_, at, bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_writing(temporary_, "cannot be written");
    at += count;
    offset += count;
    bytes -= static_cast<size_t>(count);
  }
}

void AtomicFile::append(const AtomicFile& other) {
  std::vector<char> buffer(size_t{1} << 20);
  for (int64_t at = 0; at < other.size_;) {
    const ssize_t count = ::pread(other.file_, buffer.data(), buffer.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_writing(other.temporary_, "cannot be read back");
    write(buffer.data(), static_cast<size_t>(count));
    at += count;
  }
}

void AtomicFile::commit() {
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_writing(path_, "cannot be created");
  ::close(file_);
  file_ = -1;
}

}  // namespace tapestry
