// The bytes of a file, unpacked if it is compressed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/files/decompress.h"
#include "data/files/files.h"

namespace tapestry {

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

/// The bytes of a file, times `factor` if it is compressed. 0 for a file that cannot be read, and
/// for one that is not regular, which is not opened.
int64_t likely_unpacked_bytes(const std::string& path, int64_t factor);
constexpr int64_t kMostOfGzip = 1032;  ///< bytes that a byte of gzip unpacks to

/// All bytes of a file, unpacked if it is compressed. Throws as UnpackedFile does, and if there are
/// more than `most`: a small file can unpack to more than memory holds.
constexpr int64_t kMostUnpackedBytes = int64_t{1} << 29;
std::string read_unpacked(const std::string& path, int64_t most = kMostUnpackedBytes);

}  // namespace tapestry
