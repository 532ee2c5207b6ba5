// Labelled images: IDX files (MNIST, Fashion-MNIST) and lists of image files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/corpus.h"

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

/// What a model knows of its images: channel c of a pixel is fed as (byte / 255 - mean[c]) /
/// std[c].
struct ImageFormat {
  ImageSize size;
  std::vector<double> mean, std;  ///< one number a channel; empty: not known yet
};

/// Image i is bytes [i * size.bytes(), (i + 1) * size.bytes()) of `pixels`, (height, width,
/// channels) row-major; its class labels[i] is named label_names[labels[i]].
struct ImageCorpus {
  ImageSize size;
  std::vector<uint8_t> pixels;
  std::vector<int32_t> labels;
  std::vector<std::string> label_names;

  int64_t images() const { return static_cast<int64_t>(labels.size()); }
  std::span<const uint8_t> image(int64_t i) const {
    return std::span(pixels).subspan(static_cast<size_t>(i * size.bytes()),
                                     static_cast<size_t>(size.bytes()));
  }
};

/// Reads corpora of kind kImages one after the other:
///
///  - images and labels: IDX files of unsigned bytes, packed with gzip or not; images of 3 axes
///    (number, height, width) or 4 (and channels). Label k is named label_names[k]; without
///    label_names its number.
///  - images alone: lines of a label, a tab and the path of an image file, relative to the list's
///    folder; blank lines are left out. Without label_names the labels are numbered in byte order.
///
/// Every image must be of the given size, or where none is known of the first one's. Colour becomes
/// grey, or grey colour, as the channels demand. Throws Error(kData) naming the file or line that
/// does not fit, when a corpus leaves nothing, or when fewer than two classes are found.
ImageCorpus load_images(const std::vector<CorpusSpec>& specs, ImageSize size = {},
                        const std::vector<std::string>& label_names = {});

/// The pixels of a PNG, PNM (binary PPM or PGM) or JPEG file; transparency is ignored. A size that
/// is not known is set to the file's, with 1 channel for grey and 3 for colour. Throws Error(kData)
/// naming the file when it is no such image or is of another size.
std::vector<uint8_t> read_image(const std::string& path, ImageSize& size);

/// The format of a corpus: its size, and the mean and standard deviation of each channel, scaled to
/// [0, 1]. A channel without any contrast gets the deviation 1.
ImageFormat format_of(const ImageCorpus& corpus);

/// Bytes of whole images -> float32 (images, height, width, channels) as the format tells.
Tensor normalised(std::span<const uint8_t> pixels, const ImageFormat& format);

}  // namespace tapestry
