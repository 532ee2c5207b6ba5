#include "data/corpora/corpus.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "core/cpu/parallel.h"
#include "data/batches/batching.h"
#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"

namespace tapestry {
namespace {

using std::string_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

CorpusSpec parallel(const std::string& source, const std::string& target) {
  CorpusSpec spec;
  spec.source = source;
  spec.target = target;
  return spec;
}

using Texts = std::vector<std::pair<std::string, std::string>>;

Texts read_all(const CorpusSpec& spec, FilterCounts* counts = nullptr) {
  const auto reader = open_corpus(spec);
  Texts texts;
  for (TextPair pair; reader->next(pair);) texts.emplace_back(pair.source, pair.target);
  if (counts != nullptr) *counts = reader->counts();
  return texts;
}

// A pair of files, clean except for what a test puts into the source.
class DirtyCorpus : public testing::Test {
 protected:
  CorpusSpec spec(const std::string& source, const std::string& target) {
    return parallel(folder_.write("train.en", source), folder_.write("train.de", target));
  }
  // The pairs that are kept; counts_ has the drops.
  Texts read(const std::string& source, const std::string& target) {
    return read_all(spec(source, target), &counts_);
  }
  // Expects only this reason for drops, with its count and first line.
  void expect_dropped(Drop reason, int64_t count, int64_t line) {
    EXPECT_EQ(counts_.of(reason), count);
    EXPECT_EQ(counts_.total_dropped(), count);
    EXPECT_EQ(counts_.kept + count, counts_.read);
    EXPECT_THAT(counts_.first[static_cast<size_t>(reason)] + ':',
                HasSubstr("train.de:" + std::to_string(line) + ':'));
  }

  TempFolder folder_;
  FilterCounts counts_;
};

std::vector<float> weights_of(const CorpusSpec& spec, FilterCounts* counts) {
  const auto reader = open_corpus(spec);
  std::vector<float> weights;
  for (TextPair pair; reader->next(pair);) weights.push_back(pair.weight);
  *counts = reader->counts();
  return weights;
}

TEST_F(DirtyCorpus, PairsHaveTheWeightsOfAFile) {
  CorpusSpec weighted = spec("a\nb\nc\nd\ne\nf\n", "A\nB\nC\nD\nE\nF\n");
  weighted.pair_weights = folder_.write("weights", "2\n 0.25\r\n0\nhigh\n-1\n1e3\n");
  EXPECT_THAT(weights_of(weighted, &counts_), ElementsAre(2, 0.25, 1000));
  EXPECT_EQ(counts_.of(Drop::kNoWeight), 1);
  EXPECT_EQ(counts_.of(Drop::kMalformed), 2);
  EXPECT_THAT(counts_.summary(), HasSubstr("1 weight_0 (first "));
  EXPECT_THAT(counts_.summary(),
              HasSubstr("train.de:4: the weight must be a number from 0 to 1e+06, got 'high')"));
  // Of a grid on which sums are exact.
  weighted.pair_weights = folder_.write("weights", "0.1\n0.7\n1e-9\n3\n3\n3\n");
  const std::vector<float> rounded = weights_of(weighted, &counts_);
  ASSERT_EQ(rounded.size(), 5u);
  for (const float weight : rounded) EXPECT_EQ(std::fmod(weight, 0x1p-20F), 0) << weight;
  EXPECT_NEAR(rounded[0], 0.1, 1e-6);
  weighted.pair_weights = folder_.write("weights", "2\n1\n");
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { weights_of(weighted, &counts_); }),
              HasSubstr("weights has 2."));
}

TEST_F(DirtyCorpus, PairsHaveTheWeightsOfAColumn) {
  CorpusSpec records;
  records.records = {folder_.write("pairs", R"({"source": "a", "target": "A", "score": 0.5}
{"source": "b", "target": "B", "score": "3"}
{"source": "c", "target": "C"}
{"source": "d", "target": "D", "score": null}
)"),
                     &kJsonl};
  records.pair_weight_column = "score";
  EXPECT_THAT(weights_of(records, &counts_), ElementsAre(0.5, 3));
  EXPECT_EQ(counts_.of(Drop::kMissingColumn), 1);
  EXPECT_EQ(counts_.of(Drop::kMalformed), 1);
  CorpusSpec table;
  table.records = {folder_.write("table", "a\tA\t7\nb\tB\n"), &kTsv};
  table.pair_weight_column = "3";
  EXPECT_THAT(weights_of(table, &counts_), ElementsAre(7));
  table.pair_weight_column = "2";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { weights_of(table, &counts_); }),
              HasSubstr("pair_weight_column must differ from target_column"));
  table.pair_weight_column.clear();
  table.pair_weights = "f";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { weights_of(table, &counts_); }),
              HasSubstr("pair_weights stand beside source and target"));
}

