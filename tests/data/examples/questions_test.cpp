#include "data/examples/questions.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"
#include "tests/data/walks.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

// Words with their places; the space before a word belongs to it, as in SentencePiece.
class PlacingTokenizer : public WordTokenizer {
 public:
  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    for (size_t at = 0; at < text.size();) {
      size_t end = at;
      while (end < text.size() && text[end] == ' ') ++end;
      const size_t word = end;
      while (end < text.size() && text[end] != ' ') ++end;
      tokens.push_back({static_cast<int32_t>(end - word) + 4, static_cast<int64_t>(at),
                        static_cast<int64_t>(end)});
      at = end;
    }
    return tokens;
  }
};

class Questions : public testing::Test {
 protected:
  CorpusSpec jsonl(const std::string& bytes) const {
    CorpusSpec spec;
    spec.records = {folder_.write("q.jsonl", bytes), &kJsonl};
    return spec;
  }
  CorpusSpec squad(const std::string& bytes) const {
    CorpusSpec spec;
    spec.squad = folder_.write("q.json", bytes);
    return spec;
  }
  std::string data_error(const CorpusSpec& spec) const {
    return error_of(ErrorKind::kData, [&] { load_questions({spec}, words_, options_); });
  }

  TempFolder folder_;
  PlacingTokenizer words_;
  QuestionOptions options_;
};

const char* const kSquad = R"({"version": "2.0", "data": [{"title": "t", "paragraphs": [
  {"context": "Ää bb ccc", "qas": [
    {"id": "1", "question": "Q one?", "answers": [
      {"text": "bb", "answer_start": 3}, {"text": "bb ccc", "answer_start": 3}]},
    {"id": "2", "question": "Q?", "is_impossible": true, "answers": []},
    {"id": "3", "question": "Q?", "answers": [{"text": "bb", "answer_start": 2}]},
    {"id": "4", "question": " ", "answers": [{"text": "bb", "answer_start": 3}]}]}]},
  {"paragraphs": [{"context": "dd", "qas": [
    {"id": "5", "question": "Q?", "answers": [{"text": "dd", "answer_start": 0}]}]}]}]})";

TEST_F(Questions, AreReadFromSquadsDocument) {
  FilterCounts counts;
  const auto questions = read_questions(squad(kSquad), counts);
  ASSERT_EQ(questions.size(), 3u);
  EXPECT_EQ(questions[0].id, "1");
  EXPECT_EQ(*questions[0].context, "Ää bb ccc");
  EXPECT_EQ(questions[0].context, questions[1].context);  // the same object
  ASSERT_EQ(questions[0].answers.size(), 2u);
  EXPECT_EQ(questions[0].answers[0].begin, 5);  // bytes: two letters of two
  EXPECT_EQ(questions[0].answers[1].text, "bb ccc");
  EXPECT_TRUE(questions[1].answers.empty());
  EXPECT_EQ(questions[2].id, "5");
  EXPECT_EQ(counts.read, 5);
  EXPECT_EQ(counts.of(Drop::kMalformed), 1);
  EXPECT_EQ(counts.of(Drop::kEmpty), 1);
  EXPECT_THAT(counts.first[static_cast<size_t>(Drop::kMalformed)],
              HasSubstr("q.json:.data[0].paragraphs[0].qas[2]"));
  CorpusSpec two = squad(gzip(kSquad));
  two.limit = 2;
  FilterCounts less;
  EXPECT_EQ(read_questions(two, less).size(), 2u);
}

