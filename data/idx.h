// IDX files, the format of MNIST: two zero bytes, the type of the elements, the number of axes,
// their sizes as big-endian 32-bit numbers, the elements (LeCun, "The MNIST database"). Private to
// data/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tapestry {

struct IdxBytes {
  std::vector<int64_t> sizes;
  std::string file;   ///< the whole file, unpacked
  size_t header = 0;  ///< bytes of the file before the elements

  std::span<const uint8_t> elements() const {
    return {reinterpret_cast<const uint8_t*>(file.data()) + header, file.size() - header};
  }
};

/// Reads a file, compressed or not, whose elements are unsigned bytes. Throws Error(kData),
/// naming the file, if it is no such file or its length does not match its sizes.
IdxBytes read_idx_bytes(const std::string& path);

/// The sizes only, of which the header tells. Throws likewise where that is wrong.
std::vector<int64_t> read_idx_sizes(const std::string& path);

}  // namespace tapestry
