#include "data/images/images.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/error.h"
#include "data/corpora/class_names.h"
#include "data/corpora/encode_corpus.h"
#include "data/corpora/shards.h"
#include "data/files/text.h"
#include "data/files/unpacked_file.h"
#include "data/files/utf8.h"
#include "data/images/idx.h"
#include "data/images/image_decoder.h"
#include "data/images/image_size.h"

namespace tapestry {
namespace {

// A line of a list of image files.
struct ListedImage {
  std::string label, path, place;
};

std::vector<ListedImage> read_list(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::vector<ListedImage> list;
  LineReader lines(path);
  for (std::string line; lines.next(line);) {
    if (is_blank(line)) continue;
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || tab == 0 || tab + 1 == line.size()) {
      fail(ErrorKind::kData, "[data] ", lines.place(),
           " must be a label, a tab and the path of an image (or an IDX file, with labels beside "
           "it), got '",
           find_invalid_utf8(line) == std::string::npos ? line.substr(0, 80) : "binary data", "'.");
    }
    list.push_back({line.substr(0, tab), (folder / line.substr(tab + 1)).string(), lines.place()});
  }
  return list;
}

// The range of images that a corpus takes from the `count` images of its files.
struct Range {
  int64_t begin, end;
};

Range range_of(const CorpusSpec& spec, int64_t count) {
  const auto part = [&](double share) {
    return static_cast<int64_t>(std::floor(static_cast<double>(count) * share));
  };
  Range range{part(spec.range_begin), part(spec.range_end)};
  if (spec.limit > 0) range.end = range.begin + std::min(range.end - range.begin, spec.limit);
  if (range.begin == range.end) {
    fail(ErrorKind::kData, "[data] ", spec.str(), " must leave an image, got none of ", count, '.');
  }
  return range;
}

void demand_size(const std::string& where, const ImageSize& got, ImageSize& expected) {
  if (!expected.known()) expected = got;
  if (got == expected) return;
  fail(ErrorKind::kData, "[data] ", where, " is of ", got.str(), ", expected ", expected.str(),
       '.');
}

std::vector<uint8_t> read_idx_labels(const CorpusSpec& spec) {
  IdxFile file(spec.labels);
  if (file.sizes().size() != 1) {
    fail(ErrorKind::kData, "[data] labels ", spec.labels, " must have 1 axis, got ",
         file.sizes().size(), '.');
  }
  std::vector<uint8_t> labels;
  file.append(0, file.sizes().front(), labels);
  return labels;
}

ImageSize idx_image_size(const std::string& path, const std::vector<int64_t>& sizes) {
  const size_t axes = sizes.size();
  if (axes != 3 && axes != 4) {
    fail(ErrorKind::kData, "[data] images ", path,
         " must have 3 axes (number, height, width) or 4 (and channels), got ", axes, '.');
  }
  return {sizes[1], sizes[2], axes == 4 ? sizes[3] : 1};
}

void load_idx(const CorpusSpec& spec, ImageCorpus& corpus) {
  IdxFile images(spec.images);
  const std::vector<uint8_t> labels = read_idx_labels(spec);
  const ImageSize size = idx_image_size(spec.images, images.sizes());
  const int64_t count = images.sizes().front();
  if (count != std::ssize(labels)) {
    fail(ErrorKind::kData, "[data] ", spec.images, " has ", count, " images, ", spec.labels,
         " has ", labels.size(), " labels.");
  }
  const Range range = range_of(spec, count);
  if (size.bytes() == 0) {
    fail(ErrorKind::kData, "[data] ", spec.images, " has images of ", size.str(), '.');
  }
  demand_size(spec.images, size, corpus.image_size);
  images.append(range.begin * size.bytes(), range.end * size.bytes(), corpus.pixels);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const uint8_t label = labels[static_cast<size_t>(i)];
    if (label >= corpus.label_names.size()) {
      fail(ErrorKind::kData, "[data] image ", i, " of ", spec.labels,
           " must have a label from 0 to ", corpus.label_names.size() - 1, ", got ", +label, '.');
    }
    corpus.labels.push_back(label);
  }
}

void load_list(const CorpusSpec& spec, ImageCorpus& corpus) {
  const std::vector<ListedImage> list = read_list(spec.images);
  const Range range = range_of(spec, static_cast<int64_t>(list.size()));
  for (int64_t i = range.begin; i < range.end; ++i) {
    const ListedImage& image = list[static_cast<size_t>(i)];
    corpus.labels.push_back(class_number(corpus.label_names, image.label, image.place));
    const std::vector<uint8_t> pixels = read_image(image.path, corpus.image_size);
    corpus.pixels.insert(corpus.pixels.end(), pixels.begin(), pixels.end());
  }
}

// Class names for corpora without given names: numbers if one has IDX labels.
std::vector<std::string> names_in(const std::vector<CorpusSpec>& specs) {
  std::vector<std::string> names;
  int64_t numbers = 0;
  for (const CorpusSpec& spec : specs) {
    for (const CorpusSpec& shard : shards_of(spec)) {
      if (shard.labels.empty()) {
        for (const ListedImage& image : read_list(shard.images)) names.push_back(image.label);
        continue;
      }
      for (const uint8_t label : read_idx_labels(shard)) {
        numbers = std::max(numbers, label + int64_t{1});
      }
    }
  }
  if (numbers > 0) names.clear();
  for (int64_t i = 0; i < numbers; ++i) names.push_back(std::to_string(i));
  if (numbers > 1) return names;
  return class_names_of(std::move(names), specs.front().str());
}

}  // namespace

std::string ImageSize::str() const {
  return concat(height, " x ", width, " pixels of ", channels,
                channels == 1 ? " channel" : " channels");
}

