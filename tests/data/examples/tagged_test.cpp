#include "data/examples/tagged.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int32_t> list(std::span<const int32_t> values) {
  return {values.begin(), values.end()};
}

/// A token for each letter, with its place.
class PlacedLetters : public WordTokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const PlacedToken& token : encode_with_places(text)) ids.push_back(token.id);
    return ids;
  }
  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      if (text[i] >= 'a' && text[i] <= 'z') tokens.push_back({4 + text[i] - 'a', at, at + 1});
    }
    return tokens;
  }
};

class Tagged : public testing::Test {
 protected:
  CorpusSpec conll(const std::string& bytes) {
    CorpusSpec spec;
    spec.conll = folder_.write("a.conll", bytes);
    return spec;
  }
  CorpusSpec records(const std::string& bytes, const RecordFormat& format) {
    CorpusSpec spec;
    spec.records = {folder_.write(concat("a.", format.name), bytes), &format};
    spec.settle_columns(CorpusSpec::Kind::kTagged);
    return spec;
  }
  TaggedCorpus load(const CorpusSpec& spec, bool whole = true,
                    const std::vector<std::string>& names = {}, CorpusOptions options = {}) {
    return load_tagged({spec}, letters_, options, whole, names);
  }
  // "a/O b/X" of each sentence, words as the place of their first token.
  static std::vector<std::string> words_of(const TaggedCorpus& corpus) {
    std::vector<std::string> lines;
    for (int64_t i = 0; i < corpus.size(); ++i) {
      std::string line;
      for (int64_t word = 0; word < corpus.words(i); ++word) {
        line += concat(line.empty() ? "" : " ", corpus.first_tokens[i][static_cast<size_t>(word)],
                       '/', corpus.label_names[static_cast<size_t>(corpus.label(i, word))]);
      }
      lines.push_back(line);
    }
    return lines;
  }

  TempFolder folder_;
  PlacedLetters letters_;
};

TEST_F(Tagged, LinesOfColumnsAreWordsAndBlankLinesEndASentence) {
  const auto corpus = load(
      conll("-DOCSTART- -X- O O\n\nab N I B-A\ncde\tV  I\tO\r\n\n\n-DOCSTART- -X- O O\nf N I B-B\n"
            "? . O O\n\nbad\n x N I O\n\ng N I O"));
  EXPECT_THAT(corpus.label_names, ElementsAre("B-A", "B-B", "O"));
  EXPECT_THAT(words_of(corpus), ElementsAre("0/B-A 2/O", "0/B-B -1/O", "0/O"));
  EXPECT_THAT(list(corpus.tokens[0]), ElementsAre(4, 5, 6, 7, 8));
  EXPECT_EQ(corpus.counts.read, 4);
  EXPECT_EQ(corpus.counts.of(Drop::kMissingColumn), 1);
  EXPECT_THAT(corpus.counts.summary(), HasSubstr("a.conll:11: 1 column, expected 4"));
}

// The last column of other lines is no tag: of comments, and of words with white space.
TEST_F(Tagged, LinesWithOtherColumnsAreCommentsOrDropped) {
  const auto corpus = load(
      conll("# id = 1\n# text = ab c\nab O\n# O\n#x B-A\n\n#\nd O\n\nnew york B-A\nd O\n\ne O\n"));
  EXPECT_THAT(words_of(corpus), ElementsAre("0/O -1/O 2/B-A", "0/O", "0/O"));
  EXPECT_THAT(corpus.counts.summary(), HasSubstr("a.conll:10: 3 columns, expected 2"));
  // A comment may have as many columns as a word, but has other tabs.
  CorpusSpec spec = conll("# text = a\n1\tab\tx\tO\n2\tc\tx\tO\n\n#\ta b c\n1\td\tx\tB-A\n");
  spec.tokens_column = "2";
  EXPECT_THAT(words_of(load(spec)), ElementsAre("0/O 2/O", "0/B-A"));
}

