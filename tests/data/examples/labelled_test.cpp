#include "data/examples/labelled.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Labelled : public testing::Test {
 protected:
  CorpusSpec spec(const std::string& bytes) {
    CorpusSpec spec;
    spec.records = {folder_.write("a.tsv", bytes), &kTsv};
    spec.label_column = "1";
    spec.text_column = "3";
    return spec;
  }
  LabelledCorpus load(const std::string& bytes, const std::vector<std::string>& names = {},
                      CorpusOptions options = {}) {
    return load_labelled({spec(bytes)}, words_, options, names);
  }
  static std::vector<int32_t> values(const LabelledBatch& batch) {
    auto all = batch.ids.to_vector<int32_t>();
    for (const Tensor& part : {batch.lengths, batch.labels}) {
      const auto more = part.to_vector<int32_t>();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  static std::vector<int32_t> labels_of(const LabelledCorpus& corpus) {
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < corpus.size(); ++i) labels.push_back(corpus.label(i));
    return labels;
  }

  TempFolder folder_;
  WordTokenizer words_;
};

TEST_F(Labelled, LabelsAreNumberedInByteOrder) {
  const auto corpus =
      load("pos\t1\ta bb\nneg\t2\tccc\r\npos\t3\t \n\t4\ta\nneg\t5\nneutral\t6\ta\n");
  EXPECT_THAT(corpus.label_names, ElementsAre("neg", "neutral", "pos"));
  EXPECT_THAT(labels_of(corpus), ElementsAre(2, 0, 1));
  EXPECT_EQ(corpus.size(), 3);
  EXPECT_THAT(std::vector<int32_t>(corpus.tokens[0].begin(), corpus.tokens[0].end()),
              ElementsAre(5, 6));
  EXPECT_EQ(corpus.counts.read, 6);
  EXPECT_EQ(corpus.counts.of(Drop::kEmpty), 2);  // a blank text, a blank label
  EXPECT_EQ(corpus.counts.of(Drop::kMissingColumn), 1);
}

TEST_F(Labelled, GivenLabelsKeepTheirNumbers) {
  const auto corpus = load("b\t\tx\n", {"a", "b", "c"});
  EXPECT_THAT(labels_of(corpus), ElementsAre(1));
  EXPECT_THAT(corpus.label_names, ElementsAre("a", "b", "c"));
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         load("b\t\tx\nd\t\tx\n", {"a", "b"});
                       }),
              HasSubstr("a.tsv:2 must have one of the labels a, b, got 'd'."));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { load("b\t\tx\nb\t\ty\n"); }),
              HasSubstr("must have two labels or more, got only 'b'."));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { load("b\t\tx\na\n"); }),
              AllOf(HasSubstr("must have two labels or more, got only 'b'; 2 read, 1 kept; "),
                    HasSubstr("a.tsv:2")));
}

TEST_F(Labelled, ListsOfNamesHaveNoEmptyOnes) {
  CorpusSpec lists =
      spec("b, a\t\tx\n - \t\tx\n,\t\tx\n-,a\t\tx\na,\t\tx\na, ,b\t\tx\n-\t\tx\n a \t\tx\n");
  lists.label_lists = true;
  const LabelledCorpus corpus = load_labelled({lists}, words_, {});
  EXPECT_EQ(corpus.size(), 4);
  EXPECT_EQ(corpus.counts.of(Drop::kMalformed), 4);
  EXPECT_THAT(corpus.counts.summary(),
              HasSubstr("a.tsv:3: must have names with commas between them, or -, for labels, got "
                        "','"));
  const LabelSets labels = label_sets(corpus, {}, "a");
  EXPECT_THAT(labels.names, ElementsAre("a", "b"));
  EXPECT_THAT(labels.of(corpus, 0), ElementsAre(1, 1));
  EXPECT_THAT(labels.of(corpus, 1), ElementsAre(0, 0));
  EXPECT_THAT(labels.of(corpus, 2), ElementsAre(0, 0));
  EXPECT_THAT(labels.of(corpus, 3), ElementsAre(1, 0));
  // A class of another task may be any text.
  EXPECT_THAT(load("-,a\t\tx\n,\t\tx\n").label_names, ElementsAre(",", "-,a"));
}

