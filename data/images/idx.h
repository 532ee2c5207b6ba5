// IDX files, the format of MNIST: two zero bytes, the type of the elements, the number of axes,
// their sizes as big-endian 32-bit numbers, the elements (LeCun, "The MNIST database"). Private to
// data/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/files/unpacked_file.h"

namespace tapestry {

/// A file, compressed or not, whose elements are unsigned bytes. Throws Error(kData), naming the
/// file, for other files.
class IdxFile {
 public:
  explicit IdxFile(const std::string& path);

  const std::vector<int64_t>& sizes() const { return sizes_; }
  /// Appends elements [begin, end). Reads to the end of the file, so it can be called once. Throws
  /// Error(kData) if the file's length does not match its sizes.
  void append(int64_t begin, int64_t end, std::vector<uint8_t>& to);

 private:
  std::string path_;
  UnpackedFile file_;
  std::vector<int64_t> sizes_;
  std::string product_;  // of the sizes: "60000 x 28 x 28"
  size_t header_ = 0;    // bytes
  int64_t elements_ = 0;
};

}  // namespace tapestry
