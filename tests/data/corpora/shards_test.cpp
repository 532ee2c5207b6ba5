#include "data/corpora/shards.h"

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "data/examples/points.h"
#include "data/examples/questions.h"
#include "data/images/image_size.h"
#include "tests/data/files/compressed_files.h"
#include "tests/data/files/files.h"
#include "tests/data/images/image_files.h"
#include "tests/data/tokenizers/word_tokenizer.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ShardsTest : public testing::Test {
 protected:
  // "source|target" of each pair, and its place without the folder.
  std::vector<std::string> pairs(const CorpusSpec& spec) {
    std::vector<std::string> all;
    const auto reader = open_corpus(spec);
    places_.clear();
    for (TextPair pair; reader->next(pair);) {
      all.push_back(pair.source + '|' + pair.target);
      places_.push_back(pair.place.substr(pair.place.rfind('/') + 1));
    }
    counts_ = reader->counts();
    return all;
  }
  std::string error_of(const CorpusSpec& spec) {
    try {
      pairs(spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  CorpusSpec sides() const {
    CorpusSpec spec;
    spec.source = folder_.path("*.de");
    spec.target = folder_.path("*.en");
    return spec;
  }
  std::string write(const std::string& name, const std::string& bytes) const {
    return folder_.write(name, bytes);
  }

  TempFolder folder_;
  FilterCounts counts_;
  std::vector<std::string> places_;
};

TEST_F(ShardsTest, RecordsOfEachShardHaveTheirHeaderAndPlace) {
  write("1.csv", "source,target\na,A\nb,B\n");
  write("2.csv.gz", gzip("target,source\nC,c\n\n"));
  write("3.csv.zst", zstd("source,target\nd,D\n"));
  CorpusSpec spec;
  spec.records = {folder_.path("*.csv*"), &kCsv};
  spec.source_column = "source";
  EXPECT_THAT(pairs(spec), ElementsAre("a|A", "b|B", "c|C", "d|D"));
  EXPECT_THAT(places_, ElementsAre("1.csv:2", "1.csv:3", "2.csv.gz:2", "3.csv.zst:2"));
  EXPECT_EQ(counts_.read, 5);
  EXPECT_EQ(counts_.kept, 4);
  EXPECT_THAT(counts_.summary(), HasSubstr("2.csv.gz:3"));
  spec.limit = 3;
  EXPECT_EQ(pairs(spec).size(), 3U);
  EXPECT_EQ(counts_.kept, 3);
  spec.limit = 2;
  EXPECT_EQ(pairs(spec).size(), 2U);
}

TEST_F(ShardsTest, PairsAreAlignedFileByFile) {
  write("1.de", "a\n");
  write("2.de", "b\nc\n");
  write("1.en", "A\n");
  write("2.en", "B\nC\n");
  EXPECT_THAT(pairs(sides()), ElementsAre("a|A", "b|B", "c|C"));
  EXPECT_THAT(places_, ElementsAre("1.en:1", "2.en:1", "2.en:2"));
  write("2.en", "B\n");
  EXPECT_EQ(error_of(sides()), concat("[data] ", folder_.path("2.de"), " has 2 lines, ",
                                      folder_.path("2.en"), " has 1."));
  write("3.en", "D\n");
  EXPECT_EQ(error_of(sides()), concat("[data] target stands for 3 files (", folder_.path("*.en"),
                                      "), but source for 2 (", folder_.path("*.de"), ")."));
}

TEST_F(ShardsTest, APatternWithoutAMatchIsRefused) {
  CorpusSpec spec;
  spec.text = folder_.path("*.txt");
  EXPECT_EQ(error_of(spec), concat("[data] no file matches ", folder_.path("*.txt"), '.'));
}

TEST_F(ShardsTest, DocumentsEndWithTheirFile) {
  write("1.txt", "a\nb\n\nc");
  write("2.txt", "d\n");
  CorpusSpec spec;
  spec.text = folder_.path("?.txt");
  spec.documents = "paragraphs";
  EXPECT_THAT(pairs(spec), ElementsAre("a\nb|", "c|", "d|"));
  spec.documents = "file";
  EXPECT_THAT(pairs(spec), ElementsAre("a\nb\n\nc|", "d\n|"));
}

TEST_F(ShardsTest, WhatIsReadTwiceIsLeftOutOfAllShards) {
  for (const char* name : {"1.de", "1.en", "2.de", "2.en"}) write(name, "same\n");
  CorpusSpec spec = sides();
  EXPECT_EQ(pairs(spec).size(), 2U);
  spec.clean.deduplicate = "pairs";
  EXPECT_EQ(pairs(spec).size(), 1U);
  EXPECT_EQ(counts_.of(Drop::kDuplicate), 1);
}

TEST_F(ShardsTest, QuestionsPointsAndImagesComeInShards) {
  CorpusSpec spec;
  spec.records = {folder_.path("?.jsonl"), &kJsonl};
  for (const char* name : {"1.jsonl", "2.jsonl"}) {
    write(name,
          "{\"context\": \"a b\", \"question\": \"q\", \"answer\": \"b\", "
          "\"answer_start\": 2}\n");
  }
  FilterCounts counts;
  EXPECT_EQ(read_questions(spec, counts).size(), 2U);
  spec.limit = 1;
  EXPECT_EQ(read_questions(spec, counts).size(), 1U);

  CorpusSpec points;
  points.records = {folder_.path("*.csv"), &kCsv};
  write("1.csv", "x,y\n1,2\n3,4\n");
  write("2.csv", "x,y\n5,6\n7,8\n");
  EXPECT_THAT(load_points({points}, {}).x, ElementsAre(1, 3, 5, 7));
  points.limit = 3;
  EXPECT_THAT(load_points({points}, {}).x, ElementsAre(1, 3, 5));

  CorpusSpec images;
  images.images = folder_.path("*.images");
  images.labels = folder_.path("*.labels");
  for (uint8_t i = 0; i < 2; ++i) {
    write(concat(int{i}, ".images"), idx_file({2, 1, 1}, {i, 9}));
    write(concat(int{i}, ".labels"), idx_file({2}, {i, 2}));
  }
  EXPECT_THAT(load_images({images}).pixels, ElementsAre(0, 9, 1, 9));
  EXPECT_THAT(load_images({images}).labels, ElementsAre(0, 2, 1, 2));
  EXPECT_EQ(image_count(images), 4);
  images.limit = 3;
  EXPECT_THAT(load_images({images}).pixels, ElementsAre(0, 9, 1));
}

TEST_F(ShardsTest, TheCacheSeesEachShard) {
  write("1.txt", "a b\n");
  write("2.txt", "b\n");
  CorpusSpec spec;
  spec.text = folder_.path("?.txt");
  const auto tokenizer = word_tokenizers().source;
  const auto from_cache = [&] {
    return load_text({spec}, *tokenizer, {}, {.cache = folder_.path("cache")}).from_cache;
  };
  EXPECT_FALSE(from_cache());
  EXPECT_TRUE(from_cache());
  write("2.txt", "c\n");
  EXPECT_FALSE(from_cache());
  EXPECT_TRUE(from_cache());
  write("3.txt", "c\n");
  EXPECT_FALSE(from_cache());
  EXPECT_TRUE(from_cache());
  std::filesystem::rename(folder_.path("3.txt"), folder_.path("0.txt"));
  EXPECT_FALSE(from_cache());
  std::filesystem::remove(folder_.path("0.txt"));
  EXPECT_FALSE(from_cache());
}

}  // namespace
}  // namespace tapestry
