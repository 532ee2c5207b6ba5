#include "data/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/error.h"

namespace tapestry {
namespace {

[[noreturn]] void fail_file(const std::string& path, const std::string& what) {
  fail(ErrorKind::kData, "[data] ", path, ' ', what);
}

thread_local int64_t all_bytes_read = 0;

}  // namespace

int64_t bytes_read() { return all_bytes_read; }

BufferedFile::BufferedFile(std::string path) : path_(std::move(path)), buffer_(kFileBufferBytes) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail_file(path_, concat("cannot be opened: ", std::strerror(errno), '.'));
  struct stat status {};
  if (::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(descriptor_);
    fail_file(path_, "is a directory, expected a file.");
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

std::string read_file(const std::string& path) {
  BufferedFile file(path);
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
