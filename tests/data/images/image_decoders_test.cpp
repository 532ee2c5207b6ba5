// Image files of each format: read whole, refused where they are cut, damaged or too large.
#include <gmock/gmock.h>

#include "data/files/unpacked_file.h"
#include "data/images/images.h"
#include "tests/data/files/files.h"
#include "tests/data/images/image_files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ImageFiles : public testing::Test {
 protected:
  TempFolder folder_;
};

const TestPicture kGrey{2, 3, 1, {0, 50, 100, 150, 200, 250}};
const TestPicture kColour{1, 2, 3, {255, 0, 0, 10, 20, 30}};

TEST_F(ImageFiles, PngAndPnmFilesAreRead) {
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

TEST_F(ImageFiles, PngIsReadBack) {
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

TEST_F(ImageFiles, JpegFilesAreReadWholeOrNotAtAll) {
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
TEST_F(ImageFiles, PngFilesOfAllKindsAreRead) {
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
TEST_F(ImageFiles, SmallFilesMakeNoLargeImages) {
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
}

TEST_F(ImageFiles, ChannelsAreThoseAskedFor) {
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

TEST_F(ImageFiles, OtherFilesAreNamed) {
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
TEST_F(ImageFiles, PnmFilesHoldWhatTheyPromise) {
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
  EXPECT_THAT(message("P5 2 1 255\nabc"),
              HasSubstr("a.pnm must hold 2 x 1 x 1 bytes behind its header, got more."));
}

// As other readers of images do: the largest value is white.
TEST_F(ImageFiles, PnmFilesAreScaledByTheirLargestValue) {
  const auto pixels = [&](const std::string& bytes) {
    ImageSize size;
    return read_image(folder_.write("a.pnm", bytes), size);
  };
  EXPECT_THAT(pixels("P5 3 1 2\n" + std::string{0, 1, 2}), ElementsAre(0, 128, 255));
  EXPECT_THAT(pixels("P6 1 1 15\n" + std::string{0, 5, 15}), ElementsAre(0, 85, 255));
  EXPECT_THAT(pixels("P5 2 1 1\n" + std::string{1, 0}), ElementsAre(255, 0));
  EXPECT_THAT(
      error_of(ErrorKind::kData,
               [&] {
                 pixels("P5 2 1 15\n" + std::string{15, 16});
               }),
      HasSubstr("a.pnm must have values from 0 to 15, got 16 in byte 1 behind its header."));
}

// The library knows more formats than the manual names, and was tried with fewer.
TEST_F(ImageFiles, OtherFormatsAreRefused) {
  ImageSize size;
  const std::string gif = "GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01";
  for (const std::string& bytes : {std::string("BM0123456789"), gif}) {
    EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_image(folder_.write("a", bytes), size); }),
                HasSubstr("it begins as none of them."));
  }
}

}  // namespace
}  // namespace tapestry
