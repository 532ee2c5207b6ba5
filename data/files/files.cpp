#include "data/files/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/base/error.h"

namespace tapestry {

void fail_file(const std::string& path, const std::string& what) {
  fail(ErrorKind::kData, "[data] ", path, ' ', what);
}

namespace {

thread_local int64_t all_bytes_read = 0;

// A terminal ends when the user closes it, and /dev/null at once.
bool is_endless(int descriptor, const struct stat& status) {
  struct stat null {};
  const bool is_null = ::stat("/dev/null", &null) == 0 && null.st_rdev == status.st_rdev;
  return S_ISBLK(status.st_mode) ||
         (S_ISCHR(status.st_mode) && !is_null && ::isatty(descriptor) == 0);
}

// "a directory", or null.
const char* unfit(int descriptor, FileKinds kinds) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return nullptr;
  if (S_ISDIR(status.st_mode)) return "a directory";
  if (is_endless(descriptor, status)) return "a device";
  return kinds == FileKinds::kFiles && S_ISFIFO(status.st_mode) ? "a pipe" : nullptr;
}

}  // namespace

int64_t bytes_read() { return all_bytes_read; }

// Opening a pipe without a writer would block callers that only ask for its kind.
BufferedFile::BufferedFile(std::string path, FileKinds kinds)
    : path_(std::move(path)), buffer_(kFileBufferBytes) {
  const int mode = kinds == FileKinds::kFiles ? O_NONBLOCK : 0;
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | mode);
  if (descriptor_ < 0) fail_file(path_, concat("cannot be opened: ", std::strerror(errno), '.'));
  if (const char* const what = unfit(descriptor_, kinds); what != nullptr) {
    ::close(descriptor_);
    fail_file(path_, concat("is ", what, ", expected a file."));
  }
}

BufferedFile::~BufferedFile() { ::close(descriptor_); }

bool BufferedFile::read_more() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) return true;
  ssize_t count;
  do {
    count = ::read(descriptor_, buffer_.data() + end_, buffer_.size() - end_);
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    fail_file(path_, concat("cannot be read at byte ", consumed_ + static_cast<int64_t>(end_), ": ",
                            std::strerror(errno), '.'));
  }
  end_ += static_cast<size_t>(count);
  all_bytes_read += count;
  return count > 0;
}

void BufferedFile::read_ahead(size_t count) {
  while (bytes().size() < count && read_more()) {
  }
}

void BufferedFile::consume(size_t count) {
  begin_ += count;
  consumed_ += static_cast<int64_t>(count);
}

void BufferedFile::seek(int64_t position) {
  if (position >= consumed_ && position - consumed_ <= std::ssize(bytes())) {
    return consume(static_cast<size_t>(position - consumed_));
  }
  if (::lseek(descriptor_, position, SEEK_SET) < 0) {
    fail_file(path_, concat("cannot be read at byte ", position, ": ", std::strerror(errno), '.'));
  }
  begin_ = end_ = 0;
  consumed_ = position;
}

std::string read_file(const std::string& path) {
  BufferedFile file(path, FileKinds::kFiles);
  std::string bytes;
  while (file.read_more()) {
    bytes += file.bytes();
    file.consume(file.bytes().size());
  }
  return bytes;
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes << std::flush;
  if (!out) fail(ErrorKind::kRuntime, "[file] cannot write ", path, '.');
}

}  // namespace tapestry
