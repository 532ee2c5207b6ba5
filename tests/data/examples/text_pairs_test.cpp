#include "data/examples/text_pairs.h"

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"

namespace tapestry {
namespace {

using testing::ElementsAre;

class TextPairs : public testing::Test {
 protected:
  TextPairCorpus load(const std::string& lines, CorpusOptions options = {}, CorpusSpec spec = {}) {
    spec.records = {folder_.write("pairs.tsv", lines), &kTsv};
    const auto words = std::make_shared<const WordTokenizer>();
    return load_text_pairs({spec}, {words, words}, options);
  }

  TempFolder folder_;
};

TEST_F(TextPairs, BothSidesAreFramedRows) {
  const TextPairCorpus corpus = load("a bb\tccc\na\ta bb\n");
  BatchOptions options{.batch_type = "sentences", .batch_size = 2, .shuffle = false};
  TextPairBatches batches(corpus, options);
  EXPECT_EQ(batches.batches_in_epoch(), 1);
  const TextPairBatch batch = batches.next();
  EXPECT_EQ(batch.rows, 2);
  for (int64_t row = 0; row < 2; ++row) {
    const bool first = batch.indices[static_cast<size_t>(row)] == 0;
    EXPECT_EQ(batch.source.lengths.to_vector<int32_t>()[static_cast<size_t>(row)], first ? 4 : 3);
    EXPECT_EQ(batch.target.lengths.to_vector<int32_t>()[static_cast<size_t>(row)], first ? 3 : 4);
  }
  EXPECT_EQ(batch.source.tokens, 7);
  EXPECT_EQ(batch.source.ids.shape(), (Shape{2, 4}));
}

TEST_F(TextPairs, EqualTextsHaveEqualNumbers) {
  const TextPairCorpus corpus = load("a\tbb\nccc\tdddd\neeeee\tbb\na\tffffff\n");
  EXPECT_THAT(corpus.source_numbers, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(corpus.target_numbers, ElementsAre(0, 1, 0, 2));
}

TEST_F(TextPairs, TheFrameCountsForTheLength) {
  CorpusOptions options;
  options.max_length = 4;
  const TextPairCorpus corpus = load("a b\tc d\na b c\td\n", options);
  EXPECT_EQ(corpus.size(), 1);
  EXPECT_EQ(corpus.counts.of(Drop::kOverlong), 1);
}

TEST_F(TextPairs, NegativesStandBesideTargets) {
  CorpusSpec spec;
  spec.negative_column = "3";
  CorpusOptions options{.max_length = 4, .overlong = "truncate"};
  const TextPairCorpus corpus =
      load("a\tbb\tccc\na bb\tccc\tbb bb bb\na\tbb\tbb\na\tbb\n", options, spec);
  ASSERT_EQ(corpus.size(), 2);
  EXPECT_EQ(corpus.counts.of(Drop::kMalformed), 1) << "a negative that is the target";
  EXPECT_EQ(corpus.counts.of(Drop::kMissingColumn), 1);
  EXPECT_EQ(corpus.counts.truncated, 1);
  // bb, ccc and ccc, bb bb
  EXPECT_THAT(corpus.target_numbers, ElementsAre(0, 1));
  EXPECT_THAT(corpus.negative_numbers, ElementsAre(1, 2));
  const TextPairBatch batch =
      TextPairBatches(corpus, {.batch_type = "sentences", .batch_size = 2, .shuffle = false})
          .next();
  EXPECT_EQ(batch.negative.ids.shape(), (Shape{2, 4}));
  EXPECT_EQ(batch.negative.tokens, 7);
  EXPECT_TRUE(batch.scores.empty());
  EXPECT_FALSE(TextPairBatches(load("a\tbb\n"), {}).next().negative.ids.defined());
}

TEST_F(TextPairs, ScoresAreNumbers) {
  CorpusSpec spec;
  spec.score_column = "1";
  spec.source_column = "2";
  spec.target_column = "3";
  const TextPairCorpus corpus =
      load("4.5\ta\tbb\n-1e-3\tccc\td\nmuch\ta\tbb\n1e99\ta\tbb\n", {}, spec);
  ASSERT_EQ(corpus.size(), 2);
  EXPECT_EQ(corpus.score(0), 4.5F);
  EXPECT_EQ(corpus.score(1), -1e-3F);
  EXPECT_EQ(corpus.counts.of(Drop::kMalformed), 2);
  spec.negative_column = "4";
  spec.records = {folder_.path("pairs.tsv"), &kTsv};
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { spec.validate(); }),
              testing::HasSubstr("score_column excludes negative_column"));
}

TEST_F(TextPairs, OneTokenizerReadsBothSides) {
  CorpusSpec spec;
  spec.records = {folder_.write("pairs.tsv", "a\tb\n"), &kTsv};
  TokenizerOptions characters;
  characters.type = "char";
  const TokenizerPair two{std::make_shared<const WordTokenizer>(),
                          train_tokenizers(characters, {spec}, 1).target};
  EXPECT_THROW(load_text_pairs({spec}, two, {}), Error);
}

}  // namespace
}  // namespace tapestry
