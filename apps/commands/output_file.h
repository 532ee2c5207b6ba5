// A file of results that is whole or not there.
#pragma once

#include <fstream>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tapestry {

/// Files with the options that name them; "" and "-" are none.
using NamedFiles = std::vector<std::pair<const char*, std::string>>;

/// Throws Error(kConfig) if two of these outputs would be written to one file, if one of them would
/// replace an input, or if one is in the folder of a checkpoint. An output's FILE.part counts, too.
void check_outputs(const char* who, const NamedFiles& outputs, const NamedFiles& inputs);

/// Written as PATH.part and renamed at the end, so that a failure leaves an older PATH unchanged,
/// and the results so far in PATH.part. A device or a pipe is written to at once, and "-" is
/// standard output.
class OutputFile {
 public:
  /// Opens the file. Throws Error(kRuntime) if it cannot be written, Error(kConfig) if it is in the
  /// folder of a checkpoint.
  explicit OutputFile(std::string path);
  /// If finish() was not called, prints on stderr where the results are, if there are any.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  std::ostream& stream();
  /// Writes out the stream's contents. Throws Error(kRuntime) if that fails.
  void flush();
  /// Gives the file its name. Throws Error(kRuntime) if that fails.
  void finish();

 private:
  [[noreturn]] void fail_to_write() const;

  std::string path_, part_;  // part_ is empty if nothing is renamed
  std::ofstream file_;
};

}  // namespace tapestry