TEST_F(Questions, SayWhatTheirDocumentLacks) {
  EXPECT_THAT(data_error(squad("{")), HasSubstr("q.json must be JSON, got none."));
  EXPECT_THAT(data_error(squad("{}")), HasSubstr("q.json: must have 'data', as SQuAD's files"));
  EXPECT_THAT(data_error(squad(R"({"data": [{"a": 1, "a": 1}]})")),
              HasSubstr("q.json: an object names 'a' twice."));
  EXPECT_THAT(data_error(squad(R"({"data": 1})")), HasSubstr(".data must be a list"));
  EXPECT_THAT(data_error(squad(R"({"data": [{"paragraphs": [{"context": 1, "qas": []}]}]})")),
              HasSubstr(".data[0].paragraphs[0].context must be a text"));
  EXPECT_THAT(data_error(squad(R"({"data": []})")), HasSubstr("leaves no question: 0 read"));
}

TEST_F(Questions, AreReadFromRecords) {
  FilterCounts counts;
  const auto questions = read_questions(
      jsonl(R"({"context": "ä b", "question": "Q", "answer": "b", "answer_start": 2, "id": 7}
{"context": "ä b", "question": "R", "is_impossible": true}
{"context": "ä b", "question": "S"}
{"context": "ä b", "question": "T", "answer": "c", "answer_start": 2}
{"context": "ä b", "question": "T", "answer": "b", "answer_start": -1}
{"context": "ä b", "question": "T", "answer": "b", "answer_start": "two"}
{"context": "ä b", "question": "T", "answer": "b", "answer_start": 2, "is_impossible": "maybe"}
)"),
      counts);
  ASSERT_EQ(questions.size(), 3u);
  EXPECT_EQ(questions[0].id, "7");
  EXPECT_EQ(questions[0].answers[0].begin, 3);
  EXPECT_EQ(questions[0].context, questions[1].context);
  EXPECT_TRUE(questions[2].answers.empty());
  EXPECT_EQ(counts.of(Drop::kMalformed), 4);
  EXPECT_THAT(data_error(jsonl("\n{\"context\": \"a\"}\n")),
              HasSubstr("q.jsonl:2: has the field context; 'question' is none of them."));
  EXPECT_THAT(
      data_error(jsonl(R"({"context": "a", "question": "b", "answer": "a"})")),
      HasSubstr("q.jsonl:1: has the fields answer, context, question; 'answer_start' is none"));
}

// As `datasets` writes SQuAD.
TEST_F(Questions, MayHaveListsOfAnswers) {
  FilterCounts counts;
  const auto questions = read_questions(
      jsonl(
          R"({"id": "1", "context": "ä b", "question": "Q", "answers": {"text": ["b", "ä b"], "answer_start": [2, 0]}}
{"id": "2", "context": "ä b", "question": "R", "answers": {"text": [], "answer_start": []}}
{"id": "3", "context": "ä b", "question": "S", "answers": {"answer_start": [2], "text": ["c"]}}
{"id": "4", "context": "ä b", "question": "S", "answers": {"answer_start": [2, 0], "text": ["b"]}}
{"id": "5", "context": "ä b", "question": "S", "answers": {"answer_start": ["two"], "text": ["b"]}}
{"id": "6", "context": "ä b", "question": "S", "answers": {"answer_start": 2, "text": "b"}}
{"id": "7", "context": "ä b", "question": "S", "is_impossible": true, "answers": {"text": ["b"], "answer_start": [2]}}
)"),
      counts);
  ASSERT_EQ(questions.size(), 3u);
  ASSERT_EQ(questions[0].answers.size(), 2u);
  EXPECT_EQ(questions[0].answers[0].text, "b");
  EXPECT_EQ(questions[0].answers[0].begin, 3);
  EXPECT_EQ(questions[0].answers[1].text, "ä b");
  EXPECT_TRUE(questions[1].answers.empty());
  EXPECT_EQ(questions[2].id, "7");
  EXPECT_TRUE(questions[2].answers.empty());
  EXPECT_EQ(counts.read, 7);
  EXPECT_EQ(counts.of(Drop::kMalformed), 4);
}