TEST_F(DirtyCorpus, WeightsReachTheRowsOfBatches) {
  const WordTokenizer words;
  const auto one = std::make_shared<const WordTokenizer>(words);
  CorpusSpec weighted = spec("a\nb b\nc\n", "A\nB B B\nC\n");
  weighted.pair_weights = folder_.write("weights", "2\n0.5\n0\n");
  const std::string cache = folder_.write("cache", "");
  for (const bool again : {false, true}) {
    const ParallelCorpus corpus = load_parallel({weighted}, {one, one}, {}, {.cache = cache});
    EXPECT_EQ(corpus.from_cache, again);
    ASSERT_EQ(corpus.size(), 2);
    const std::vector<int64_t> rows = {1, 0};
    const TranslationBatch batch = make_translation_batch(corpus, rows);
    EXPECT_THAT(batch.target_weights.to_vector<float>(),
                ElementsAre(0.5, 0.5, 0.5, 0.5, 2, 2, 2, 2));
    EXPECT_EQ(batch.target_weight(), 0.5 * 4 + 2 * 2);
  }
  weighted.pair_weights.clear();
  const ParallelCorpus plain = load_parallel({weighted}, {one, one}, {}, {.cache = cache});
  const TranslationBatch batch = make_translation_batch(plain, std::vector<int64_t>{0, 1});
  EXPECT_FALSE(batch.target_weights.defined());
  EXPECT_EQ(batch.target_weight(), batch.target_tokens);
}

TEST_F(DirtyCorpus, EachOfSeveralCorporaHasItsCounts) {
  const auto one = std::make_shared<const WordTokenizer>();
  const CorpusSpec first =
      parallel(folder_.write("1.en", "a\n\nb\n"), folder_.write("1.de", "A\nB\nC\n"));
  const CorpusSpec second = parallel(folder_.write("2.en", "a\n"), folder_.write("2.de", "A\n"));
  const std::string cache = folder_.write("cache", "");
  for (const bool again : {false, true}) {
    const FilterCounts counts =
        load_parallel({first, second}, {one, one}, {}, {.cache = cache}).counts;
    EXPECT_EQ(counts.read, 4) << again;
    ASSERT_EQ(counts.of_corpora.size(), 2u);
    EXPECT_EQ(counts.of_corpora[0].corpus, first.str());
    EXPECT_EQ(counts.of_corpora[0].of(Drop::kEmpty), 1);
    EXPECT_EQ(counts.of_corpora[1].total_dropped(), 0);
    EXPECT_EQ(counts.of_corpora[1].kept, 1);
  }
  EXPECT_TRUE(load_parallel({second}, {one, one}, {}).counts.of_corpora.empty());
}

TEST_F(DirtyCorpus, NulBytesDropThePair) {
  EXPECT_THAT(read("a\nb\0b\nc\n"s, "A\nB\nC\n"), ElementsAre(Pair("a", "A"), Pair("c", "C")));
  expect_dropped(Drop::kNulByte, 1, 2);
  EXPECT_THAT(read("a\nb\n", "A\0\nB\n"s), ElementsAre(Pair("b", "B")));
  expect_dropped(Drop::kNulByte, 1, 1);
}

TEST_F(DirtyCorpus, LoneCarriageReturnDoesNotShiftPairs) {
  EXPECT_THAT(read("a\rx\nb\n", "A\nB\n"), ElementsAre(Pair("a\rx", "A"), Pair("b", "B")));
  EXPECT_EQ(counts_.total_dropped(), 0);
}

TEST_F(DirtyCorpus, CarriageReturnLineFeedOnOneSide) {
  EXPECT_THAT(read("a\r\nb\r\n", "A\nB\n"), ElementsAre(Pair("a", "A"), Pair("b", "B")));
}

TEST_F(DirtyCorpus, UnicodeLineSeparatorDoesNotShiftPairs) {
  EXPECT_THAT(read("a\u2028x\u2029y\u0085z\nb\n", "A\nB\n"),
              ElementsAre(Pair("a\u2028x\u2029y\u0085z", "A"), Pair("b", "B")));
}

TEST_F(DirtyCorpus, ByteOrderMark) {
  EXPECT_THAT(read("\xEF\xBB\xBF"s + "a\nb\n", "A\nB\n"),
              ElementsAre(Pair("a", "A"), Pair("b", "B")));
}

