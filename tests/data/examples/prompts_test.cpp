#include "data/examples/prompts.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

// Tells continuations from beginnings: their ids are greater by 100.
class TwoWaysTokenizer : public WordTokenizer {
 public:
  Ids encode_continuation(std::string_view text) const override {
    Ids ids = encode(text);
    for (int32_t& id : ids) id += 100;
    return ids;
  }
};

class Prompts : public testing::Test {
 protected:
  CorpusSpec spec(const std::string& bytes) const {
    CorpusSpec spec;
    spec.records = {folder_.write("a.jsonl", bytes), &kJsonl};
    spec.prompt = "say {q} now";
    spec.answer = " {a}";
    return spec;
  }
  PromptCorpus load(const std::string& bytes, CorpusOptions options = {}) const {
    return load_prompts({spec(bytes)}, words_, options);
  }
  static Ids ids(std::span<const int32_t> span) { return {span.begin(), span.end()}; }

  TempFolder folder_;
  TwoWaysTokenizer words_;
};

TEST_F(Prompts, AreMadeByTheTemplates) {
  CorpusOptions options;
  options.keep_text = true;
  const PromptCorpus corpus = load(
      "{\"q\": \"bb\", \"a\": \"dddd eeeee\"}\n{\"q\": \" \", \"a\": \" \"}\n{\"q\": 1, \"a\": "
      "22}\n",
      options);
  ASSERT_EQ(corpus.size(), 2);
  EXPECT_EQ(ids(corpus.prompts[0]), (Ids{7, 6, 7}));
  EXPECT_EQ(ids(corpus.answers[0]), (Ids{108, 109}));
  EXPECT_EQ(ids(corpus.prompts[1]), (Ids{7, 5, 7}));
  EXPECT_EQ(ids(corpus.answers[1]), (Ids{106}));
  EXPECT_THAT(corpus.answer_text.to_strings(), ElementsAre(" dddd eeeee", " 22"));
  EXPECT_EQ(corpus.counts.read, 3);
  EXPECT_EQ(corpus.counts.of(Drop::kEmpty), 1);  // a blank answer
}

TEST_F(Prompts, ComeFromColumnsToo) {
  CorpusSpec columns;
  columns.records = {folder_.write("a.tsv", "xx\tyyy\nzz\n\na\tb\n"), &kTsv};
  columns.prompt = "{2}";
  columns.answer = "{1}";
  const PromptCorpus corpus = load_prompts({columns}, words_, {});
  ASSERT_EQ(corpus.size(), 2);
  EXPECT_EQ(ids(corpus.prompts[0]), (Ids{7}));
  EXPECT_EQ(ids(corpus.answers[0]), (Ids{106}));
  EXPECT_EQ(corpus.counts.of(Drop::kMissingColumn), 1);
  EXPECT_EQ(corpus.counts.of(Drop::kEmpty), 1);
  columns.answer = "{0}";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { load_prompts({columns}, words_, {}); }),
              HasSubstr("answer must name the columns by their numbers from {1}, or as the header "
                        "does, got {0}."));
}

TEST_F(Prompts, LackNoField) {
  const std::string message =
      error_of(ErrorKind::kData, [&] { load("\n\n{\"q\": 1, \"answer\": 1}\n"); });
  EXPECT_THAT(message, HasSubstr("a.jsonl:3: has the fields answer, q; 'a' is none of them"));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { load("{\"q\": [1], \"a\": 1}\n"); }),
              HasSubstr("a.jsonl:1: the field 'q' must be a text or a number, got a list."));
}

TEST_F(Prompts, LosePartsOnlyAsAsked) {
  // eos and five words; a long prompt; an answer that does not fit beside eos.
  const std::string text =
      "{\"q\": \"bb\", \"a\": \"c d\"}\n{\"q\": \"e ff ggg\", \"a\": \"c d\"}\n"
      "{\"q\": \"bb\", \"a\": \"1 2 3 4 5 6\"}\n";
  const PromptCorpus dropped = load(text, {6, "drop", false});
  EXPECT_EQ(dropped.size(), 1);
  EXPECT_EQ(dropped.counts.of(Drop::kOverlong), 2);
  const PromptCorpus cut = load(text, {6, "truncate", false});
  ASSERT_EQ(cut.size(), 2);
  EXPECT_EQ(ids(cut.prompts[1]), (Ids{6, 7, 7}));  // "ff ggg now"
  EXPECT_EQ(ids(cut.answers[1]), (Ids{105, 105}));
  EXPECT_EQ(cut.counts.truncated, 1);
  EXPECT_EQ(cut.counts.of(Drop::kOverlong), 1);
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         load(text, {6, "error", false});
                       }),
              HasSubstr("a.jsonl:2 has 8 tokens of prompt and answer, max_length is 6."));
}

