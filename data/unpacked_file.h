// The bytes of a file, unpacked where it is compressed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/decompress.h"

namespace tapestry {

constexpr size_t kFileBufferBytes = size_t{1} << 16;

/// A file descriptor with a buffer. Throws Error(kData) when the file cannot be opened or read, or
/// is a directory.
class BufferedFile {
 public:
  explicit BufferedFile(std::string path);
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
  /// Bytes of the file consumed so far.
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

/// Tells gzip, zstd, xz and bzip2 by the first bytes, not by the name. Several streams one after
/// the other are one text; zero bytes behind a stream are padding. Throws Error(kData), naming the
/// file and the place, as BufferedFile does, when the file is a zip archive, when a stream is
/// truncated or damaged, and when other bytes follow it.
class UnpackedFile {
 public:
  explicit UnpackedFile(const std::string& path);

  /// Up to `capacity` bytes; 0 only at the end. `line` is the place for error messages, kNoLine in
  /// a file that has no lines.
  static constexpr int64_t kNoLine = -1;
  size_t read(char* out, size_t capacity, int64_t line);

 private:
  size_t read_plain(char* out, size_t capacity);
  size_t read_compressed(char* out, size_t capacity, int64_t line);
  bool start_stream(int64_t line);
  [[noreturn]] void fail_compressed(int64_t line, const std::string& what) const;

  BufferedFile file_;
  const CompressedFormat* format_ = nullptr;  // null: plain
  std::unique_ptr<Decompressor> decompressor_;
  bool inside_stream_ = false;
};

/// All bytes of a file, unpacked where it is compressed. Throws as UnpackedFile does.
std::string read_unpacked(const std::string& path);

}  // namespace tapestry