TEST_F(DirtyCorpus, IllFormedUtf8DropsThePair) {
  EXPECT_THAT(read("a\nb\xFF\nc\nd\n", "A\nB\nC\nD\xC3\n"),
              ElementsAre(Pair("a", "A"), Pair("c", "C")));
  expect_dropped(Drop::kInvalidUtf8, 2, 2);
}

TEST_F(DirtyCorpus, EmptyLinesDropThePair) {
  EXPECT_THAT(read("a\n\nc\n \t\u00A0\u3000\ne\n", "A\nB\n\nD\nE\n"),
              ElementsAre(Pair("a", "A"), Pair("e", "E")));
  expect_dropped(Drop::kEmpty, 3, 2);
}

TEST_F(DirtyCorpus, MegabyteLineIsOverlong) {
  std::string megabyte;
  while (megabyte.size() < (1 << 20)) megabyte += "word ";
  const auto pair = spec("a\n" + megabyte + "\nc\n", "A\nB\nC\n");
  const auto corpus = load_parallel({pair}, word_tokenizers(), {});
  EXPECT_EQ(corpus.size(), 2);
  counts_ = corpus.counts;
  expect_dropped(Drop::kOverlong, 1, 2);
}

TEST_F(DirtyCorpus, MissingFinalNewline) {
  EXPECT_THAT(read("a\nb", "A\nB\n"), ElementsAre(Pair("a", "A"), Pair("b", "B")));
}

TEST_F(DirtyCorpus, OneLineMoreOnASideIsAnError) {
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read("a\nb\nc\n", "A\nB\n"); }),
              testing::MatchesRegex("\\[data\\] .*train.en has 3 lines, .*train.de has 2\\."));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read("a\n", "A\nB\n\n\n"); }),
              testing::MatchesRegex("\\[data\\] .*train.en has 1 lines, .*train.de has 4\\."));
}

TEST_F(DirtyCorpus, EmptyFileIsAnError) {
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read("a\n", ""); }),
              HasSubstr("train.de is empty, expected lines of text."));
}

TEST_F(DirtyCorpus, DirectoryIsAnError) {
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] { read_all(parallel(folder_.write("a", "a\n"), folder_.path(""))); }),
              HasSubstr("is a directory, expected a file."));
}

TEST_F(DirtyCorpus, MissingFileIsAnError) {
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] { read_all(parallel(folder_.path("no"), folder_.path("no"))); }),
              HasSubstr("no cannot be opened"));
}

TEST_F(DirtyCorpus, TruncatedGzipIsAnError) {
  const std::string packed = gzip("a\nb\nc\n");
  EXPECT_THAT(
      error_of(ErrorKind::kData, [&] { read(packed.substr(0, packed.size() - 3), "A\nB\nC\n"); }),
      HasSubstr("train.en is a truncated gzip file"));
}

TEST_F(DirtyCorpus, NothingLeftIsAnErrorWithTheCounts) {
  const auto binary = spec("x\xFFy\na\0\nb\0\n"s, "A\nA\nA\n");
  EXPECT_THAT(
      error_of(ErrorKind::kData, [&] { load_parallel({binary}, word_tokenizers(), {}); }),
      testing::AllOf(HasSubstr("leaves no sentence: 3 read, 0 kept; dropped: 1 invalid_utf8"),
                     HasSubstr("2 nul_byte")));
}

// What is empty, or no example by the rules of its format, is no loss.
TEST(FilterCountsTest, MoreThanOneInAHundredThatIsDamagedIsALoss) {
  FilterCounts counts;
  counts.read = 300;
  for (int i = 0; i < 3; ++i) counts.drop(Drop::kInvalidUtf8, "train.de:3");
  for (int i = 0; i < 50; ++i) counts.drop(Drop::kEmpty, "train.de:4");
  EXPECT_EQ(counts.loss(), "");
  counts.drop(Drop::kOverlong, "train.de:9");
  EXPECT_EQ(counts.loss(),
            "4 of 300 examples are left out, 1.3 %: 3 invalid_utf8 (first train.de:3), 1 overlong "
            "(first train.de:9)");
}

TEST(FilterCountsTest, SummaryNamesReasonsAndFirstPlaces) {
  FilterCounts counts;
  counts.read = 10;
  counts.kept = 7;
  counts.drop(Drop::kEmpty, "train.de:3");
  counts.drop(Drop::kOverlong, "train.de:4");
  counts.drop(Drop::kEmpty, "train.de:9");
  EXPECT_EQ(counts.summary(),
            "10 read, 7 kept; dropped: 2 empty (first train.de:3), 1 overlong (first train.de:4)");
  FilterCounts more;
  more.read = more.kept = 5;
  more.truncated = 1;
  more.other_split = 2;
  more.add(counts);
  EXPECT_EQ(more.summary(),
            "15 read, 12 kept (1 truncated), 2 in other splits; dropped: 2 empty "
            "(first train.de:3), 1 overlong (first train.de:4)");
}

