// The bytes of image files for tests.
#pragma once

#include <png.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

// Wants <cstddef> and <cstdio> before it.
#include <jpeglib.h>

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

/// first, first + 1, ...
inline std::vector<uint8_t> counting(size_t count, uint8_t first = 0) {
  std::vector<uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), first);
  return bytes;
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
  constexpr png_uint_32 kFormats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB,
                                      PNG_FORMAT_RGBA};
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = kFormats[picture.channels - 1];
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.pixels.data(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

/// 1 channel, 3, or 4: inks as Adobe's programs keep them.
inline std::string jpeg_file(const TestPicture& picture, bool progressive = false) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_width = static_cast<JDIMENSION>(picture.width);
  jpeg.image_height = static_cast<JDIMENSION>(picture.height);
  jpeg.input_components = picture.channels;
  jpeg.in_color_space = picture.channels == 1   ? JCS_GRAYSCALE
                        : picture.channels == 3 ? JCS_RGB
                                                : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  for (int i = 0; i < jpeg.num_components; ++i) {  // no colour is smeared over its neighbours
    jpeg.comp_info[i].h_samp_factor = jpeg.comp_info[i].v_samp_factor = 1;
  }
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  for (int row = 0; row < picture.height; ++row) {
    auto* at = const_cast<unsigned char*>(picture.pixels.data()) +
               static_cast<ptrdiff_t>(row) * picture.width * picture.channels;
    jpeg_write_scanlines(&jpeg, &at, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string bytes(reinterpret_cast<const char*>(out), size);
  std::free(out);
  return bytes;
}

}  // namespace tapestry
