// Labelled images: IDX files (MNIST, Fashion-MNIST) and lists of image files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/corpora/corpus.h"

namespace tapestry {

struct ImageSize {
  int64_t height = 0;  ///< in pixels; 0: not known yet
  int64_t width = 0;
  int64_t channels = 0;  ///< 1: grey, 3: red, green, blue

  bool known() const { return height > 0; }
  int64_t bytes() const { return height * width * channels; }  ///< of an image
  bool operator==(const ImageSize&) const = default;
  /// "28 x 28 pixels of 1 channel"
  std::string str() const;
};

/// The pixels of one image.
struct Picture {
  ImageSize size;
  std::vector<uint8_t> pixels;  ///< (height, width, channels) row-major
};
/// Encodes it as a PNG file.
std::string png_of(const Picture& picture);

/// The format of a model's images: it gets channel c of a pixel as (byte / 255 - mean[c]) / std[c].
struct ImageFormat {
  ImageSize size;
  std::vector<double> mean, std;  ///< one number per channel; empty: not known yet
};

/// Image i is bytes [i * b, (i + 1) * b) of `pixels`, where b = image_size.bytes(), (height, width,
/// channels) row-major; its class is labels[i], with the name label_names[labels[i]].
struct ImageCorpus {
  ImageSize image_size;
  std::vector<uint8_t> pixels;
  std::vector<int32_t> labels;
  std::vector<std::string> label_names;

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  std::span<const uint8_t> image(int64_t i) const {
    return std::span(pixels).subspan(static_cast<size_t>(i * image_size.bytes()),
                                     static_cast<size_t>(image_size.bytes()));
  }
};

/// Reads corpora of kind kImages one after the other:
///
///  - images and labels: IDX files of unsigned bytes, compressed or not; images of 3 axes
///    (number, height, width) or 4 (and channels). Label k has the name label_names[k]; without
///    label_names its number.
///  - only images: lines of a label, a tab and the path of an image file, relative to the list's
///    folder; blank lines are skipped. Without label_names the labels are numbered in byte order.
///
/// Every image must have the given size, or if that is not known the first image's. Colour is
/// converted to grey, and grey to colour, as size.channels requires. Throws Error(kData), naming
/// the file or line, if something does not fit, if nothing is left of a corpus, or if there are
/// fewer than two classes.
ImageCorpus load_images(const std::vector<CorpusSpec>& specs, ImageSize size = {},
                        const std::vector<std::string>& label_names = {});

/// The pixels of a PNG, PNM (binary PPM or PGM) or JPEG file; transparency is ignored. An unknown
/// `size` is set to the file's, with 1 channel for grey and 3 for colour. Throws Error(kData),
/// naming the file, if it is no such image or has another size.
std::vector<uint8_t> read_image(const std::string& path, ImageSize& size);

/// The format of a corpus: its size, and the mean and standard deviation of each channel, scaled to
/// [0, 1]. A constant channel gets the deviation 1.
ImageFormat format_of(const ImageCorpus& corpus);

/// Bytes of whole images -> float32 (images, height, width, channels), scaled as in ImageFormat.
Tensor normalised(std::span<const uint8_t> pixels, const ImageFormat& format);

}  // namespace tapestry
