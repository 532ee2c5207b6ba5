#include "data/images.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "data/image_batching.h"
#include "data/unpacked_file.h"
#include "tests/data/files.h"
#include "tests/data/image_files.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<uint8_t> counting(size_t count, uint8_t first = 0) {
  std::vector<uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), first);
  return bytes;
}

class Images : public testing::Test {
 protected:
  CorpusSpec idx(const std::string& images, const std::string& labels) const {
    CorpusSpec spec;
    spec.images = folder_.write("images", images);
    spec.labels = folder_.write("labels", labels);
    return spec;
  }
  CorpusSpec list(const std::string& lines) const {
    CorpusSpec spec;
    spec.images = folder_.write("list.tsv", lines);
    return spec;
  }
  std::string error_of_load(const CorpusSpec& spec, ImageSize size = {},
                            const std::vector<std::string>& names = {}) const {
    std::string message = error_of(ErrorKind::kData, [&] { load_images({spec}, size, names); });
    for (size_t at; (at = message.find(folder_.path(""))) != std::string::npos;) {
      message.erase(at, folder_.path("").size());
    }
    return message;
  }

  TempFolder folder_;
};

TEST_F(Images, IdxFilesAreReadPackedOrNot) {
  const std::string images = idx_file({3, 2, 4}, counting(24));
  const std::string labels = idx_file({3}, {2, 0, 2});
  for (const CorpusSpec& spec : {idx(images, labels), idx(gzip(images), gzip(labels))}) {
    const ImageCorpus corpus = load_images({spec});
    EXPECT_EQ(corpus.size, (ImageSize{2, 4, 1}));
    EXPECT_EQ(corpus.images(), 3);
    EXPECT_THAT(corpus.labels, ElementsAre(2, 0, 2));
    EXPECT_THAT(corpus.label_names, ElementsAre("0", "1", "2"));
    EXPECT_EQ(corpus.pixels, counting(24));
    const auto second = corpus.image(1);
    EXPECT_EQ(std::vector<uint8_t>(second.begin(), second.end()), counting(8, 8));
  }
  const ImageCorpus colour =
      load_images({idx(idx_file({2, 1, 2, 3}, counting(12)), idx_file({2}, {0, 1}))}, {},
                  {"cat", "dog", "cow"});
  EXPECT_EQ(colour.size, (ImageSize{1, 2, 3}));
  EXPECT_THAT(colour.label_names, ElementsAre("cat", "dog", "cow"));
}

