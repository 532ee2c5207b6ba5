// JPEG images, by libjpeg-turbo.
#include <csetjmp>
#include <cstddef>
#include <cstdio>

// These want <cstddef> and <cstdio> before them.
#include <jerror.h>
#include <jpeglib.h>

#include "core/base/error.h"
#include "data/images/image_decoder.h"

namespace tapestry {
namespace {

class JpegReader {
 public:
  JpegReader(std::string_view file, const std::string& path) : file_(file), path_(path) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_.client_data = this;
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    progress_.progress_monitor = on_progress;
    run([this] { jpeg_create_decompress(&jpeg_); });
    jpeg_.progress = &progress_;
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  DecodedImage header() {
    run([this] {
      jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(file_.data()), file_.size());
      jpeg_read_header(&jpeg_, TRUE);
    });
    const bool grey = jpeg_.jpeg_color_space == JCS_GRAYSCALE;
    const bool inks = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    jpeg_.out_color_space = grey ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
    return {jpeg_.image_height, jpeg_.image_width, grey ? 1 : 3, {}};
  }

  void read(DecodedImage& image) {
    const bool inks = jpeg_.out_color_space == JCS_CMYK;
    const auto row_bytes = static_cast<size_t>(image.width * (inks ? 4 : image.channels));
    std::vector<uint8_t>& pixels = image.pixels;
    pixels.resize(static_cast<size_t>(image.height) * row_bytes);
    run([&] {
      jpeg_start_decompress(&jpeg_);
      while (jpeg_.output_scanline < jpeg_.output_height) {
        JSAMPROW row = pixels.data() + jpeg_.output_scanline * row_bytes;
        jpeg_read_scanlines(&jpeg_, &row, 1);
      }
      jpeg_finish_decompress(&jpeg_);
    });
    if (inks) take_colours(pixels);
  }

 private:
  // Inks to red, green, blue, without a profile of the print. Adobe's files hold them inverted.
  void take_colours(std::vector<uint8_t>& pixels) const {
    const int flip = jpeg_.saw_Adobe_marker ? 0 : 255;
    uint8_t* out = pixels.data();
    for (size_t i = 0; i < pixels.size(); i += 4) {
      for (size_t c = 0; c < 3; ++c) {
        *out++ = static_cast<uint8_t>((pixels[i + c] ^ flip) * (pixels[i + 3] ^ flip) / 255);
      }
    }
    pixels.resize(pixels.size() / 4 * 3);
  }

  // libjpeg leaves by longjmp(), so `calls` makes nothing that would have to be destroyed.
  template <class Calls>
  void run(const Calls& calls) {
    if (setjmp(jump_) == 0) return calls();
    fail(ErrorKind::kData, "[data] ", path_, " cannot be read as a JPEG image: ", message_, '.');
  }

  [[noreturn]] static void leave(j_common_ptr jpeg) {
    auto& self = *static_cast<JpegReader*>(jpeg->client_data);
    std::longjmp(self.jump_, 1);
  }
  [[noreturn]] static void on_error(j_common_ptr jpeg) {
    jpeg->err->format_message(jpeg, static_cast<JpegReader*>(jpeg->client_data)->message_);
    leave(jpeg);
  }
  // The library calls damage a warning and makes up the pixels; only these are harmless.
  static void on_message(j_common_ptr jpeg, int level) {
    if (level >= 0) return;
    switch (jpeg->err->msg_code) {
      case JWRN_ADOBE_XFORM:
      case JWRN_EXTRANEOUS_DATA:
      case JWRN_JFIF_MAJOR:
      case JWRN_TOO_MUCH_DATA:
        return;
      default:
        on_error(jpeg);
    }
  }
  // A small file can ask for thousands of passes over a large image.
  static void on_progress(j_common_ptr jpeg) {
    constexpr int kMostScans = 100;
    if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMostScans) return;
    std::snprintf(static_cast<JpegReader*>(jpeg->client_data)->message_, JMSG_LENGTH_MAX,
                  "it has more than %d scans", kMostScans);
    leave(jpeg);
  }

  std::string_view file_;
  const std::string& path_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_{};
  char message_[JMSG_LENGTH_MAX] = "";
};

bool is_jpeg(std::string_view file) { return file.starts_with("\xff\xd8\xff"); }

}  // namespace

const ImageDecoder kJpegDecoder{is_jpeg, decode_by<JpegReader>};

}  // namespace tapestry
