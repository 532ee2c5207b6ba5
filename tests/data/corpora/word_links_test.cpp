#include "data/corpora/word_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/batches/batching.h"
#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal_of(const std::string& line) {
  return error_of(ErrorKind::kData,
                  [&] { parse_word_links(line, "a b c", " x\ty ", "train.align:7"); });
}

TEST(WordLinks, AreReadAsAlignersAndAnnotatorsWriteThem) {
  EXPECT_THAT(
      parse_word_links("0-0 2-1\t 1?1 1p0 ", "a b c", "x y", "f:1"),
      ElementsAre(WordLink{0, 0}, WordLink{2, 1}, WordLink{1, 1, false}, WordLink{1, 0, false}));
  EXPECT_THAT(parse_word_links("", "a b c", "x y", "f:1"), IsEmpty());
}

TEST(WordLinks, OthersAreErrorsWithTheirPlace) {
  for (const char* const text :
       {"0", "0-", "-0", "0-x", "0-0-1", "0 - 1", "-1-0", "0--1", "0:0", "99999999999-0"}) {
    EXPECT_THAT(refusal_of(text), HasSubstr("[alignment] train.align:7 must have pairs i-j"))
        << text;
  }
  EXPECT_THAT(refusal_of("0-0 3-1"),
              HasSubstr("train.align:7 has the link 3-1 of words from 0 in 3 "
                        "source and 2 target words."));
  EXPECT_THAT(refusal_of("2-2"), HasSubstr("the link 2-2"));
}

TEST(WordLinks, AreThoseOfAllTokensOfBothWords) {
  // Words 0 and 2 of the source have two tokens each; the target's word 1 has none.
  EXPECT_THAT(token_links({{0, 0}, {2, 2}, {1, 1}, {0, 0}}, {0, 0, 1, 2, -1, 2}, {0, -1, 2, 2}),
              ElementsAre(0, 0, 1, 0, 3, 2, 3, 3, 5, 2, 5, 3));
}

// Each word is a token, whose place is known.
class PlacedWords : public WordTokenizer {
 public:
  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    for (const int32_t id : encode(text)) {
      const int64_t begin = tokens.empty() ? 0 : tokens.back().end + 1;
      tokens.push_back({id, begin, begin + id - 4});
    }
    return tokens;
  }
};

class AlignedCorpus : public testing::Test {
 protected:
  CorpusSpec spec(const std::string& source, const std::string& target,
                  const std::string& alignments) {
    CorpusSpec spec;
    spec.source = folder_.write("train.en", source);
    spec.target = folder_.write("train.de", target);
    spec.alignments = folder_.write("train.align", alignments);
    return spec;
  }
  static std::vector<int32_t> links(const ParallelCorpus& corpus, int64_t row) {
    const auto list = corpus.alignments[row];
    return {list.begin(), list.end()};
  }

  TempFolder folder_;
  std::shared_ptr<const PlacedWords> words_ = std::make_shared<const PlacedWords>();
};

// A dropped pair takes its alignment with it, and a cut one the links of the lost tokens.
TEST_F(AlignedCorpus, AlignmentsGoWithTheirPairs) {
  const CorpusSpec aligned =
      spec("a b\n\nc\nd e f g h\n", "A B\nX\nC\nD E F G\n", "0-1 1-0\n\n0-0\n0-0 3-1 2-3 4-2\n");
  CorpusOptions options{.max_length = 4, .overlong = "truncate"};
  const std::string cache = folder_.write("cache", "");
  for (const bool again : {false, true}) {
    const ParallelCorpus cut =
        load_parallel({aligned}, {words_, words_}, options, {.cache = cache});
    EXPECT_EQ(cut.from_cache, again);
    ASSERT_EQ(cut.size(), 3);
    EXPECT_THAT(links(cut, 0), ElementsAre(0, 1, 1, 0));
    EXPECT_THAT(links(cut, 1), ElementsAre(0, 0));
    EXPECT_THAT(links(cut, 2), ElementsAre(0, 0));
  }
  options.overlong = "drop";
  const ParallelCorpus dropped = load_parallel({aligned}, {words_, words_}, options);
  ASSERT_EQ(dropped.size(), 2);
  EXPECT_THAT(links(dropped, 1), ElementsAre(0, 0));
}

TEST_F(AlignedCorpus, BatchesHaveTheSharesOfEachTargetToken) {
  CorpusSpec aligned = spec("a b\nc\n", "A\nC D\n", "0-0 1-0\n0-1\n");
  aligned.pair_weights = folder_.write("weights", "3\n1\n");
  const ParallelCorpus corpus = load_parallel({aligned}, {words_, words_}, {});
  const TranslationBatch batch = make_translation_batch(corpus, std::vector<int64_t>{1, 0});
  ASSERT_EQ(batch.alignment.shape(), Shape({2, 3, 3}));  // with eos
  EXPECT_THAT(batch.alignment.to_vector<float>(), ElementsAre(0, 0, 0, 1, 0, 0, 0, 0, 0,  //
                                                              1.5, 1.5, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(rows_of(batch, 1, 2).alignment.to_vector<float>(),
              ElementsAre(1.5, 1.5, 0, 0, 0, 0, 0, 0, 0));
}

TEST_F(AlignedCorpus, ErrorsNameTheLine) {
  const auto refusal = [&](const std::string& alignments) {
    const CorpusSpec aligned = spec("a b\nc\n", "A\nC D\n", alignments);
    return error_of(ErrorKind::kData, [&] { load_parallel({aligned}, {words_, words_}, {}); });
  };
  EXPECT_THAT(refusal("0-0\n0-2\n"), HasSubstr("train.align:2 has the link 0-2"));
  EXPECT_THAT(refusal("0-0\nx\n"), HasSubstr("train.align:2 must have pairs i-j"));
  EXPECT_THAT(refusal("0-0\n"), HasSubstr("train.align has 1."));
  EXPECT_THAT(refusal("0-0\n0-0\n\n"), HasSubstr("train.align has 3."));
}

}  // namespace
}  // namespace tapestry
