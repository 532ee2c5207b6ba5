// PNM images: binary PGM (grey) and PPM (colour), of 8 bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tapestry {

struct PnmImage {
  int64_t height = 0, width = 0;
  int64_t channels = 0;     ///< 1 or 3
  std::string_view pixels;  ///< row by row, of the file that was parsed
};

/// Whether a file begins as one.
bool is_pnm(std::string_view file);

/// Throws Error(kData), naming `path`, unless the file has the pixels that its header promises.
PnmImage parse_pnm(std::string_view file, const std::string& path);

}  // namespace tapestry
