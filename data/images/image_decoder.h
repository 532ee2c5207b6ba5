// The interface of image decoders: each is a row in data/images/images.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

struct DecodedImage {
  int64_t height = 0, width = 0;
  int64_t channels = 0;         ///< 1: grey, 3: colour; transparency is left out
  std::vector<uint8_t> pixels;  ///< (height, width, channels) row-major
};

/// Gets an image without pixels as soon as the header is read; throws to refuse it. So no pixel of
/// an image is decoded that is too large.
using HeaderCheck = std::function<void(const DecodedImage& header)>;

struct ImageDecoder {
  bool (*begins)(std::string_view file);  ///< whether a file begins as one of this format
  /// Throws Error(kData), naming `path`, if the file is cut or damaged.
  DecodedImage (*decode)(std::string_view file, const std::string& path, const HeaderCheck& check);
};

/// ImageDecoder::decode by a Reader(file, path) with header() and read(image).
template <class Reader>
DecodedImage decode_by(std::string_view file, const std::string& path, const HeaderCheck& check) {
  Reader reader(file, path);
  DecodedImage image = reader.header();
  check(image);
  reader.read(image);
  return image;
}

extern const ImageDecoder kPnmDecoder;   ///< binary PGM (grey) and PPM (colour), of 8 bits
extern const ImageDecoder kPngDecoder;   ///< of 16 bits the upper 8 are taken
extern const ImageDecoder kJpegDecoder;  ///< baseline and progressive

}  // namespace tapestry
