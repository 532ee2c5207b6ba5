// Bytes on their way between memory and files, a part at a time: nothing here holds a whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tapestry {

/// Memory that a part of a file may take on its way.
inline constexpr int64_t kPartBytes = int64_t{1} << 20;

/// Takes the bytes of a file, one part after the other.
using ByteSink = std::function<void(const void* bytes, size_t count)>;

/// Bytes that can be read at any place, of an open file for example.
struct ByteSource {
  std::string name;  ///< for messages: the file's path
  uint64_t size = 0;
  /// Throws Error(kData) when `offset + count` is more than the source holds.
  std::function<void(uint64_t offset, void* to, uint64_t count)> read;
};

/// Opens a file for reading. The source and its copies hold it open: a file that is deleted or
/// replaced meanwhile can still be read. Throws Error(kData) naming the path, also if it is not a
/// regular file.
ByteSource open_source(const std::string& path);

/// Everything that a source holds.
std::string bytes_of(const ByteSource& source);

/// The XXH3 checksum (64 bits) of bytes that come in parts.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(const void* bytes, size_t count);
  /// The checksum of all added bytes: 16 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Reads the source once.
std::string checksum_of(const ByteSource& source);

}  // namespace tapestry
