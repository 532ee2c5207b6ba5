// A file of results that is whole or not there.
#pragma once

#include <fstream>
#include <ostream>
#include <string>

namespace tapestry {

/// Written as PATH.part and renamed at the end, so that a failure leaves an older PATH as it was,
/// and what was done before it in PATH.part. A path that is no file but a device or a pipe is
/// written to at once, and "-" is standard output.
class OutputFile {
 public:
  /// Opens the file. Throws Error(kRuntime) where it cannot be written.
  explicit OutputFile(std::string path);
  /// Says on stderr where the results are, if there are some and finish() was not called.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  std::ostream& stream();
  /// Writes out what the stream holds. Throws Error(kRuntime) where that fails.
  void flush();
  /// Gives the file its name. Throws likewise.
  void finish();

 private:
  [[noreturn]] void fail_to_write() const;

  std::string path_, part_;  // part_ is empty where nothing is renamed
  std::ofstream file_;
};

}  // namespace tapestry