// As SQuAD's own file and many a jsonl have them.
TEST_F(Questions, MayHaveAListOfObjectsAsAnswers) {
  FilterCounts counts;
  const auto questions = read_questions(
      jsonl(
          R"({"id": "1", "context": "ä b", "question": "Q", "answers": [{"text": "b", "answer_start": 2, "by": {"text": "x"}}, {"answer_start": 0, "text": "ä b"}]}
{"id": "2", "context": "ä b", "question": "R", "answers": []}
{"id": "3", "context": "ä b", "question": "S", "answers": [{"answer_start": 2}, {"text": "b", "answer_start": 2}]}
{"id": "4", "context": "ä b", "question": "S", "answers": ["b"]}
{"id": "5", "context": "ä b", "question": "S", "answers": [{"text": ["b"], "answer_start": 2}]}
{"id": "6", "context": "ä b", "question": "S", "answers": [{"text": null, "answer_start": 2}]}
{"id": "7", "context": "ä b", "question": "S", "answers": [[{"text": "b", "answer_start": 2}]]}
{"id": "8", "context": "ä b", "question": "T", "answers": [{"text": "", "answer_start": 0}, {"text": "b", "answer_start": 2}]}
)"),
      counts);
  ASSERT_EQ(questions.size(), 2u);
  ASSERT_EQ(questions[0].answers.size(), 2u);
  EXPECT_EQ(questions[0].answers[0].text, "b");
  EXPECT_EQ(questions[0].answers[1].text, "ä b");
  EXPECT_TRUE(questions[1].answers.empty());
  EXPECT_EQ(counts.of(Drop::kMalformed), 6);
}

// The reason why the second of two records is left out.
std::string reason_of(const CorpusSpec& spec) {
  FilterCounts counts;
  EXPECT_EQ(read_questions(spec, counts).size(), 1u);
  EXPECT_EQ(counts.read, 2);
  for (const Drop drop : {Drop::kMalformed, Drop::kMissingColumn}) {
    if (counts.of(drop) == 1) return counts.first[static_cast<size_t>(drop)];
  }
  return "";
}

// A record without an answer has none; one that tries to have some is an error.
TEST_F(Questions, DoNotLoseMisspeltAnswers) {
  options_.no_answer = true;
  const std::string plain = R"({"context": "ä b", "question": "Q", "answers": null})";
  const auto with = [](const std::string& answers) {
    return R"({"context": "ä b", "question": "S", )" + answers + "}\n";
  };
  struct Case {
    std::string answers, expected;
  };
  for (const auto& [answers, expected] : std::vector<Case>{
           {R"("answers": "b")",
            "the field 'answers' must be an object of lists or a list of objects, got a text"},
           {R"("answers": 2)",
            "the field 'answers' must be an object of lists or a list of "
            "objects, got a number"},
           {R"("answers": true)", "got true"},
           {R"("answers": ["b"])", "the field 'answers.text' must be a list of texts"},
           {R"("answers": {"txt": ["b"], "answer_start": [2]})",
            "'answers.text' is none of them; did you mean 'answers.txt'?"},
           {R"("answers": {"text": ["b"], "answer_starts": [2]})",
            "has the fields answers, answers.answer_starts, answers.text, context, question; "
            "'answers.answer_start' is none of them; did you mean 'answers.answer_starts'?"},
           {R"("answers": {})", "'answers.text' is none of them"},
           {R"("answers": [{"txt": "b", "start": 2}])",
            "the field 'answers.text' must be a list of texts, got a list of objects that lack it"},
           {R"("anwsers": {"text": ["b"], "answer_start": [2]})",
            "'answers' is none of them; 'anwsers' looks like it"},
           {R"("answer_text": "b", "answer_start": 2)", "'answer_text' looks like it"},
           {R"("impossible": true)", "'is_impossible' is none of them"}}) {
    const CorpusSpec spec = jsonl(plain + "\n" + with(answers));
    const std::string reason = reason_of(spec);
    EXPECT_THAT(reason, HasSubstr(spec.records.path + ":2: ")) << answers;
    EXPECT_THAT(reason, HasSubstr(expected)) << answers;
  }
  FilterCounts counts;
  const auto questions = read_questions(
      jsonl(with(R"("answers": [])") + with(R"("id": 1)") + with(R"("answers": null)") +
            with(R"("answer": null)") + with(R"("answers": {"text": [], "answer_start": []})")),
      counts);
  EXPECT_EQ(questions.size(), 5u);
  EXPECT_EQ(counts.total_dropped(), 0);
  // A file of nothing else ends the reading.
  EXPECT_THAT(data_error(jsonl(with(R"("answers": "b")"))),
              HasSubstr("q.jsonl:1: the field 'answers' must be an object of lists"));
  EXPECT_THAT(data_error(jsonl(with(R"("anwsers": [])"))), HasSubstr("'anwsers' looks like it"));
}