TEST_F(Images, ARangeAndALimitTakeAPart) {
  CorpusSpec spec =
      idx(idx_file({10, 1, 1}, counting(10)), idx_file({10}, {0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
  spec.range_begin = 0.25;  // from the third on
  spec.range_end = 0.75;
  ImageCorpus corpus = load_images({spec});
  EXPECT_THAT(corpus.pixels, ElementsAre(2, 3, 4, 5, 6));
  EXPECT_THAT(corpus.labels, ElementsAre(2, 3, 0, 1, 2));
  spec.limit = 2;
  EXPECT_THAT(load_images({spec}).pixels, ElementsAre(2, 3));
  spec.limit = 0;
  spec.range_end = 0.26;
  EXPECT_THAT(error_of_load(spec), HasSubstr("must leave an image, got none of 10."));
  spec.split = "train";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { load_images({spec}); }),
              HasSubstr("split applies only to texts, got train for images"));
}

TEST_F(Images, BrokenIdxFilesAreNamed) {
  const std::string images = idx_file({2, 1, 2}, counting(4)), labels = idx_file({2}, {0, 1});
  EXPECT_EQ(error_of_load(idx("PNG?", labels)),
            "[data] images is not an IDX file of unsigned bytes: expected it to begin with 00 00 "
            "08, got 50 4e "
            "47 3f.");
  EXPECT_THAT(error_of_load(idx("", labels)), HasSubstr("00 00 08, got an empty file."));
  EXPECT_EQ(error_of_load(idx(images.substr(0, 9), labels)),
            "[data] images must have a header of 16 bytes for 3 axes, got 9 bytes in all.");
  EXPECT_EQ(error_of_load(idx(images.substr(0, 19), labels)),
            "[data] images must hold 2 x 1 x 2 bytes behind its header of 16, got 3.");
  EXPECT_EQ(error_of_load(idx(images + 'x', labels)),
            "[data] images must hold 2 x 1 x 2 bytes behind its header of 16, got more.");
  EXPECT_EQ(error_of_load(idx(idx_file({1u << 31, 1u << 31, 4}, {}), labels)),
            "[data] images declares more than 2^40 bytes: 2147483648 x 2147483648.");
  EXPECT_EQ(error_of_load(idx(idx_file({2, 2}, counting(4)), labels)),
            "[data] images images must have 3 axes (number, height, width) or 4 (and channels), "
            "got 2.");
  EXPECT_EQ(error_of_load(idx(images, images)), "[data] labels labels must have 1 axis, got 3.");
  EXPECT_EQ(error_of_load(idx(images, idx_file({3}, {0, 1, 2}))),
            "[data] images has 2 images, labels has 3 labels.");
  EXPECT_EQ(error_of_load(idx(idx_file({2, 0, 2}, {}), labels)),
            "[data] images has images of 0 x 2 pixels of 1 channel.");
  EXPECT_EQ(error_of_load(idx(images, labels), {2, 2, 1}),
            "[data] images is of 1 x 2 pixels of 1 channel, expected 2 x 2 pixels of 1 channel.");
  EXPECT_EQ(error_of_load(idx(images, idx_file({2}, {0, 7})), {}, {"a", "b"}),
            "[data] image 1 of labels must have a label from 0 to 1, got 7.");
  EXPECT_EQ(error_of_load(idx(images, idx_file({2}, {0, 0}))),
            "[data] images, labels must have two labels or more, got only '0'.");
  const std::string packed = gzip(images);
  EXPECT_THAT(error_of_load(idx(packed.substr(0, packed.size() - 9), labels)),
              testing::MatchesRegex(".*images is a truncated gzip file: it ends at compressed byte "
                                    "[0-9]+\\."));
}

const TestPicture kGrey{2, 3, 1, {0, 50, 100, 150, 200, 250}};
const TestPicture kColour{1, 2, 3, {255, 0, 0, 10, 20, 30}};

TEST_F(Images, PngAndPnmFilesAreRead) {
  for (const std::string& bytes : {png_file(kGrey), pnm_file(kGrey)}) {
    ImageSize size;
    EXPECT_EQ(read_image(folder_.write("a", bytes), size), kGrey.pixels);
    EXPECT_EQ(size, (ImageSize{2, 3, 1}));
  }
  for (const std::string& bytes : {png_file(kColour), pnm_file(kColour)}) {
    ImageSize size;
    EXPECT_EQ(read_image(folder_.write("a", bytes), size), kColour.pixels);
    EXPECT_EQ(size, (ImageSize{1, 2, 3}));
  }
  // Transparency is left out.
  ImageSize size;
  EXPECT_THAT(read_image(folder_.write("a", png_file({1, 2, 2, {7, 99, 8, 0}})), size),
              ElementsAre(7, 8));
  EXPECT_EQ(size.channels, 1);
  size = {};
  EXPECT_THAT(read_image(folder_.write("a", png_file({1, 1, 4, {7, 8, 9, 0}})), size),
              ElementsAre(7, 8, 9));
  EXPECT_EQ(size.channels, 3);
}

TEST_F(Images, PngIsReadBack) {
  for (const int64_t channels : {1, 3}) {
    const Picture picture{{2, 3, channels}, counting(static_cast<size_t>(6 * channels), 40)};
    ImageSize size;
    EXPECT_EQ(read_image(folder_.write("own.png", png_of(picture)), size), picture.pixels);
    EXPECT_EQ(size, picture.size);
  }
}

void expect_near(const std::vector<uint8_t>& got, const std::vector<uint8_t>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 3) << i;
}

TEST_F(Images, JpegFilesAreReadWholeOrNotAtAll) {
  const TestPicture grey{9, 8, 1, counting(72, 90)};
  TestPicture colour{9, 8, 3, {}};
  for (uint8_t i = 0; i < 72; ++i) {
    for (const int c : {60 + i, 180 - i, 100}) colour.pixels.push_back(static_cast<uint8_t>(c));
  }
  for (const bool progressive : {false, true}) {
    ImageSize size;
    const std::string bytes = jpeg_file(grey, progressive);
    expect_near(read_image(folder_.write("a", bytes), size), grey.pixels);
    EXPECT_EQ(size, (ImageSize{9, 8, 1}));
    size = {};
    expect_near(read_image(folder_.write("a", jpeg_file(colour, progressive)), size),
                colour.pixels);
    EXPECT_EQ(size, (ImageSize{9, 8, 3}));
    // The library would make up the rest. The end marker of two bytes is the last thing.
    for (size_t length = 3; length < bytes.size(); ++length) {
      ImageSize any;
      EXPECT_THAT(error_of(ErrorKind::kData,
                           [&] { read_image(folder_.write("a", bytes.substr(0, length)), any); }),
                  HasSubstr("cannot be read as a JPEG image: "))
          << length;
    }
  }
  // Inverted inks: 200 of red, no green, and half of both by the black.
  ImageSize size;
  expect_near(read_image(folder_.write("a", jpeg_file({1,
                                                       2,
                                                       4,
                                                       {200, 0, 255, 255,  //
                                                        200, 0, 255, 128}})),
                         size),
              {200, 0, 255, 100, 0, 128});
}

