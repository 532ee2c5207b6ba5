#include "data/images/images.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/data/files/files.h"
#include "tests/data/images/image_files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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
    EXPECT_EQ(corpus.image_size, (ImageSize{2, 4, 1}));
    EXPECT_EQ(corpus.size(), 3);
    EXPECT_THAT(corpus.labels, ElementsAre(2, 0, 2));
    EXPECT_THAT(corpus.label_names, ElementsAre("0", "1", "2"));
    EXPECT_EQ(corpus.pixels, counting(24));
    const auto second = corpus.image(1);
    EXPECT_EQ(std::vector<uint8_t>(second.begin(), second.end()), counting(8, 8));
  }
  const ImageCorpus colour =
      load_images({idx(idx_file({2, 1, 2, 3}, counting(12)), idx_file({2}, {0, 1}))}, {},
                  {"cat", "dog", "cow"});
  EXPECT_EQ(colour.image_size, (ImageSize{1, 2, 3}));
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

const TestPicture kGreyImage{2, 3, 1, {0, 50, 100, 150, 200, 250}};

TEST_F(Images, NothingIsReadBehindTheLastOfAnIdxFile) {
  CorpusSpec spec = idx(gzip(idx_file({1, 1, 1}, {0}) + std::string(size_t{1} << 20, '\0')), "");
  spec.labels = folder_.write("labels", idx_file({1}, {0}));
  EXPECT_EQ(error_of_load(spec, {}, {"a", "b"}),
            "[data] images must hold 1 x 1 x 1 bytes behind its header of 16, got more.");
}

TEST_F(Images, AListNamesLabelsAndFiles) {
  folder_.write("one.png", png_file(kGreyImage));
  TestPicture other = kGreyImage;
  other.pixels[0] = 9;
  folder_.write("two.pgm", pnm_file(other));
  const ImageCorpus corpus =
      load_images({list("dog\tone.png\n\ncat\ttwo.pgm\r\ndog\t" + folder_.path("two.pgm") + "\n")});
  EXPECT_EQ(corpus.size(), 3);
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
  folder_.write("one.png", png_file(kGreyImage));
  CorpusSpec first = idx(idx_file({2, 2, 3}, counting(12)), idx_file({2}, {0, 1}));
  const ImageCorpus corpus = load_images({first, list("1\tone.png\n")});
  EXPECT_EQ(corpus.size(), 3);
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
  first.records = {"b", &kTsv};
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { first.validate(); }), HasSubstr("exactly one of"));
  CorpusSpec labels_alone;
  labels_alone.text = "a";
  labels_alone.labels = "b";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { labels_alone.validate(); }),
              HasSubstr("labels need images, got a, b."));
}

TEST_F(Images, TheFormatIsThatOfTheCorpusAndNormalisesIt) {
  ImageCorpus corpus;
  corpus.image_size = {1, 2, 3};
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

}  // namespace
}  // namespace tapestry