// Columns that look like answers.
TEST_F(Questions, OfATableDoNotLoseAMisspeltColumn) {
  CorpusSpec spec;
  spec.records = {folder_.write("q.csv", "context,question,anwser\na b,Q,b\n"), &kCsv};
  spec.context_column = "context";
  spec.question_column = "question";
  options_.no_answer = true;
  EXPECT_THAT(data_error(spec),
              HasSubstr("has the fields context, question, anwser; 'answers' is none of them; "
                        "'anwser' looks like it"));
}

TEST_F(Questions, OfParquetDoNotLoseMisspeltAnswers) {
  options_.no_answer = true;
  const auto error = [&](const std::string& name) {
    CorpusSpec spec;
    spec.records = {project_file("tests/fixtures/parquet/" + name + ".parquet"), &kParquet};
    return data_error(spec);
  };
  EXPECT_THAT(error("answers_as_text"),
              HasSubstr("answers_as_text.parquet:1: the field 'answers' must be an object of lists "
                        "or a list of objects, got a text"));
  EXPECT_THAT(error("answers_misspelt_list"),
              HasSubstr("'answers.text' is none of them; did you mean 'answers.txt'?"));
  EXPECT_THAT(error("answers_misspelt"),
              HasSubstr("'answers' is none of them; 'anwsers' looks like it"));
}

TEST_F(Questions, OfATableNeedTheColumnsThatSomebodyNames) {
  const auto csv = [&](const std::string& text, const char* answer) {
    CorpusSpec spec;
    spec.records = {folder_.write("q.csv", text), &kCsv};
    spec.context_column = "context";
    spec.answer_column = answer;
    return spec;
  };
  options_.no_answer = true;
  const std::string text = "context,question,answer\na b,Q,\n";
  EXPECT_EQ(load_questions({csv(text, "")}, words_, options_).questions.size(), 1u);
  EXPECT_THAT(data_error(csv(text, "answr")),
              HasSubstr("'answr' is none of them; did you mean 'answer'?"));
}

TEST_F(Questions, MustBeText) {
  CorpusSpec spec;
  spec.records = {
      folder_.write("q.csv", std::string("context,question\na b,Q\na \xff,Q\na \0b,Q\n", 36)),
      &kCsv};
  spec.context_column = "context";
  FilterCounts counts;
  EXPECT_EQ(read_questions(spec, counts).size(), 1u);
  EXPECT_EQ(counts.of(Drop::kInvalidUtf8), 1);
  EXPECT_EQ(counts.of(Drop::kNulByte), 1);
}

TEST_F(Questions, WithoutAnAnswerMustBeAllowed) {
  const CorpusSpec spec = jsonl(R"({"context": "a b", "question": "Q"})");
  EXPECT_THAT(data_error(spec), HasSubstr("q.jsonl:1 has no answer, which needs no_answer: true."));
  options_.no_answer = true;
  const QuestionCorpus corpus = load_questions({spec}, words_, options_);
  EXPECT_EQ(corpus.windows.at(0).begin_label, 0);
  EXPECT_EQ(corpus.windows.at(0).end_label, 0);
}