// What another program makes of it: 16 bits, palettes with transparency, fewer bits, rows in
// passes.
TEST_F(Images, PngFilesOfAllKindsAreRead) {
  struct Kind {
    int bits, type;
    bool interlaced;
    std::vector<uint8_t> row;  // of two pixels
    std::vector<uint8_t> pixels;
  };
  const Kind kinds[] = {
      {16, PNG_COLOR_TYPE_GRAY, false, {7, 255, 9, 0}, {7, 9}},
      {8, PNG_COLOR_TYPE_PALETTE, false, {1, 0}, {4, 5, 6, 1, 2, 3}},
      {1, PNG_COLOR_TYPE_GRAY, false, {0x40}, {0, 255}},
      {8, PNG_COLOR_TYPE_RGB, true, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}},
  };
  for (const Kind& kind : kinds) {
    std::string bytes;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(
        png, &bytes,
        [](png_structp writer, png_bytep data, size_t size) {
          static_cast<std::string*>(png_get_io_ptr(writer))
              ->append(reinterpret_cast<const char*>(data), size);
        },
        nullptr);
    png_set_IHDR(png, info, 2, 3, kind.bits, kind.type,
                 kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    const png_color palette[] = {{1, 2, 3}, {4, 5, 6}};
    const png_byte alpha[] = {0, 128};
    if (kind.type == PNG_COLOR_TYPE_PALETTE) {
      png_set_PLTE(png, info, palette, 2);
      png_set_tRNS(png, info, alpha, 2, nullptr);
    }
    png_set_gAMA(png, info, 1.0);  // of the screen, no business of ours
    png_write_info(png, info);
    std::vector<uint8_t> row = kind.row;
    std::vector<png_bytep> rows(3, row.data());
    png_write_image(png, rows.data());
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    std::vector<uint8_t> expected;
    for (int i = 0; i < 3; ++i) {
      expected.insert(expected.end(), kind.pixels.begin(), kind.pixels.end());
    }
    ImageSize size;
    EXPECT_EQ(read_image(folder_.write("a", bytes), size), expected) << kind.bits << kind.type;
    for (size_t length = 8; length < bytes.size(); ++length) {
      EXPECT_THAT(error_of(ErrorKind::kData,
                           [&] { read_image(folder_.write("a", bytes.substr(0, length)), size); }),
                  HasSubstr("cannot be read as a PNG image: "))
          << length;
    }
  }
}

// A few bytes that claim, or unpack to, more than memory holds.
TEST_F(Images, SmallFilesMakeNoLargeImages) {
  const auto message = [&](const std::string& bytes) {
    ImageSize size;
    return error_of(ErrorKind::kData, [&] { read_image(folder_.write("a", bytes), size); });
  };
  std::string png = png_file({1, 1, 1, {0}});
  png[18] = png[22] = 0x70;  // 28672 x 28672, the checksum wrong
  EXPECT_THAT(message(png), HasSubstr("cannot be read as a PNG image: "));
  std::string jpeg = jpeg_file({8, 8, 1, counting(64)});
  const size_t frame = jpeg.find("\xff\xc0");
  jpeg[frame + 5] = jpeg[frame + 7] = 0x70;
  EXPECT_THAT(message(jpeg), HasSubstr("must have at most 2^26 pixels, got 28680 x 28680."));
  EXPECT_THAT(message("P5 16384 65535 255\nx"), HasSubstr("2^26 pixels, got 16384 x 65535."));
  const std::string path = folder_.write("bomb", gzip(std::string(3000, 'x')));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_unpacked(path, 2999); }),
              HasSubstr("bomb must have at most 2999 bytes when it is unpacked."));
  EXPECT_EQ(read_unpacked(path, 3000).size(), 3000u);
  // Behind the last image nothing is read.
  CorpusSpec spec = idx(gzip(idx_file({1, 1, 1}, {0}) + std::string(size_t{1} << 20, '\0')), "");
  spec.labels = folder_.write("labels", idx_file({1}, {0}));
  EXPECT_EQ(error_of_load(spec, {}, {"a", "b"}),
            "[data] images must hold 1 x 1 x 1 bytes behind its header of 16, got more.");
}

