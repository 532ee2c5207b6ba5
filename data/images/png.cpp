// PNG images, by libpng.
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "core/base/error.h"
#include "data/images/image_decoder.h"
#include "data/images/images.h"

namespace tapestry {
namespace {

class PngReader {
 public:
  PngReader(std::string_view file, const std::string& path) : rest_(file), path_(path) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      fail(ErrorKind::kOutOfMemory, "[data] libpng has no memory.");
    }
    png_set_read_fn(png_, this, on_read);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  DecodedImage header() {
    run([this] {
      png_read_info(png_, info_);
      png_set_expand(png_);  // palettes to colours, and fewer bits to 8
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    return {png_get_image_height(png_, info_),
            png_get_image_width(png_, info_),
            png_get_channels(png_, info_),
            {}};
  }

  void read(DecodedImage& image) {
    const auto row_bytes = static_cast<size_t>(image.width * image.channels);
    check(png_get_rowbytes(png_, info_) == row_bytes, "data", "a row of ", path_, " has ",
          png_get_rowbytes(png_, info_), " bytes, expected ", row_bytes, '.');
    image.pixels.resize(static_cast<size_t>(image.height) * row_bytes);
    std::vector<png_bytep> rows;
    for (int64_t row = 0; row < image.height; ++row) {
      rows.push_back(image.pixels.data() + static_cast<size_t>(row) * row_bytes);
    }
    run([&] {
      png_read_image(png_, rows.data());
      png_read_end(png_, nullptr);
    });
  }

 private:
  // libpng leaves by longjmp(), so `calls` makes nothing that would have to be destroyed.
  template <class Calls>
  void run(const Calls& calls) {
    if (setjmp(png_jmpbuf(png_)) == 0) return calls();
    fail(ErrorKind::kData, "[data] ", path_, " cannot be read as a PNG image: ", message_, '.');
  }

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto& self = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self.message_, sizeof self.message_, "%s", message);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep out, size_t count) {
    auto& self = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self.rest_.size()) png_error(png, "the file is cut");
    std::memcpy(out, self.rest_.data(), count);
    self.rest_.remove_prefix(count);
  }

  std::string_view rest_;
  const std::string& path_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char message_[200] = "";
};

bool is_png(std::string_view file) { return file.starts_with("\x89PNG\r\n\x1a\n"); }

}  // namespace

const ImageDecoder kPngDecoder{is_png, decode_by<PngReader>};

std::string png_of(const Picture& picture) {
  const ImageSize& size = picture.size;
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(size.width);
  image.height = static_cast<png_uint_32>(size.height);
  image.format = size.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const auto write = [&](void* to, png_alloc_size_t& bytes) {
    return png_image_write_to_memory(&image, to, &bytes, 0, picture.pixels.data(), 0, nullptr) != 0;
  };
  png_alloc_size_t bytes = 0;
  std::string file;
  bool done = (size.channels == 1 || size.channels == 3) && write(nullptr, bytes);
  file.resize(bytes);
  done = done && write(file.data(), bytes);
  check(done, "data", "no PNG can be made of ", size.str(), '.');
  return file;
}

}  // namespace tapestry