TEST_F(Labelled, NumbersAreFinite) {
  CorpusSpec numbers =
      spec("1.5\t\tx\nhigh\t\tx\n 2 \t\tx\n1e39\t\tx\n1e999\t\tx\nnan\t\tx\n3x\t\tx\n");
  numbers.label_lists = numbers.label_numbers = true;
  const LabelledCorpus corpus = load_labelled({numbers}, words_, {});
  EXPECT_THAT(corpus.label_names, ElementsAre(" 2 ", "1.5"));
  EXPECT_EQ(corpus.counts.of(Drop::kMalformed), 5);
  EXPECT_THAT(corpus.counts.summary(),
              HasSubstr("a.tsv:2: must have numbers for labels, got 'high'"));
}

TEST_F(Labelled, RowsWithBosAndEosFitMaxLength) {
  const std::string text = "a\t\tx x x\nb\t\tx x\n";
  EXPECT_EQ(load(text, {"a", "b"}, {4, "drop", false}).size(), 1);
  const auto cut = load(text, {}, {4, "truncate", false});
  EXPECT_EQ(cut.tokens.length(0), 2);
  EXPECT_EQ(cut.counts.truncated, 1);
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         load(text, {}, {4, "error", false});
                       }),
              HasSubstr("a.tsv:1 has 5 source tokens, max_length is 4."));
  EXPECT_THAT(error_of(ErrorKind::kConfig,
                       [&] {
                         load(text, {}, {2, "drop", false});
                       }),
              HasSubstr("3 or more, got 2."));
}

TEST_F(Labelled, OtherCorporaAreRefused) {
  CorpusSpec text;
  text.text = "a";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { load_labelled({text}, words_, {}); }),
              HasSubstr("needs a tsv, csv, jsonl or parquet with a label_column, got a."));
  auto labelled = spec("a\t\tx\nb\t\tx\n");
  EXPECT_THAT(
      error_of(ErrorKind::kConfig, [&] { load_parallel({labelled}, word_tokenizers(), {}); }),
      HasSubstr("two sides"));
  EXPECT_EQ(load_text({labelled}, words_, {}).size(), 2);
  labelled.text_column = "1";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { labelled.validate(); }),
              HasSubstr("text_column must differ from label_column, got 1 twice."));
  labelled.text_column = "0";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { labelled.validate(); }),
              HasSubstr("text_column must be at least 1, got 0."));
}

TEST_F(Labelled, BatchHasTheTensorsOfAWorkedExample) {
  const auto corpus = load("b\t\tx yy zzz\na\t\tx\n");
  BatchOptions options;
  options.shuffle = false;
  const auto batch = LabelledBatches(corpus, options).next();
  EXPECT_EQ(batch.ids.shape(), (Shape{2, 5}));
  EXPECT_THAT(batch.ids.to_vector<int32_t>(), ElementsAre(2, 5, 3, 0, 0, 2, 5, 6, 7, 3));
  EXPECT_THAT(batch.lengths.to_vector<int32_t>(), ElementsAre(3, 5));
  EXPECT_THAT(batch.labels.to_vector<int32_t>(), ElementsAre(0, 1));
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.tokens, 8);
  EXPECT_THAT(batch.indices, ElementsAre(1, 0));
}

