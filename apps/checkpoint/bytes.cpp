#include "apps/checkpoint/bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/base/error.h"

namespace tapestry {
namespace {

struct OpenFile {
  // O_NONBLOCK: does not wait for a writer if it is a pipe.
  explicit OpenFile(const std::string& path)
      : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd < 0)
      fail(ErrorKind::kData, "[file] ", path, " cannot be opened: ", strerror(errno), '.');
  }
  ~OpenFile() { close(fd); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const int fd;
};

}  // namespace

// Uses pread(), not a mapping: if the file shrinks meanwhile, that is an error here, but would end
// the process with a mapping.
ByteSource open_source(const std::string& path) {
  const auto file = std::make_shared<const OpenFile>(path);
  struct stat status;
  if (fstat(file->fd, &status) != 0) {
    fail(ErrorKind::kData, "[file] ", path, " cannot be read: ", strerror(errno), '.');
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorKind::kData, "[file] ", path, " is ",
         S_ISDIR(status.st_mode)    ? "a directory"
         : S_ISFIFO(status.st_mode) ? "a pipe"
                                    : "a device",
         ", expected a file.");
  }
  const auto read = [file, path](uint64_t offset, void* to, uint64_t count) {
    for (auto* at = static_cast<char*>(to); count > 0;) {
      const ssize_t got = pread(file->fd, at, count, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        fail(ErrorKind::kData, "[file] ", path, " cannot be read: ", strerror(errno), '.');
      if (got == 0) fail(ErrorKind::kData, "[file] ", path, " ends while it is read.");
      at += got;
      offset += static_cast<uint64_t>(got);
      count -= static_cast<uint64_t>(got);
    }
  };
  return {path, static_cast<uint64_t>(status.st_size), read};
}

std::string bytes_of(const ByteSource& source) {
  std::string bytes(source.size, '\0');
  source.read(0, bytes.data(), bytes.size());
  return bytes;
}

struct Checksum::State {
  XXH3_state_t* const xxh3 = XXH3_createState();
  State() { XXH3_64bits_reset(xxh3); }
  ~State() { XXH3_freeState(xxh3); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;

void Checksum::add(const void* bytes, size_t count) {
  XXH3_64bits_update(state_->xxh3, bytes, count);
}

std::string Checksum::text() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(state_->xxh3));
}

std::string checksum_of(const ByteSource& source) {
  Checksum checksum;
  std::vector<char> part(std::min<uint64_t>(source.size, kPartBytes));
  for (uint64_t offset = 0; offset < source.size; offset += part.size()) {
    const uint64_t count = std::min<uint64_t>(part.size(), source.size - offset);
    source.read(offset, part.data(), count);
    checksum.add(part.data(), count);
  }
  return checksum.text();
}

}  // namespace tapestry
