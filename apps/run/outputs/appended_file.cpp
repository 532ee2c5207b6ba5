#include "apps/run/outputs/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace tapestry {

AppendedFile::AppendedFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: does not wait for a reader if it is a pipe.
  constexpr int kMode = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  descriptor_ = open(path_.c_str(), kMode, 0644);
  struct stat status {};
  const bool opened = descriptor_ >= 0 && fstat(descriptor_, &status) == 0;
  if (opened && S_ISREG(status.st_mode)) return;
  const char* const reason = opened           ? "it is no ordinary file"
                             : errno == ELOOP ? "it is a link"
                             : errno == ENXIO ? "it is no ordinary file"
                                              : std::strerror(errno);
  if (descriptor_ >= 0) close(descriptor_);
  fail(ErrorKind::kRuntime, "[log] cannot write ", path_, ": ", reason, '.');
}

AppendedFile::~AppendedFile() {
  write_kept();
  close(descriptor_);
}

void AppendedFile::append(std::string_view bytes) {
  kept_ += bytes;
  write_kept();
}

// A partial write is continued at its end, so no line is in the file twice, or torn for good.
void AppendedFile::write_kept() {
  problem_.clear();
  while (!kept_.empty()) {
    const ssize_t written = write(descriptor_, kept_.data(), kept_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      problem_ = std::strerror(errno);
      return;
    }
    kept_.erase(0, static_cast<size_t>(written));
  }
}

}  // namespace tapestry
