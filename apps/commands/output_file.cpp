#include "apps/commands/output_file.h"

#include <filesystem>
#include <iostream>

#include "apps/checkpoint/files.h"
#include "core/base/error.h"

namespace tapestry {

namespace fs = std::filesystem;

namespace {

// The one name of a file that is or would be a regular one; "" for devices, pipes and streams.
std::string one_name(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool regular = !fs::exists(status) || fs::is_regular_file(status);
  if (path.empty() || path == "-" || !regular) return "";
  return fs::weakly_canonical(fs::absolute(path), error).string();
}

// A new file in a checkpoint would be there unchecked, and a replaced one has another checksum.
void refuse_in_checkpoint(const std::string& path) {
  const std::string name = one_name(path);
  if (name.empty() || !is_checkpoint(fs::path(name).parent_path().string())) return;
  fail(ErrorKind::kConfig, "[output] ", path, " is in the folder of a checkpoint.");
}

}  // namespace

void check_outputs(const char* who, const NamedFiles& outputs, const NamedFiles& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& [option, path] = outputs[i];
    refuse_in_checkpoint(path);
    const std::string name = one_name(path);
    if (name.empty()) continue;
    const auto refuse_same = [&, &option = option, &path = path](const auto& other, bool written) {
      const std::string of_other = one_name(other.second);
      const bool same =
          of_other == name || of_other == name + ".part" || (written && of_other + ".part" == name);
      if (of_other.empty() || !same) return;
      fail(ErrorKind::kConfig, '[', who, "] ", option, ' ', path, " would overwrite ", other.first,
           ' ', other.second, " (a file is written as FILE.part).");
    };
    for (size_t j = 0; j < i; ++j) refuse_same(outputs[j], true);
    for (const auto& input : inputs) refuse_same(input, false);
  }
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  if (path_ == "-") return;
  refuse_in_checkpoint(path_);
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
