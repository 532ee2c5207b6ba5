// Lines of text files, plain or compressed. The rules for dirty input are here and in
// data/corpora/corpus.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tapestry {

/// Reads a file line by line, plain or compressed with gzip, zstd, xz or bzip2
/// (data/files/unpacked_file.h).
///
/// Only LF ends a line. What becomes of the rest:
///  - CR LF: the CR is not part of the line. A CR elsewhere, U+0085, U+2028, U+2029, VT and FF are
///    ordinary (white space) characters and never end a line, so two files cannot shift apart.
///  - UTF-8 byte order mark: removed at the start of the file, an ordinary character elsewhere.
///  - A last line without LF is a line; an LF at the end of the file starts no further line.
///  - NUL and ill-formed UTF-8 come through as they are: corpora drop and count such lines.
///
/// Throws Error(kData), naming the file and the place, when the file cannot be opened or read, is a
/// directory, is empty (no byte of text), is UTF-16 or UTF-32 by its first bytes, is truncated or
/// damaged where it is compressed, or has a line longer than kMaxLineBytes.
class LineReader {
 public:
  static constexpr int64_t kMaxLineBytes = int64_t{64} << 20;

  explicit LineReader(const std::string& path);
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  /// Returns lines longer than kMaxLineBytes as empty ones from now on, instead of throwing.
  void pass_long_lines();
  /// True if the line returned last was too long.
  bool was_too_long() const;

  /// Sets `line` to the next line without its end; false at the end of the file.
  bool next(std::string& line);

  /// True if the line returned last ended with LF; the last line of a file may lack it.
  bool has_line_end() const;
  const std::string& path() const;
  /// Number of the line returned last, from 1; 0 before the first.
  int64_t line_number() const;
  /// "path:line_number"
  std::string place() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Sets `value` to the number that is the whole text, except for space around it; false if it is
/// not a number, or not finite.
bool parse_number(const std::string& text, double& value);

}  // namespace tapestry
