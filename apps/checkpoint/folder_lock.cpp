#include "apps/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace tapestry {

FolderLock::FolderLock(const std::string& folder, const char* who, Children children) {
  const int closed_in_children = children == Children::kDoNot ? O_CLOEXEC : 0;
  file_ = open((folder + "/.lock").c_str(), O_RDWR | O_CREAT | closed_in_children, 0644);
  if (file_ >= 0) return;
  fail(ErrorKind::kConfig, '[', who, "] cannot write to ", folder, ": ", std::strerror(errno), '.');
}

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

bool FolderLock::take() const { return flock(file_, LOCK_EX | LOCK_NB) == 0; }

}  // namespace tapestry