TEST_F(Images, ChannelsAreThoseAskedFor) {
  ImageSize colour{2, 3, 3};
  const auto pixels = read_image(folder_.write("grey", png_file(kGrey)), colour);
  ASSERT_EQ(pixels.size(), 18u);
  for (size_t i = 0; i < 18; ++i) EXPECT_EQ(pixels[i], kGrey.pixels[i / 3]) << i;
  ImageSize grey{1, 2, 1};
  const auto luma = read_image(folder_.write("colour", pnm_file(kColour)), grey);
  ASSERT_EQ(luma.size(), 2u);
  // ITU-R BT.601.
  EXPECT_NEAR(luma[0], 0.299 * 255, 1);
  EXPECT_NEAR(luma[1], 0.299 * 10 + 0.587 * 20 + 0.114 * 30, 1);
}

TEST_F(Images, OtherFilesAreNamed) {
  const auto message = [&](const std::string& path, ImageSize size = {}) {
    return error_of(ErrorKind::kData, [&] { read_image(path, size); });
  };
  EXPECT_THAT(message(folder_.path("none.png")), HasSubstr("none.png cannot be opened: No such"));
  EXPECT_THAT(message(folder_.path("")), HasSubstr("is a directory"));
  EXPECT_THAT(message(folder_.write("a.txt", "Some text, not an image.\n")),
              HasSubstr("a.txt cannot be read as a PNG, PNM or JPEG image: "));
  EXPECT_THAT(message(folder_.write("empty.png", "")), HasSubstr("cannot be read as a PNG"));
  const std::string png = png_file(kGrey);
  EXPECT_THAT(message(folder_.write("cut.png", png.substr(0, 45))),
              HasSubstr("cut.png cannot be read as a PNG"));
  EXPECT_THAT(message(folder_.write("a.png", png), {3, 3, 1}),
              HasSubstr("a.png is of 2 x 3 pixels of 1 channel, expected 3 x 3 pixels of 1 "
                        "channel."));
}

// Of a file that is cut the rest would be whatever the memory holds.
TEST_F(Images, PnmFilesHoldWhatTheyPromise) {
  const auto message = [&](const std::string& bytes) {
    ImageSize size;
    return error_of(ErrorKind::kData, [&] { read_image(folder_.write("a.pnm", bytes), size); });
  };
  for (const TestPicture& picture : {kGrey, kColour}) {
    const std::string whole = pnm_file(picture);
    for (size_t length = 3; length < whole.size(); ++length) {
      EXPECT_THAT(message(whole.substr(0, length)), HasSubstr("a.pnm must h")) << length;
    }
  }
  EXPECT_THAT(message("P5 2 1 65535\n1234"),
              HasSubstr("a.pnm must have a largest value from 1 to 255, got 65535."));
  EXPECT_THAT(message("P5 16384 4096 255\nx"),
              HasSubstr("a.pnm must hold 16384 x 4096 x 1 bytes behind its header, got 1."));
  EXPECT_THAT(message("P6 0 1 255\n"), HasSubstr("a width from 1 to 65536, got 0."));
  ImageSize size;
  EXPECT_THAT(read_image(folder_.write("a", "P5#grey\n# 9\n2\t1 255\nab"), size),
              ElementsAre('a', 'b'));
}

// The library knows more formats than the manual names, and was tried with fewer.
TEST_F(Images, OtherFormatsAreRefused) {
  ImageSize size;
  const std::string gif = "GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01";
  for (const std::string& bytes : {std::string("BM0123456789"), gif}) {
    EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_image(folder_.write("a", bytes), size); }),
                HasSubstr("it begins as none of them."));
  }
}

