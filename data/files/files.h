// Files as they are: read piece by piece, read whole, written whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

constexpr size_t kFileBufferBytes = size_t{1} << 16;

/// Throws Error(kData): `what` is wrong with this file.
[[noreturn]] void fail_file(const std::string& path, const std::string& what);

/// The kinds of files that may be read. A pipe is read once, as far as it goes; formats with a size
/// and parts need files.
enum class FileKinds { kFilesAndPipes, kFiles };

/// A file descriptor with a buffer. Throws Error(kData) if the file cannot be opened or read, or
/// has a wrong kind: a directory or an endless device is never accepted.
class BufferedFile {
 public:
  explicit BufferedFile(std::string path, FileKinds kinds = FileKinds::kFilesAndPipes);
  ~BufferedFile();
  BufferedFile(const BufferedFile&) = delete;
  BufferedFile& operator=(const BufferedFile&) = delete;

  /// Bytes that are read but not yet consumed.
  std::string_view bytes() const { return {buffer_.data() + begin_, end_ - begin_}; }
  /// Appends to bytes(); false at the end of the file.
  bool read_more();
  /// Reads until `count` bytes are there, or the file ends.
  void read_ahead(size_t count);
  void consume(size_t count);
  /// Goes on at another byte of a regular file.
  void seek(int64_t position);
  /// The byte of the file at which bytes() begin.
  int64_t consumed() const { return consumed_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<char> buffer_;
  int descriptor_ = -1;
  size_t begin_ = 0;
  size_t end_ = 0;
  int64_t consumed_ = 0;
};

/// The bytes that this thread has read through BufferedFile so far, for progress bars.
int64_t bytes_read();

/// All bytes of a regular file. Throws Error(kData) as BufferedFile does.
std::string read_file(const std::string& path);

/// Replaces a file's contents. Throws Error(kRuntime) if the bytes cannot all be written.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace tapestry
