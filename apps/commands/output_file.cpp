#include "apps/commands/output_file.h"

#include <filesystem>
#include <iostream>

#include "core/base/error.h"

namespace tapestry {

namespace fs = std::filesystem;

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  if (path_ == "-") return;
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (fs::is_directory(status)) fail(ErrorKind::kRuntime, "[output] ", path_, " is a folder.");
  if (!fs::exists(status) || fs::is_regular_file(status)) {
    // The file behind a link is replaced, not the link.
    if (fs::is_symlink(path_, error)) path_ = fs::weakly_canonical(path_).string();
    part_ = path_ + ".part";
  }
  file_.open(part_.empty() ? path_ : part_, std::ios::binary);
  if (!file_) fail_to_write();
}

OutputFile::~OutputFile() {
  if (part_.empty() || !file_.is_open()) return;
  file_.close();
  std::error_code error;
  if (fs::file_size(part_, error) == 0) {
    fs::remove(part_, error);
  } else {
    std::cerr << "note: the results up to here are in " << part_ << '\n';
  }
}

std::ostream& OutputFile::stream() { return path_ == "-" ? std::cout : file_; }

void OutputFile::flush() {
  if (!stream().flush()) fail_to_write();
}

void OutputFile::finish() {
  flush();
  if (!file_.is_open()) return;
  file_.close();
  if (!file_) fail_to_write();
  std::error_code error;
  if (!part_.empty()) fs::rename(part_, path_, error);
  if (error) fail_to_write();
}

void OutputFile::fail_to_write() const {
  fail(ErrorKind::kRuntime, "[output] cannot write to ", path_ == "-" ? "standard output" : path_,
       '.');
}

}  // namespace tapestry