TEST_F(Images, AListNamesLabelsAndFiles) {
  folder_.write("one.png", png_file(kGrey));
  TestPicture other = kGrey;
  other.pixels[0] = 9;
  folder_.write("two.pgm", pnm_file(other));
  const ImageCorpus corpus =
      load_images({list("dog\tone.png\n\ncat\ttwo.pgm\r\ndog\t" + folder_.path("two.pgm") + "\n")});
  EXPECT_EQ(corpus.images(), 3);
  EXPECT_THAT(corpus.label_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(corpus.labels, ElementsAre(1, 0, 1));
  EXPECT_EQ(corpus.image(0)[0], 0);
  EXPECT_EQ(corpus.image(1)[0], 9);
  EXPECT_EQ(corpus.image(2)[5], 250);

  EXPECT_EQ(error_of_load(list("dog one.png\n")),
            "[data] list.tsv:1 must be a label, a tab and the path of an image (or an IDX file, "
            "with labels beside it), got 'dog one.png'.");
  EXPECT_THAT(error_of_load(list(idx_file({2, 1, 2}, {1, 2, 3, 255}))),
              HasSubstr("got 'binary data'."));
  EXPECT_THAT(error_of_load(list("dog\tone.png\ncat\tthree.png\n")),
              HasSubstr("three.png cannot be opened"));
  EXPECT_EQ(error_of_load(list("dog\tone.png\ncow\ttwo.pgm\n"), {}, {"cat", "dog"}),
            "[data] list.tsv:2 must have one of the labels cat, dog, got 'cow'.");
  EXPECT_EQ(error_of_load(list("dog\tone.png\n")),
            "[data] list.tsv must have two labels or more, got only 'dog'.");
}

TEST_F(Images, CorporaOfOneListMustAgree) {
  folder_.write("one.png", png_file(kGrey));
  CorpusSpec first = idx(idx_file({2, 2, 3}, counting(12)), idx_file({2}, {0, 1}));
  const ImageCorpus corpus = load_images({first, list("1\tone.png\n")});
  EXPECT_EQ(corpus.images(), 3);
  EXPECT_THAT(corpus.labels, ElementsAre(0, 1, 1));
  CorpusSpec text;
  text.text = "a";
  EXPECT_THAT(error_of(ErrorKind::kConfig,
                       [&] {
                         load_images({first, text});
                       }),
              HasSubstr("expected images, got a."));
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { open_corpus(first); }),
              HasSubstr("expected a corpus of texts, got images "));
  first.labels = "";
  first.tsv = "b";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { first.validate(); }), HasSubstr("exactly one of"));
  CorpusSpec labels_alone;
  labels_alone.text = "a";
  labels_alone.labels = "b";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { labels_alone.validate(); }),
              HasSubstr("labels need images, got a, b."));
}

TEST_F(Images, TheFormatIsThatOfTheCorpusAndNormalisesIt) {
  ImageCorpus corpus;
  corpus.size = {1, 2, 3};
  corpus.labels = {0, 1};
  corpus.pixels = {0, 10, 7, 255, 20, 7, 51, 30, 7, 102, 40, 7};
  const ImageFormat format = format_of(corpus);
  for (size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (size_t i = c; i < 12; i += 3) sum += corpus.pixels[i] / 255.0;
    for (size_t i = c; i < 12; i += 3) {
      squares += std::pow(corpus.pixels[i] / 255.0 - sum / 4, 2);
    }
    EXPECT_NEAR(format.mean[c], sum / 4, 1e-15);
    EXPECT_NEAR(format.std[c], c == 2 ? 1 : std::sqrt(squares / 4), 1e-15);
  }
  const Tensor pixels = normalised(corpus.pixels, format);
  EXPECT_EQ(pixels.shape(), (Shape{2, 1, 2, 3}));
  const auto values = pixels.to_vector<float>();
  for (size_t i = 0; i < 12; ++i) {
    const size_t c = i % 3;
    EXPECT_NEAR(values[i], (corpus.pixels[i] / 255.0 - format.mean[c]) / format.std[c], 1e-6) << i;
  }
}

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
  corpus.size = size;
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
  ImageBatches batches(corpus, plain(corpus.size),
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
      [&](DataPosition start) { return ImageBatches(corpus, plain(corpus.size), options, start); },
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
                       [&] { ImageBatches(corpus, plain(corpus.size), {.batch_size = 0}); }),
              HasSubstr("batch_size must be at least 1, got 0."));
  EXPECT_THAT(error_of(ErrorKind::kRuntime,
                       [&] {
                         ImageBatches(corpus, plain({2, 1, 2}), {});
                       }),
              HasSubstr("the format is of 2 x 1 pixels of 2 channels"));
}

}  // namespace
}  // namespace tapestry
