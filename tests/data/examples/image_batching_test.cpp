#include "data/examples/image_batching.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/data/files/files.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

// Bytes are passed on unchanged.
ImageFormat plain(const ImageSize& size) {
  const auto channels = static_cast<size_t>(size.channels);
  return {size, std::vector<double>(channels, 0), std::vector<double>(channels, 1 / 255.0)};
}

std::vector<int32_t> values(const ImageBatch& batch) {
  std::vector<int32_t> all = batch.labels.to_vector<int32_t>();
  for (const float pixel : batch.pixels.to_vector<float>()) {
    all.push_back(static_cast<int32_t>(std::lround(pixel)));
  }
  return all;
}

ImageCorpus numbered(int64_t images, ImageSize size) {
  ImageCorpus corpus;
  corpus.image_size = size;
  for (int64_t i = 0; i < images; ++i) {
    corpus.labels.push_back(static_cast<int32_t>(i % 3));
    for (int64_t p = 0; p < size.bytes(); ++p) {
      corpus.pixels.push_back(static_cast<uint8_t>(1 + (i * 37 + p * 11) % 255));
    }
  }
  return corpus;
}

TEST(ImageBatchesTest, CoverTheCorpusInOrder) {
  const ImageCorpus corpus = numbered(10, {2, 3, 1});
  ImageBatches batches(corpus, plain(corpus.image_size),
                       {.batch_size = 4, .shuffle = false, .augment = {.shift = 2, .flip = true}});
  EXPECT_EQ(batches.batches_in_epoch(), 3);
  std::vector<int32_t> pixels, labels;
  for (const int64_t rows : {4, 4, 2}) {
    const ImageBatch batch = batches.next();
    EXPECT_EQ(batch.rows, rows);
    EXPECT_EQ(batch.pixels.shape(), (Shape{rows, 2, 3, 1}));
    const auto got = values(batch);
    labels.insert(labels.end(), got.begin(), got.begin() + rows);
    pixels.insert(pixels.end(), got.begin() + rows, got.end());
  }
  EXPECT_EQ(labels, corpus.labels);
  EXPECT_EQ(pixels, std::vector<int32_t>(corpus.pixels.begin(), corpus.pixels.end()))
      << "in order nothing is changed";
}

TEST(ImageBatchesTest, ContinueExactlyWithTheSameChanges) {
  const ImageCorpus corpus = numbered(50, {3, 4, 2});
  const ImageBatchOptions options{.batch_size = 8, .augment = {.shift = 1, .flip = true}};
  expect_resumes(
      [&](DataPosition start) {
        return ImageBatches(corpus, plain(corpus.image_size), options, start);
      },
      values);
}

// Every change is an allowed one, each allowed one occurs, and the next epoch draws others.
TEST(ImageBatchesTest, ImagesAreShiftedAndFlipped) {
  const ImageSize size{3, 4, 2};
  const ImageCorpus corpus = numbered(300, size);
  const auto pixel = [&](int64_t image, int64_t y, int64_t x, int64_t c) -> int32_t {
    if (y < 0 || y >= size.height || x < 0 || x >= size.width) return 0;
    return corpus.image(image)[static_cast<size_t>((y * size.width + x) * size.channels + c)];
  };
  // Image `image` after a change.
  const auto changed = [&](int64_t image, int64_t down, int64_t right, bool flip) {
    std::vector<int32_t> out;
    for (int64_t y = 0; y < size.height; ++y) {
      for (int64_t x = 0; x < size.width; ++x) {
        const int64_t at = flip ? size.width - 1 - (x - right) : x - right;
        for (int64_t c = 0; c < size.channels; ++c) out.push_back(pixel(image, y - down, at, c));
      }
    }
    return out;
  };
  ImageBatches batches(corpus, plain(size),
                       {.batch_size = 300, .augment = {.shift = 1, .flip = true}});
  std::vector<std::vector<int>> change_of(2, std::vector<int>(300, -1));
  std::vector<int64_t> count(18, 0);
  for (size_t epoch = 0; epoch < 2; ++epoch) {
    const ImageBatch batch = batches.next();
    const auto all = values(batch);
    for (int64_t row = 0; row < 300; ++row) {
      const int64_t image = batch.indices[static_cast<size_t>(row)];
      EXPECT_EQ(all[static_cast<size_t>(row)], corpus.labels[static_cast<size_t>(image)]);
      const auto begin = all.begin() + 300 + row * size.bytes();
      const std::vector<int32_t> got(begin, begin + size.bytes());
      int found = -1;
      for (int change = 0; change < 18; ++change) {
        if (got == changed(image, change / 6 - 1, change / 2 % 3 - 1, change % 2 == 1)) {
          found = change;
        }
      }
      ASSERT_GE(found, 0) << "image " << image;
      change_of[epoch][static_cast<size_t>(image)] = found;
      ++count[static_cast<size_t>(found)];
    }
  }
  EXPECT_NE(change_of[0], change_of[1]);
  for (const int64_t n : count) EXPECT_GT(chance_of(n, 600, 1.0 / 18), 1e-6);
}

TEST(ImageBatchesTest, BadOptionsAreErrors) {
  const ImageCorpus corpus = numbered(3, {2, 2, 1});
  EXPECT_THAT(error_of(ErrorKind::kConfig,
                       [&] { ImageBatches(corpus, plain(corpus.image_size), {.batch_size = 0}); }),
              HasSubstr("batch_size must be at least 1, got 0."));
  EXPECT_THAT(error_of(ErrorKind::kRuntime,
                       [&] {
                         ImageBatches(corpus, plain({2, 1, 2}), {});
                       }),
              HasSubstr("the format is of 2 x 1 pixels of 2 channels"));
}

}  // namespace
}  // namespace tapestry
