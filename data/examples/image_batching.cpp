#include "data/examples/image_batching.h"

#include <algorithm>

#include "core/base/draws.h"
#include "core/base/error.h"
#include "data/batches/batch_rows.h"

namespace tapestry {
namespace {

// Copies an image, moved by (down, right) pixels and mirrored if `flip`. Pixels from outside are
// black.
void copy_changed(std::span<const uint8_t> image, const ImageSize& size, int64_t down,
                  int64_t right, bool flip, uint8_t* out) {
  for (int64_t y = 0; y < size.height; ++y) {
    for (int64_t x = 0; x < size.width; ++x, out += size.channels) {
      const int64_t from_y = y - down, moved = x - right;
      const int64_t from_x = flip ? size.width - 1 - moved : moved;
      const bool inside = from_y >= 0 && from_y < size.height && from_x >= 0 && from_x < size.width;
      if (!inside) {
        std::fill_n(out, size.channels, uint8_t{0});
        continue;
      }
      const auto at = static_cast<size_t>((from_y * size.width + from_x) * size.channels);
      std::copy_n(image.data() + at, size.channels, out);
    }
  }
}

}  // namespace

ImageBatches::ImageBatches(const ImageCorpus& corpus, const ImageFormat& format,
                           const ImageBatchOptions& options, DataPosition start)
    : corpus_(&corpus),
      format_(format),
      options_(options),
      walk_(EpochPlans::of_equal_rows({.rows = [images = corpus.size()](int64_t) { return images; },
                                       .batch_size = options.batch_size,
                                       .shuffle = options.shuffle,
                                       .seed = options.seed}),
            start) {
  check(format.size == corpus.image_size, "data", "the format is of ", format.size.str(),
        ", the images are of ", corpus.image_size.str(), '.');
}

ImageBatch ImageBatches::next() {
  const auto images = walk_.next();
  const PhiloxKey key = draw_key(options_.seed, walk_.position().epoch, "data.augment");
  const AugmentOptions augment = options_.shuffle ? options_.augment : AugmentOptions{};
  ImageBatch batch;
  batch.rows = static_cast<int64_t>(images.size());
  batch.indices.assign(images.begin(), images.end());
  batch.labels = Tensor::empty({batch.rows}, DType::kInt32);
  std::vector<uint8_t> pixels(static_cast<size_t>(batch.rows * corpus_->image_size.bytes()));
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t image = images[static_cast<size_t>(row)];
    RowDraws draws(key, image);
    const int64_t down = draws.below(2 * augment.shift + 1) - augment.shift;
    const int64_t right = draws.below(2 * augment.shift + 1) - augment.shift;
    const bool flip = augment.flip && draws.below(2) == 1;
    copy_changed(corpus_->image(image), corpus_->image_size, down, right, flip,
                 pixels.data() + row * corpus_->image_size.bytes());
    batch.labels.data<int32_t>()[row] = corpus_->labels[static_cast<size_t>(image)];
  }
  batch.pixels = normalised(pixels, format_);
  return batch;
}

ImageBatch rows_of(const ImageBatch& batch, int64_t begin, int64_t end) {
  const TakeRows rows{begin, end};
  return {.pixels = rows(batch.pixels),
          .labels = rows(batch.labels),
          .rows = rows.count(),
          .indices = rows(batch.indices)};
}

}  // namespace tapestry
