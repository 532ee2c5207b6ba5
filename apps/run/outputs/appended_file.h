// A file that grows while a training runs, and outlives a disk that is full for a while.
#pragma once

#include <string>
#include <string_view>

namespace tapestry {

class AppendedFile {
 public:
  /// Makes the file if it is missing. A link is refused: it would lead out of the folder. Throws
  /// Error(kRuntime) with the system's reason.
  explicit AppendedFile(std::string path);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  /// Bytes that cannot be written now are kept, and come before those of the next call.
  void append(std::string_view bytes);
  /// The reason why bytes are still kept: "No space left on device"; "" if none are.
  const std::string& problem() const { return problem_; }
  const std::string& path() const { return path_; }

 private:
  void write_kept();

  std::string path_;
  int descriptor_ = -1;
  std::string kept_;
  std::string problem_;
};

}  // namespace tapestry
