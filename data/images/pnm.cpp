// PNM images: binary PGM and PPM.
#include <charconv>

#include "core/base/error.h"
#include "data/images/image_decoder.h"

namespace tapestry {
namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";

/// The numbers of a header, between white space and comments.
class PnmHeader {
 public:
  PnmHeader(std::string_view rest, const std::string& path) : rest_(rest), path_(path) {}

  int64_t number(const char* what, int64_t most) {
    skip_space();
    int64_t value = 0;
    const char* const end = rest_.data() + rest_.size();
    const auto [stop, error] = std::from_chars(rest_.data(), end, value);
    if (error != std::errc() || value < 1 || value > most) {
      fail(ErrorKind::kData, "[data] ", path_, " must have a ", what, " from 1 to ", most,
           error == std::errc() ? concat(", got ", value, '.') : " in its header.");
    }
    rest_ = {stop, static_cast<size_t>(end - stop)};
    return value;
  }
  /// The bytes behind the single white space that ends the header.
  std::string_view pixels() const { return rest_.substr(rest_.empty() ? 0 : 1); }

 private:
  void skip_space() {
    for (;;) {
      rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpace), rest_.size()));
      if (!rest_.starts_with('#')) return;
      rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
    }
  }

  std::string_view rest_;
  const std::string& path_;
};

bool is_pnm(std::string_view file) {
  return file.size() > 2 && file[0] == 'P' && (file[1] == '5' || file[1] == '6') &&
         (kSpace.find(file[2]) != std::string_view::npos || file[2] == '#');
}

DecodedImage decode(std::string_view file, const std::string& path, const HeaderCheck& check) {
  constexpr int64_t kLongestSide = 1 << 16, kLargest = 255;
  PnmHeader header(file.substr(2), path);
  DecodedImage image;
  image.channels = file[1] == '5' ? 1 : 3;
  image.width = header.number("width", kLongestSide);
  image.height = header.number("height", kLongestSide);
  const int64_t most = header.number("largest value", kLargest);
  check(image);
  const std::string_view pixels = header.pixels();
  const int64_t bytes = image.height * image.width * image.channels;
  if (std::ssize(pixels) != bytes) {
    fail(ErrorKind::kData, "[data] ", path, " must hold ", image.width, " x ", image.height, " x ",
         image.channels, " bytes behind its header, got ",
         std::ssize(pixels) > bytes ? "more" : std::to_string(pixels.size()), '.');
  }
  image.pixels.assign(pixels.begin(), pixels.end());
  if (most == kLargest) return image;
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    uint8_t& pixel = image.pixels[i];
    if (pixel > most) {
      fail(ErrorKind::kData, "[data] ", path, " must have values from 0 to ", most, ", got ",
           static_cast<int>(pixel), " in byte ", i, " behind its header.");
    }
    pixel = static_cast<uint8_t>((pixel * kLargest + most / 2) / most);
  }
  return image;
}

}  // namespace

const ImageDecoder kPnmDecoder{is_pnm, decode};

}  // namespace tapestry
