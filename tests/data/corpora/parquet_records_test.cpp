#include <gmock/gmock.h>

#include "core/base/error.h"
#include "data/corpora/corpus.h"
#include "data/corpora/records/tagged_reader.h"
#include "tests/data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CorpusSpec parquet(const std::string& name) {
  CorpusSpec spec;
  spec.records = {project_file("tests/fixtures/parquet/" + name + ".parquet"), &kParquet};
  return spec;
}

std::vector<TextPair> pairs_of(const CorpusSpec& spec, FilterCounts& counts) {
  const auto reader = open_corpus(spec);
  std::vector<TextPair> pairs;
  for (TextPair pair; reader->next(pair);) pairs.push_back(pair);
  counts = reader->counts();
  return pairs;
}

TEST(ParquetRecordsTest, NestedFieldsArePairs) {
  CorpusSpec spec = parquet("pairs_zstd_v2");
  spec.source_column = "translation.de";
  spec.target_column = "translation.en";
  FilterCounts counts;
  const auto pairs = pairs_of(spec, counts);
  ASSERT_EQ(pairs.size(), 10U);
  EXPECT_EQ(pairs[5].source, "Ein \"Hund\" 6.\n");
  EXPECT_EQ(pairs[5].target, "A dog 0.");
  EXPECT_THAT(pairs[5].place, HasSubstr("pairs_zstd_v2.parquet:7"));
  EXPECT_THAT(counts.summary(),
              HasSubstr("11 read, 10 kept; dropped: 1 malformed (first " + spec.records.path +
                        ":5: the field 'translation.de' must be a text or a number, got null)"));
  spec.target_column = "translation.fr";
  EXPECT_EQ(
      error_of(ErrorKind::kData, [&] { open_corpus(spec); }),
      concat("[data] ", spec.records.path,
             ": has the columns id, translation.en, translation.de, tokens, tags, messages, "
             "score, half, good, big, nothing; 'translation.fr' is none of them; did you mean "
             "'translation.en'?"));
}

TEST(ParquetRecordsTest, ListsAreTagsAndTalks) {
  FilterCounts counts;
  CorpusSpec talks = parquet("pairs_snappy_v1");
  talks.messages_column = "messages";
  auto pairs = pairs_of(talks, counts);
  ASSERT_EQ(pairs.size(), 3U);  // of those with an answer
  EXPECT_THAT(pairs[0].source, HasSubstr("Question 0?"));
  EXPECT_THAT(pairs[0].source, HasSubstr("Größe €😀"));
  EXPECT_THAT(pairs[0].place, HasSubstr(".parquet:3"));

  CorpusSpec tagged = parquet("pairs_none_v2");
  tagged.tokens_column = "tokens";
  tagged.tags_column = "tags";
  pairs = pairs_of(tagged, counts);
  ASSERT_EQ(pairs.size(), 1U);  // with equally many words and tags
  EXPECT_EQ(pairs[0].source, "a");
  EXPECT_EQ(words_of(pairs[0]).at(0).tag, "7");
}

TEST(ParquetRecordsTest, AFileThatIsTextOrParquetSaysSo) {
  CorpusSpec spec = parquet("refused_lz4");
  spec.text_column = "text";
  spec.records.format = &kJsonl;
  FilterCounts counts;
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { pairs_of(spec, counts); }),
              HasSubstr("line 1 looks like Parquet: use parquet"));
}

}  // namespace
}  // namespace tapestry