TEST_F(Prompts, OnlyAnswersAreTargets) {
  const PromptCorpus corpus =
      load("{\"q\": \"bb\", \"a\": \"dddd eeeee\"}\n{\"q\": \"a bb\", \"a\": \"c\"}\n");
  BatchOptions options;
  options.batch_type = "sentences";
  options.batch_size = 2;
  options.shuffle = false;
  PromptBatches batches(corpus, options);
  const PromptBatch batch = batches.next();
  EXPECT_EQ(batch.ids.shape(), (Shape{2, 6}));
  EXPECT_EQ(batch.ids.to_vector<int32_t>(), (Ids{3, 7, 6, 7, 108, 109,  //
                                                 3, 7, 5, 6, 7, 105}));
  EXPECT_EQ(batch.targets.to_vector<int32_t>(), (Ids{-1, -1, -1, 108, 109, 3,  //
                                                     -1, -1, -1, -1, 105, 3}));
  EXPECT_EQ(batch.lengths.to_vector<int32_t>(), (Ids{6, 6}));
  EXPECT_EQ(batch.prompt_lengths.to_vector<int32_t>(), (Ids{4, 5}));
  EXPECT_EQ(batch.tokens, 12);
  EXPECT_EQ(batch.answer_tokens, 5);
  EXPECT_THAT(batch.indices, ElementsAre(0, 1));
}

TEST_F(Prompts, ShortRowsArePadded) {
  const PromptCorpus corpus =
      load("{\"q\": \"bb\", \"a\": \"d\"}\n{\"q\": \"a\", \"a\": \"1 2 3\"}\n");
  PromptBatches batches(corpus, {});
  EXPECT_EQ(batches.batches_in_epoch(), 1);
  const PromptBatch batch = batches.next();
  EXPECT_EQ(batch.ids.shape(), (Shape{2, 7}));
  const bool first = batch.indices[0] == 0;
  const Ids all = batch.targets.to_vector<int32_t>();
  const Ids row(all.begin() + (first ? 0 : 7), all.begin() + (first ? 7 : 14));
  EXPECT_EQ(row, (Ids{-1, -1, -1, 105, 3, -1, -1}));
}

// A tokenizer of another system: what it puts in front, and its ends, stand once.
TEST_F(Prompts, HaveOneBeginningAndOneEnd) {
  class Framed : public TwoWaysTokenizer {
   public:
    explicit Framed(TextFrame frame) {
      special_.one_text = std::move(frame);
      special_.frames_once = true;
      special_.bos = 8;  // "dddd"
      special_.more_ends = {105};
    }
  };
  const auto rows_of = [&](TextFrame frame) {
    const Framed words(std::move(frame));
    CorpusSpec one =
        spec("{\"q\": \"dddd a\", \"a\": \"22 c\"}\n{\"q\": \"a dddd\", \"a\": \"22\"}\n");
    one.prompt = "{q}";
    const PromptCorpus corpus = load_prompts({one}, words, {});
    BatchOptions options;
    options.batch_type = "sentences";
    options.batch_size = 2;
    options.shuffle = false;
    PromptBatches batches(corpus, options);
    return batches.next();
  };
  const PromptBatch once = rows_of({{8}, {}});
  EXPECT_EQ(once.ids.to_vector<int32_t>(), (Ids{8, 5, 106, 0, 8, 5, 8, 106}));
  EXPECT_EQ(once.targets.to_vector<int32_t>(), (Ids{-1, 106, 105, -1, -1, -1, 106, 3}));
  EXPECT_EQ(once.lengths.to_vector<int32_t>(), (Ids{3, 4}));
  EXPECT_EQ(once.prompt_lengths.to_vector<int32_t>(), (Ids{2, 3}));
  EXPECT_EQ(once.answer_tokens, 4);
  const PromptBatch nothing = rows_of({});
  EXPECT_EQ(nothing.ids.to_vector<int32_t>(), (Ids{8, 5, 106, 5, 8, 106}));
}

// A char tokenizer learns the line end of a prompt, and SentencePiece the words of both parts.
TEST_F(Prompts, TeachTheTokenizerBothParts) {
  CorpusSpec both = spec("{\"q\": \"x\", \"a\": \"yz\"}\n");
  both.prompt = "{q}\nA:";
  TokenizerOptions options;
  options.type = "char";
  const TokenizerPair tokenizers = train_tokenizers(options, {both}, 1);
  EXPECT_TRUE(tokenizers.shared());
  const std::string text = "x\nA: yz";
  EXPECT_EQ(tokenizers.source->decode(tokenizers.source->encode(text)), text);
}

}  // namespace
}  // namespace tapestry
