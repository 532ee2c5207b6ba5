// The compressed formats that text and data files are read in: gzip, zstd, xz and bzip2.
//
// Each format's own library unpacks it. One library for all would be less code, but those that
// Debian 12 has do not see all damage: libarchive 3.6 does not look at gzip's checksum (of 3,034
// files with one wrong bit each, 2,389 gave a wrong text and no error) and drops bytes behind
// bzip2's and gzip's data; Boost.Iostreams 1.74 takes a zstd file that is cut anywhere for whole.
#pragma once

#include <memory>
#include <span>
#include <string_view>

namespace tapestry {

/// Unpacks streams (gzip members, zstd frames, ...) one after the other, piece by piece.
class Decompressor {
 public:
  struct Step {
    size_t consumed = 0;           ///< bytes of `packed`
    size_t produced = 0;           ///< bytes of `out`
    bool ended = false;            ///< the stream is whole and its checksum is right
    const char* damage = nullptr;  ///< what is wrong with the stream; null if nothing is
  };

  virtual ~Decompressor() = default;
  /// Before the first step of each stream.
  virtual void start() = 0;
  /// Unpacks some of `packed` (16 MiB at most), or the rest inside if it is empty. A step that
  /// neither consumes nor produces needs more of `packed`.
  virtual Step step(std::string_view packed, std::span<char> out) = 0;
};

struct CompressedFormat {
  static constexpr size_t kMagicBytes = 10;

  const char* name;
  /// True if a stream starts here; looks at kMagicBytes at most.
  bool (*starts)(std::string_view bytes);
  std::unique_ptr<Decompressor> (*make)();
};

/// The format of which a stream starts here, or null.
const CompressedFormat* find_compressed_format(std::string_view bytes);

}  // namespace tapestry
