// The bytes of image files for tests.
#pragma once

#include <stb/stb_image_write.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tapestry {

/// An IDX file of unsigned bytes.
inline std::string idx_file(const std::vector<uint32_t>& sizes,
                            const std::vector<uint8_t>& elements) {
  std::string bytes = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(size >> shift & 255);
  }
  return bytes + std::string(elements.begin(), elements.end());
}

struct TestPicture {
  int height = 0, width = 0, channels = 1;
  std::vector<uint8_t> pixels;  ///< row by row
};

/// A binary PGM (1 channel) or PPM (3).
inline std::string pnm_file(const TestPicture& picture) {
  return (picture.channels == 1 ? "P5\n" : "P6\n") + std::to_string(picture.width) + ' ' +
         std::to_string(picture.height) + "\n255\n" +
         std::string(picture.pixels.begin(), picture.pixels.end());
}

/// 1 to 4 channels; 2 and 4 end with transparency.
inline std::string png_file(const TestPicture& picture) {
  std::string bytes;
  stbi_write_png_to_func(
      [](void* out, void* data, int size) {
        static_cast<std::string*>(out)->append(static_cast<const char*>(data),
                                               static_cast<size_t>(size));
      },
      &bytes, picture.width, picture.height, picture.channels, picture.pixels.data(),
      picture.width * picture.channels);
  return bytes;
}

}  // namespace tapestry