TEST_F(Tagged, ColumnsAreChosenByNumbers) {
  CorpusSpec spec = conll("1 ab N B-A\n2 c V O\n");
  spec.tokens_column = "2";
  spec.tags_column = "3";
  EXPECT_THAT(words_of(load(spec)), ElementsAre("0/N 2/V"));
  spec.tags_column = "2";
  EXPECT_ANY_THROW(load(spec));
  spec.tags_column = "word";
  EXPECT_ANY_THROW(load(spec));
}

TEST_F(Tagged, RecordsHaveLists) {
  const auto expected = ElementsAre("0/B-A 1/O", "0/O");
  EXPECT_THAT(words_of(load(records(R"({"tokens": ["a", "b c"], "tags": ["B-A", "O"]}
{"tokens": ["d", "e"], "tags": ["O"]}
{"tokens": "d", "tags": ["O"]}
{"tokens": [null], "tags": ["O"]}
{"tokens": [["d"]], "tags": ["O"]}
{"tokens": [], "tags": []}
{"tokens": ["d"], "tags": ["O"]}
)",
                                    kJsonl))),
              expected);
  EXPECT_THAT(words_of(load(records("a b\tB-A O\nd\tO\n", kTsv))), expected);
  const std::string numbers =
      "{\"ner_tags\": [1, 0], \"tokens\": [\"a\", \"b\"]}\n"
      "{\"ner_tags\": [0], \"tokens\": [\"d\"]}\n";
  EXPECT_THAT(words_of(load(records(numbers, kJsonl), true, {"O", "B-A"})), expected);
  try {
    load(records(numbers, kJsonl));
    FAIL() << "numbers are no names";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has numbers for tags: data.labels must name them"));
  }
}

// Rows have five letters at most: sentences are cut in front of words, and a long word is cut.
TEST_F(Tagged, ALongSentenceIsReadInWindows) {
  const CorpusSpec spec = conll("ab O\ncde B-A\nf O\nghijklm O\nn B-A\n");
  CorpusOptions options;
  options.max_length = 7;
  const auto corpus = load(spec, /*whole=*/true, {}, options);
  std::vector<std::pair<int64_t, int64_t>> windows;
  for (const auto& window : corpus.windows) windows.emplace_back(window.first, window.count);
  EXPECT_THAT(windows,
              ElementsAre(std::pair(0, 5), std::pair(5, 1), std::pair(6, 5), std::pair(11, 3)));
  EXPECT_THAT(corpus.parts, ElementsAre(4));
  const std::vector<int64_t> rows = {0, 3};
  const TaggedBatch batch = make_tagged_batch(corpus, rows);
  EXPECT_THAT(batch.ids.to_vector<int32_t>(), ElementsAre(kBosId, 4, 5, 6, 7, 8, kEosId, kBosId, 15,
                                                          16, 17, kEosId, kPadId, kPadId));
  EXPECT_THAT(batch.labels.to_vector<int32_t>(),
              ElementsAre(-1, 1, -1, 0, -1, -1, -1, -1, -1, -1, 0, -1, -1, -1));
  EXPECT_EQ(batch.tokens, 12);
  const TaggedBatch second = rows_of(batch, 1, 2);
  EXPECT_EQ(second.tokens, 5);
  EXPECT_THAT(second.windows, ElementsAre(3));
  options.overlong = "truncate";
  EXPECT_THAT(words_of(load(spec, /*whole=*/false, {}, options)),
              ElementsAre("0/O 2/B-A -1/O -1/O -1/B-A"));
  options.overlong = "drop";
  EXPECT_ANY_THROW(load(spec, /*whole=*/false, {}, options));
}

TEST_F(Tagged, WordsInMemoryHaveThePlacesOfAFile) {
  const auto corpus = encode_words({{"ab", "cde"}, {"?", "f"}}, letters_, 7);
  EXPECT_THAT(list(corpus.first_tokens[0]), ElementsAre(0, 2));
  EXPECT_THAT(list(corpus.first_tokens[1]), ElementsAre(-1, 0));
  EXPECT_EQ(corpus.windows.size(), 2u);
}

}  // namespace
}  // namespace tapestry