ImageCorpus load_images(const std::vector<CorpusSpec>& specs, ImageSize size,
                        const std::vector<std::string>& label_names) {
  check_not_empty(specs);
  for (const CorpusSpec& spec : specs) {
    spec.validate();
    if (spec.kind() != CorpusSpec::Kind::kImages) {
      fail(ErrorKind::kConfig, "[data] expected images, got ", spec.str(), '.');
    }
  }
  ImageCorpus corpus;
  corpus.image_size = size;
  corpus.label_names = label_names.empty() ? names_in(specs) : label_names;
  for (const CorpusSpec& spec : specs) {
    for_each_shard(spec, [&](const CorpusSpec& shard) {
      const auto before = std::ssize(corpus.labels);
      if (shard.labels.empty()) {
        load_list(shard, corpus);
      } else {
        load_idx(shard, corpus);
      }
      return std::ssize(corpus.labels) - before;
    });
  }
  return corpus;
}

namespace {

constexpr const ImageDecoder* kDecoders[] = {&kPnmDecoder, &kPngDecoder, &kJpegDecoder};
// A small file can claim more than memory holds.
constexpr int64_t kMostPixels = int64_t{1} << 26;
constexpr int64_t kMostBytes = 4 * kMostPixels;

const ImageDecoder& decoder_of(std::string_view file, const std::string& path) {
  for (const ImageDecoder* decoder : kDecoders) {
    if (decoder->begins(file)) return *decoder;
  }
  fail(ErrorKind::kData, "[data] ", path,
       " cannot be read as a PNG, PNM or JPEG image: it begins as none of them.");
}

// ITU-R BT.601, in 256ths.
uint8_t grey_of(const uint8_t* colour) {
  return static_cast<uint8_t>((77 * colour[0] + 150 * colour[1] + 29 * colour[2]) >> 8);
}

std::vector<uint8_t> converted(DecodedImage image, const ImageSize& size) {
  if (size.channels == image.channels) return std::move(image.pixels);
  std::vector<uint8_t> out(static_cast<size_t>(size.bytes()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = size.channels == 1 ? grey_of(&image.pixels[3 * i]) : image.pixels[i / 3];
  }
  return out;
}

}  // namespace

std::vector<uint8_t> read_image(const std::string& path, ImageSize& size) {
  const std::string file = read_unpacked(path, kMostBytes);
  const auto check_header = [&](const DecodedImage& image) {
    if (image.width * image.height > kMostPixels) {
      fail(ErrorKind::kData, "[data] ", path, " must have at most 2^26 pixels, got ", image.width,
           " x ", image.height, '.');
    }
    demand_size(path, {image.height, image.width, size.known() ? size.channels : image.channels},
                size);
  };
  return converted(decoder_of(file, path).decode(file, path, check_header), size);
}

ImageSize size_of_first_image(const CorpusSpec& corpus) {
  const CorpusSpec spec = shards_of(corpus).front();
  ImageSize size;
  if (spec.labels.empty()) {
    const std::vector<ListedImage> list = read_list(spec.images);
    if (list.empty()) fail(ErrorKind::kData, "[data] ", spec.images, " names no image.");
    read_image(list.front().path, size);
    return size;
  }
  return idx_image_size(spec.images, IdxFile(spec.images).sizes());
}

int64_t image_count(const CorpusSpec& spec) {
  int64_t all = 0;
  for_each_shard(spec, [&](const CorpusSpec& shard) {
    int64_t count = 0;
    if (shard.labels.empty()) {
      count = std::ssize(read_list(shard.images));
    } else {
      const IdxFile file(shard.images);
      idx_image_size(shard.images, file.sizes());  // there are sizes at all
      count = file.sizes().front();
    }
    const Range range = range_of(shard, count);
    all += range.end - range.begin;
    return range.end - range.begin;
  });
  return all;
}

ImageFormat format_of(const ImageCorpus& corpus) {
  ImageFormat format{.size = corpus.image_size, .mean = {}, .std = {}};
  const auto channels = static_cast<size_t>(corpus.image_size.channels);
  const size_t positions = corpus.pixels.size() / channels;
  const auto count = static_cast<double>(positions);
  for (size_t channel = 0; channel < channels; ++channel) {
    int64_t sum = 0, squares = 0;  // exact
    for (size_t i = channel; i < corpus.pixels.size(); i += channels) {
      const int64_t value = corpus.pixels[i];
      sum += value;
      squares += value * value;
    }
    const double mean = static_cast<double>(sum) / count;
    const double variance = static_cast<double>(squares) / count - mean * mean;
    format.mean.push_back(mean / 255);
    format.std.push_back(variance > 0 ? std::sqrt(variance) / 255 : 1);
  }
  return format;
}

Tensor normalised(std::span<const uint8_t> pixels, const ImageFormat& format) {
  const ImageSize& size = format.size;
  const auto channels = static_cast<size_t>(size.channels);
  std::vector<std::array<float, 256>> value(channels);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t byte = 0; byte < 256; ++byte) {
      value[c][byte] = static_cast<float>((static_cast<double>(byte) / 255 - format.mean.at(c)) /
                                          format.std.at(c));
    }
  }
  const int64_t images = static_cast<int64_t>(pixels.size()) / size.bytes();
  Tensor out = Tensor::empty({images, size.height, size.width, size.channels});
  auto* element = out.data<float>();
  for (size_t i = 0; i < pixels.size(); i += channels) {
    for (size_t c = 0; c < channels; ++c) *element++ = value[c][pixels[i + c]];
  }
  return out;
}

}  // namespace tapestry