TEST_F(Questions, EachOfSeveralFilesHasItsCounts) {
  CorpusSpec one, two;
  one.records = {
      folder_.write("1.jsonl",
                    R"({"context": "a b", "question": "Q", "answer": "a", "answer_start": 0}
{"context": "a b", "question": " ", "answer": "a", "answer_start": 0}
)"),
      &kJsonl};
  two.records = {
      folder_.write("2.jsonl",
                    R"({"context": "c", "question": "Q", "answer": "c", "answer_start": 0}
)"),
      &kJsonl};
  const QuestionCorpus corpus = load_questions({one, two}, words_, options_);
  EXPECT_EQ(corpus.counts.kept, 2);
  ASSERT_EQ(corpus.counts.of_corpora.size(), 2u);
  EXPECT_EQ(corpus.counts.of_corpora[0].corpus, one.str());
  EXPECT_EQ(corpus.counts.of_corpora[0].of(Drop::kEmpty), 1);
  EXPECT_EQ(corpus.counts.of_corpora[1].total_dropped(), 0);
  EXPECT_EQ(corpus.counts.of_corpora[1].kept, 1);
  EXPECT_TRUE(load_questions({one}, words_, options_).counts.of_corpora.empty());
}

TEST_F(Questions, RowsHoldQuestionAndContext) {
  const QuestionCorpus corpus = load_questions(
      {jsonl(
          R"({"context": "a bb ccc dddd", "question": "qqqqq", "answer": "bb ccc", "answer_start": 2}
{"context": "a", "question": "q q", "answer": "a", "answer_start": 0}
)")},
      words_, options_);
  BatchOptions in_order;
  in_order.shuffle = false;
  QuestionBatches batches(corpus, in_order);
  const QuestionBatch batch = batches.next();
  ASSERT_THAT(batch.windows, ElementsAre(1, 0));
  EXPECT_EQ(batch.ids.to_vector<int32_t>(), (Ids{2, 5, 5, 3, 5, 3, 0, 0,  //
                                                 2, 9, 3, 5, 6, 7, 8, 3}));
  EXPECT_EQ(batch.segments.to_vector<int32_t>(), (Ids{0, 0, 0, 0, 1, 1, 0, 0,  //
                                                      0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(batch.lengths.to_vector<int32_t>(), (Ids{6, 8}));
  EXPECT_EQ(batch.labels.to_vector<int32_t>(), (Ids{4, 4, 4, 5}));
  EXPECT_EQ(batch.tokens, 14);
}

TEST_F(Questions, LongContextsHaveWindowsThatOverlap) {
  options_ = {.max_length = 9, .doc_stride = 3};  // 9 - 3 - 1: five tokens of context
  const QuestionCorpus corpus = load_questions(
      {jsonl(
          R"({"context": "a b c d e f g hh i j", "question": "Q", "answer": "f g", "answer_start": 10})")},
      words_, options_);
  std::vector<std::array<int64_t, 4>> windows;
  for (const auto& w : corpus.windows)
    windows.push_back({w.first, w.count, w.begin_label, w.end_label});
  // Row: bos Q eos context eos. The answer is tokens 5 and 6.
  EXPECT_THAT(windows, ElementsAre(std::array<int64_t, 4>{0, 5, 0, 0},  //
                                   std::array<int64_t, 4>{3, 5, 5, 6},  //
                                   std::array<int64_t, 4>{6, 4, 0, 0}));
  int64_t begin = 0;
  EXPECT_EQ(corpus.text_of(0, 5, 7, begin), "f g hh");
  EXPECT_EQ(begin, 10);
  // A stride beyond the window leaves out nothing.
  options_.doc_stride = 100;
  const QuestionCorpus apart = load_questions(
      {jsonl(
          R"({"context": "a b c d e f g h i j", "question": "Q", "answer": "f g", "answer_start": 10})")},
      words_, options_);
  ASSERT_EQ(apart.windows.size(), 2u);
  EXPECT_EQ(apart.windows[1].first, 5);
  EXPECT_EQ(apart.windows[1].count, 5);
}

TEST_F(Questions, MayFillHalfOfARow) {
  options_.max_length = 10;  // (10 - 3) / 2
  const CorpusSpec spec = jsonl(
      R"({"context": "a b", "question": "1 2 3 4", "answer": "a", "answer_start": 0}
{"context": "a b", "question": "1 2 3", "answer": "a", "answer_start": 0}
)");
  const QuestionCorpus dropped = load_questions({spec}, words_, options_);
  EXPECT_EQ(dropped.size(), 1);
  EXPECT_EQ(dropped.counts.of(Drop::kOverlong), 1);
  options_.overlong = "truncate";
  const QuestionCorpus cut = load_questions({spec}, words_, options_);
  EXPECT_EQ(cut.question_ids.length(0), 3);
  EXPECT_EQ(cut.counts.truncated, 1);
  options_.overlong = "error";
  EXPECT_THAT(data_error(spec), HasSubstr("q.jsonl:1 has a question of 4 tokens, with max_length "
                                          "10 at most 3 fit."));
}

TEST_F(Questions, NeedATokenizerThatTellsPlaces) {
  const WordTokenizer none;
  EXPECT_THAT(error_of(ErrorKind::kConfig,
                       [&] {
                         load_questions({squad(R"({"data": [{"paragraphs": [{"context": "a",
                             "qas": [{"question": "b", "answers": [{"text": "a", "answer_start": 0}]}]}]}]})")},
                                        none, options_);
                       }),
              HasSubstr("cannot say where its tokens stand"));
}