TEST(Tsv, TakesTheColumnsAskedFor) {
  TempFolder folder;
  CorpusSpec spec;
  spec.records = {folder.write("a.tsv", "1\ta\tA\n2\tb\n3\tc \"x\tC\textra\r\n\n4\t\tD\n5\te\tE"),
                  &kTsv};
  spec.source_column = "3";
  spec.target_column = "2";
  FilterCounts counts;
  EXPECT_THAT(read_all(spec, &counts),
              ElementsAre(Pair("A", "a"), Pair("C", "c \"x"), Pair("E", "e")));
  EXPECT_EQ(counts.read, 6);
  EXPECT_EQ(counts.of(Drop::kMissingColumn), 1);
  EXPECT_EQ(counts.of(Drop::kEmpty), 2);
  EXPECT_EQ(counts.first[static_cast<size_t>(Drop::kMissingColumn)], spec.records.path + ":2");
}

TEST(Spec, ContradictionsAreConfigErrors) {
  CorpusSpec none;
  EXPECT_EQ(error_of(ErrorKind::kConfig, [&] { none.validate(); }),
            "[data] a corpus must have exactly one of source and target, tsv, csv, jsonl, parquet, "
            "ding, text, "
            "images, squad, conll, got none.");
  CorpusSpec half;
  half.source = "a.en";
  EXPECT_EQ(error_of(ErrorKind::kConfig, [&] { half.validate(); }),
            "[data] a corpus must have source and target, got only source a.en.");
  CorpusSpec both = parallel("a", "b");
  both.ding = "c";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { both.validate(); }), HasSubstr("got a, b, c."));
  CorpusSpec bad = parallel("a", "b");
  bad.split = "dev";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { bad.validate(); }), HasSubstr("'dev'"));
  bad = parallel("a", "b");
  bad.limit = -1;
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { bad.validate(); }), HasSubstr("-1"));
  CorpusSpec ding;
  ding.ding = "d";
  ding.direction = "en-fr";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { ding.validate(); }), HasSubstr("'en-fr'"));
}

TEST(Split, PartsAreDisjointCompleteAndOfTheSource) {
  TempFolder folder;
  std::string source, target;
  for (int i = 0; i < 6000; ++i) {
    source += "sentence " + std::to_string(i % 5000) + "\n";  // 1000 of them twice
    target += std::to_string(i) + "\n";
  }
  CorpusSpec spec = parallel(folder.write("a", source), folder.write("b", target));
  std::set<std::string> sources[3];
  size_t pairs = 0;
  const char* const names[] = {"train", "valid", "test"};
  for (int part = 0; part < 3; ++part) {
    spec.split = names[part];
    FilterCounts counts;
    for (const auto& [text, other] : read_all(spec, &counts)) {
      sources[part].insert(text);
      ++pairs;
    }
    EXPECT_EQ(counts.read, 6000);
    EXPECT_EQ(counts.kept + counts.other_split, 6000);
  }
  EXPECT_EQ(pairs, 6000u);
  EXPECT_EQ(sources[0].size() + sources[1].size() + sources[2].size(), 5000u);
  EXPECT_NEAR(static_cast<double>(sources[1].size()), 50, 25);
  EXPECT_NEAR(static_cast<double>(sources[2].size()), 50, 25);
}

TEST(Split, IsPinned) {
  // A held-out set must stay the same in all versions, else scores are not comparable. Expected:
  // Python's xxhash, xxh3_64_intdigest(text) % 100 == 1.
  TempFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "sentence " + std::to_string(i) + "\n";
  CorpusSpec spec;
  spec.text = folder.write("a", text);
  spec.split = "valid";
  EXPECT_THAT(read_all(spec), ElementsAre(Pair("sentence 65", ""), Pair("sentence 67", ""),
                                          Pair("sentence 220", ""), Pair("sentence 223", "")));
}

TEST(Limit, StopsEarly) {
  TempFolder folder;
  CorpusSpec spec = parallel(folder.write("a", "a\n\nc\nd\n"), folder.write("b", "A\nB\nC\nD\n"));
  spec.limit = 2;
  EXPECT_THAT(read_all(spec), ElementsAre(Pair("a", "A"), Pair("c", "C")));
}

class Load : public testing::Test {
 protected:
  std::vector<int32_t> ids(std::span<const int32_t> span) { return {span.begin(), span.end()}; }
  TempFolder folder_;
};