TEST_F(Labelled, TwoTextsStandInOneRow) {
  CorpusSpec two = spec("b\tx yy\tzzz\na\tx\tx yy yy\na\t \tx\n");
  two.text_column = "2";
  two.text_pair_column = "3";
  const LabelledCorpus corpus = load_labelled({two}, words_, {});
  EXPECT_EQ(corpus.size(), 2);
  EXPECT_EQ(corpus.counts.of(Drop::kEmpty), 1);
  BatchOptions options;
  options.shuffle = false;
  const LabelledBatch batch = LabelledBatches(corpus, options).next();
  // bos, x, yy, eos, zzz, eos and bos, x, eos, x, yy, yy, eos
  EXPECT_THAT(batch.ids.to_vector<int32_t>(),
              ElementsAre(2, 5, 6, 3, 7, 3, 0, 2, 5, 3, 5, 6, 6, 3));
  EXPECT_THAT(batch.segments.to_vector<int32_t>(),
              ElementsAre(0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(batch.lengths.to_vector<int32_t>(), ElementsAre(6, 7));
  EXPECT_THAT(batch.labels.to_vector<int32_t>(), ElementsAre(1, 0));
  EXPECT_EQ(batch.tokens, 13);
  const LabelledBatch second = rows_of(batch, 1, 2);
  EXPECT_THAT(second.segments.to_vector<int32_t>(), ElementsAre(0, 0, 0, 1, 1, 1, 1));
  EXPECT_FALSE(LabelledBatches(load("b\t\tx\na\t\tx\n"), options).next().segments.defined());

  EXPECT_THAT(error_of(ErrorKind::kConfig,
                       [&] {
                         load_labelled({two, spec("b\t\tx\n")}, words_, {});
                       }),
              HasSubstr("all corpora of a list need a text_pair_column, or none"));
  two.text_pair_column = "2";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { two.validate(); }),
              HasSubstr("text_pair_column must differ from text_column, got 2 twice."));
  CorpusSpec pairs;
  pairs.records = {folder_.write("b.tsv", "x\ty\n"), &kTsv};
  pairs.prompt = "{1}";
  pairs.answer = "{2}";
  EXPECT_NO_THROW(pairs.validate());
  pairs.text_pair_column = "2";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { pairs.validate(); }),
              HasSubstr("text_pair_column belongs to texts with labels"));
}

TEST_F(Labelled, TheLongerOfTwoTextsIsCut) {
  const auto kept = [](int64_t first, int64_t second, int64_t most) {
    std::vector<int32_t> one(static_cast<size_t>(first)), two(static_cast<size_t>(second));
    cut_longest_first(one, two, most);
    return std::pair(one.size(), two.size());
  };
  // As the tokenizers 0.22 of Hugging Face cut them.
  EXPECT_EQ(kept(3, 4, 7), std::pair(size_t{3}, size_t{4}));
  EXPECT_EQ(kept(3, 9, 7), std::pair(size_t{3}, size_t{4}));
  EXPECT_EQ(kept(9, 3, 7), std::pair(size_t{4}, size_t{3}));
  EXPECT_EQ(kept(9, 9, 7), std::pair(size_t{3}, size_t{4}));
  EXPECT_EQ(kept(9, 8, 7), std::pair(size_t{4}, size_t{3}));
  EXPECT_EQ(kept(9, 1, 7), std::pair(size_t{6}, size_t{1}));
  EXPECT_EQ(kept(9, 0, 7), std::pair(size_t{7}, size_t{0}));
  CorpusSpec two = spec("a\tx x x x\tx\nb\tx\tx\n");
  two.text_column = "2";
  two.text_pair_column = "3";
  const LabelledCorpus cut = load_labelled({two}, words_, {6, "truncate", false});
  EXPECT_EQ(cut.tokens.length(0), 2);
  EXPECT_EQ(cut.seconds.length(0), 1);
  EXPECT_EQ(cut.counts.truncated, 1);
  EXPECT_EQ(load_labelled({two}, words_, {6, "drop", false}, {"a", "b"}).size(), 1);
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         load_labelled({two}, words_, {6, "error", false});
                       }),
              HasSubstr("a.tsv:1 has 8 source tokens, max_length is 6."));
  EXPECT_THAT(error_of(ErrorKind::kConfig,
                       [&] {
                         load_labelled({two}, words_, {3, "drop", false});
                       }),
              HasSubstr("must be 4 or more, got 3."));
}

TEST_F(Labelled, BatchesCoverTheCorpusAndContinueExactly) {
  std::string bytes;
  for (int i = 0; i < 200; ++i) {
    bytes += "label" + std::to_string(i % 3) + "\t\t";
    for (int word = 0; word <= i * 7 % 20; ++word) bytes += "w ";
    bytes += "\n";
  }
  const auto corpus = load(bytes);
  BatchOptions options;
  options.batch_size = 200;
  LabelledBatches batches(corpus, options);
  std::vector<int> seen(200, 0);
  do {
    const auto batch = batches.next();
    EXPECT_LE(batch.ids.numel(), 200);
    for (const int64_t text : batch.indices) ++seen[static_cast<size_t>(text)];
  } while (batches.position().batch < batches.batches_in_epoch());
  EXPECT_THAT(seen, testing::Each(1));
  expect_resumes([&](DataPosition start) { return LabelledBatches(corpus, options, start); },
                 values);
}

}  // namespace
}  // namespace tapestry