// ---- Places of tokens

void expect_places(const Tokenizer& tokenizer, const std::string& text) {
  SCOPED_TRACE(text);
  const std::vector<PlacedToken> tokens = tokenizer.encode_with_places(text);
  Ids ids;
  int64_t end = 0;
  for (const PlacedToken& token : tokens) {
    ids.push_back(token.id);
    EXPECT_GE(token.begin, end);
    EXPECT_GE(token.end, token.begin);
    end = token.end;
  }
  EXPECT_EQ(ids, tokenizer.encode(text));
  EXPECT_LE(end, static_cast<int64_t>(text.size()));
}

TEST(TokenPlaces, OfCharactersAreTheirBytes) {
  const auto tokenizer = character_tokenizer("aä b");
  expect_places(*tokenizer, "ä bxa");
  const std::vector<PlacedToken> tokens = tokenizer->encode_with_places("ä x");
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0].end, 2);
  EXPECT_EQ(tokens[2].begin, 3);
  EXPECT_EQ(tokens[2].id, kUnkId);
}

class PlacesOfPieces : public ::testing::TestWithParam<std::string> {};

TEST_P(PlacesOfPieces, CoverTheText) {
  for (const bool bytes : {false, true}) {
    TokenizerOptions options;
    options.type = GetParam();
    const int64_t pieces = options.type == "bpe" ? 45 : 60;
    options.vocab_size = pieces + (bytes ? 256 : 0);
    options.byte_fallback = bytes;
    int line = 0;
    const auto tokenizer = train_tokenizer(
        options,
        [&](std::string& text) {
          text = line % 2 == 0 ? "the river flows to the große sea" : "see the boats on the river";
          return ++line < 20;
        },
        1);
    for (const char* text :
         {"the river", "  große   river \n", "x the € sea", "ﬁsh ½ sea", "€€se€a", ""}) {
      expect_places(*tokenizer, text);
    }
    // A word's tokens cover it: what was asked for is cut out again.
    const std::string text = "see the große sea";
    const std::vector<PlacedToken> tokens = tokenizer->encode_with_places(text);
    std::string all;
    for (const PlacedToken& token : tokens) {
      all += text.substr(static_cast<size_t>(token.begin),
                         static_cast<size_t>(token.end - token.begin));
    }
    EXPECT_EQ(all, text);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PlacesOfPieces, ::testing::Values("sentencepiece", "bpe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tapestry