TEST_F(Load, ConcatenatesCorporaAndKeepsText) {
  CorpusSpec tsv;
  tsv.records = {folder_.write("c.tsv", "x yy\tXXX\n"), &kTsv};
  const auto corpus = load_parallel(
      {parallel(folder_.write("a", "a bb\n\nccc\n"), folder_.write("b", "A\nB\nCC C\n")), tsv},
      word_tokenizers(), {128, "drop", true});
  ASSERT_EQ(corpus.size(), 3);
  EXPECT_THAT(ids(corpus.source[0]), ElementsAre(5, 6));
  EXPECT_THAT(ids(corpus.target[0]), ElementsAre(5));
  EXPECT_THAT(ids(corpus.source[1]), ElementsAre(7));
  EXPECT_THAT(ids(corpus.target[1]), ElementsAre(6, 5));
  EXPECT_THAT(ids(corpus.source[2]), ElementsAre(5, 6));
  EXPECT_EQ(corpus.source_text[2], "x yy");
  EXPECT_THAT(corpus.target_text.to_strings(), ElementsAre("A", "CC C", "XXX"));
  EXPECT_EQ(corpus.counts.read, 4);
  EXPECT_EQ(corpus.counts.kept, 3);
  EXPECT_EQ(corpus.counts.of(Drop::kEmpty), 1);
}

TEST_F(Load, LengthCountsOneSpecialToken) {
  // 3 and 4 words: 4 and 5 tokens.
  const auto spec =
      parallel(folder_.write("a", "a a a\nb b b b\nc\n"), folder_.write("b", "A\nB\nC C C C\n"));
  const auto dropped = load_parallel({spec}, word_tokenizers(), {4, "drop", false});
  EXPECT_EQ(dropped.size(), 1);
  EXPECT_EQ(dropped.counts.of(Drop::kOverlong), 2);
  EXPECT_EQ(dropped.counts.kept, 1);

  const auto cut = load_parallel({spec}, word_tokenizers(), {4, "truncate", true});
  EXPECT_EQ(cut.size(), 3);
  EXPECT_EQ(cut.counts.truncated, 2);
  EXPECT_EQ(cut.source.length(1), 3);
  EXPECT_EQ(cut.target.length(2), 3);
  EXPECT_EQ(cut.target_text[2], "C C C C");

  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         load_parallel({spec}, word_tokenizers(), {4, "error", false});
                       }),
              HasSubstr("b:2 has 5 source tokens, max_length is 4."));
}

TEST_F(Load, DoesNotDependOnThreads) {
  std::string source, target;
  for (int i = 0; i < 40000; ++i) {
    source += std::to_string(i) + " a\n";
    target += i % 100 == 0 ? "\n" : std::to_string(i * 7) + "\n";
  }
  const auto spec = parallel(folder_.write("a", source), folder_.write("b", target));
  std::vector<int32_t> first;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const auto corpus = load_parallel({spec}, word_tokenizers(), {128, "drop", true});
    ASSERT_EQ(corpus.size(), 39600);
    EXPECT_EQ(corpus.source_text[39599], "39999 a");
    std::vector<int32_t> all;
    for (int64_t i = 0; i < corpus.size(); ++i) {
      for (const int32_t id : corpus.target[i]) all.push_back(id);
    }
    if (first.empty()) first = all;
    EXPECT_EQ(all, first);
  }
  set_num_threads(0);
}

TEST_F(Load, TextTakesTheSourceSide) {
  CorpusSpec text;
  text.text = folder_.write("c", "x y\n\nz\n");
  const auto corpus =
      load_text({text, parallel(folder_.write("a", "p\n"), folder_.write("b", "Q Q\n"))},
                WordTokenizer(), {128, "drop", true});
  ASSERT_EQ(corpus.size(), 3);
  EXPECT_EQ(corpus.tokens.length(0), 2);
  EXPECT_EQ(corpus.text[2], "p");
  EXPECT_EQ(corpus.counts.of(Drop::kEmpty), 1);
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { load_parallel({text}, word_tokenizers(), {}); }),
              HasSubstr("a translation needs two sides"));
}

TEST_F(Load, OptionsAreChecked) {
  const auto load = [&](const CorpusOptions& options) {
    return error_of(ErrorKind::kConfig, [&] { load_parallel({}, word_tokenizers(), options); });
  };
  EXPECT_THAT(load({1, "drop", false}), HasSubstr("max_length must be at least 2, got 1."));
  EXPECT_THAT(load({9, "cut", false}), HasSubstr("'cut'"));
  EXPECT_THAT(load({}), HasSubstr("at least one corpus"));
}

}  // namespace
}  // namespace tapestry
