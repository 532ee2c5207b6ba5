#include "data/examples/preferences.h"

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "data/chat/chat_format.h"
#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"

namespace tapestry {
namespace {

using Ids = std::vector<int32_t>;
using testing::ElementsAre;
using testing::HasSubstr;

class Preferences : public testing::Test {
 protected:
  CorpusSpec spec(const std::string& bytes) const {
    CorpusSpec spec;
    spec.records = {folder_.write("a.jsonl", bytes), &kJsonl};
    spec.prompt = "{q}";
    spec.chosen = "{good}";
    spec.rejected = "{bad}";
    return spec;
  }
  CorpusSpec talks(const std::string& bytes) const {
    CorpusSpec spec;
    spec.records = {folder_.write("a.jsonl", bytes), &kJsonl};
    spec.chosen_column = "good";
    spec.rejected_column = "bad";
    spec.chat = std::make_shared<const ChatFormat>(ChatFormat{
        ChatTemplate("{% for m in messages %}{{ m.role + ' ' + m.content + ' . ' }}{% endfor %}"
                     "{% if add_generation_prompt %}assistant {% endif %}",
                     "chat.jinja"),
        "{}", LossOn::kAnswers});
    return spec;
  }
  PreferenceCorpus load(const CorpusSpec& spec, const CorpusOptions& options = {}) const {
    return load_preferences({spec}, words_, options);
  }
  // The lengths of the words of the first example; 0 is an end.
  static Ids words(const TokenLists& lists) {
    Ids lengths;
    for (const int32_t id : lists[0]) lengths.push_back(id == kEosId ? 0 : id - 4);
    return lengths;
  }
  std::string error_of(const CorpusSpec& spec, const CorpusOptions& options = {}) const {
    try {
      load(spec, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  TempFolder folder_;
  WordTokenizer words_;
};

constexpr const char* kTwo = R"({"q": "a b", "good": "c", "bad": "d e f"}
{"q": "b", "good": "d d", "bad": "e"}
)";

TEST_F(Preferences, EachAnswerHasItsRow) {
  const PreferenceCorpus corpus = load(spec(kTwo));
  ASSERT_EQ(corpus.size(), 2);
  BatchOptions options;
  options.shuffle = false;
  options.batch_type = "sentences";
  options.batch_size = 2;
  const PreferenceBatch batch = PreferenceBatches(corpus, options).next();
  ASSERT_EQ(batch.rows, 2);
  ASSERT_EQ(batch.ids.shape(), Shape({4, 6}));
  for (int64_t row = 0; row < 4; ++row) {
    const int64_t example = batch.indices[static_cast<size_t>(row / 2)];
    const auto prompt = corpus.prompts[example];
    const auto answer = (row % 2 == 0 ? corpus.chosen : corpus.rejected)[example];
    EXPECT_EQ(answer.back(), kEosId);
    // The beginning, the prompt, the answer without its end; targets are one place before.
    Ids ids = {kEosId};
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    Ids targets(ids.size() - 1, kNoTarget);
    ids.insert(ids.end(), answer.begin(), answer.end() - 1);
    targets.insert(targets.end(), answer.begin(), answer.end());
    EXPECT_EQ(batch.lengths.to_vector<int32_t>()[static_cast<size_t>(row)],
              static_cast<int32_t>(ids.size()));
    ids.resize(6, words_.special().filler());
    targets.resize(6, kNoTarget);
    EXPECT_EQ(batch.ids.slice(row, row + 1).to_vector<int32_t>(), ids) << row;
    EXPECT_EQ(batch.targets.slice(row, row + 1).to_vector<int32_t>(), targets) << row;
  }
  EXPECT_EQ(batch.tokens, 4 + 6 + 4 + 3);
  const PreferenceBatch second = rows_of(batch, 1, 2);
  EXPECT_EQ(second.ids.to_vector<int32_t>(), batch.ids.slice(2, 4).to_vector<int32_t>());
  EXPECT_EQ(second.indices, std::vector<int64_t>{batch.indices[1]});
  const Ids lengths = batch.lengths.to_vector<int32_t>();
  EXPECT_EQ(second.tokens, lengths[2] + lengths[3]);
}

TEST_F(Preferences, LongPromptsAreCutForBothAnswersAlike) {
  const auto corpus = load(spec(R"({"q": "a bb ccc dddd eeeee", "good": "c", "bad": "dd e"})"
                                "\n"),
                           {.max_length = 6, .overlong = "truncate"});
  EXPECT_EQ(corpus.counts.truncated, 1);
  // eos, three of the prompt and two of the longer answer, whose end is not read.
  EXPECT_THAT(words(corpus.prompts), ElementsAre(3, 4, 5));
  EXPECT_THAT(words(corpus.chosen), ElementsAre(1, 0));
  EXPECT_THAT(words(corpus.rejected), ElementsAre(2, 1, 0));
  EXPECT_THAT(error_of(spec(kTwo), {.max_length = 4, .overlong = "drop"}), "");
  EXPECT_EQ(load(spec(kTwo), {.max_length = 4, .overlong = "drop"}).size(), 1);
}

TEST_F(Preferences, EqualAndMissingAnswersAreLeftOut) {
  const PreferenceCorpus corpus = load(spec(std::string(kTwo) +
                                            R"({"q": "b", "good": "e", "bad": "e"}
{"q": "b", "good": "e", "bad": " "}
{"q": "b", "good": "e"}
)"));
  EXPECT_EQ(corpus.size(), 2);
  EXPECT_EQ(corpus.counts.of(Drop::kMalformed), 1);
  EXPECT_EQ(corpus.counts.of(Drop::kEmpty), 1);
  EXPECT_EQ(corpus.counts.of(Drop::kMissingColumn), 1);
}

TEST_F(Preferences, TalksDifferFromTheFirstAnswerThatDiffers) {
  const std::string talk = R"({"good": [{"role": "user", "content": "a"},
 {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
 {"role": "assistant", "content": "d"}], "bad": [{"role": "user", "content": "a"},
 {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
 {"role": "assistant", "content": "ee fff"}]})";
  std::string line = talk;
  std::erase(line, '\n');
  const PreferenceCorpus corpus = load(talks(line + "\n"));
  ASSERT_EQ(corpus.size(), 1);
  // "user a . assistant b . user c . assistant"; the template has an end of answers.
  EXPECT_THAT(words(corpus.prompts), ElementsAre(4, 1, 1, 9, 1, 1, 4, 1, 1, 9));
  EXPECT_THAT(words(corpus.chosen), ElementsAre(1, 1));
  EXPECT_THAT(words(corpus.rejected), ElementsAre(2, 3, 1));
}

TEST_F(Preferences, TheMessagesOfThePromptMayStandAlone) {
  CorpusSpec spec = talks(
      R"({"q": [{"role": "user", "content": "a"}], "good": [{"role": "assistant", "content": "b"}],)"
      R"( "bad": [{"role": "assistant", "content": "c"}]})"
      "\n");
  spec.prompt_column = "q";
  const PreferenceCorpus corpus = load(spec);
  EXPECT_THAT(words(corpus.prompts), ElementsAre(4, 1, 1, 9));
  EXPECT_THAT(words(corpus.chosen), ElementsAre(1, 1));
}

TEST_F(Preferences, TalksThatDoNotCompareAreTold) {
  const std::string user = R"({"role": "user", "content": "a"})";
  const std::string answer = R"({"role": "assistant", "content": "b"})";
  const auto problem = [&](const std::string& good, const std::string& bad) {
    return error_of(talks(concat("{\"good\": [", good, "], \"bad\": [", bad, "]}\n")));
  };
  EXPECT_THAT(problem(user + "," + answer, user + "," + answer), HasSubstr("are equal"));
  EXPECT_THAT(problem(user + "," + answer, user + "," + answer + "," + user),
              HasSubstr("begin alike, and one ends"));
  EXPECT_THAT(problem(answer, answer + "," + user), HasSubstr("begin alike"));
  EXPECT_THAT(problem(user + "," + answer, R"({"role": "user", "content": "x"},)" + answer),
              HasSubstr("no message in common"));
  EXPECT_THAT(problem(answer + "," + user + "," + answer,
                      answer + R"(,{"role": "user", "content": "x"},)" + answer),
              HasSubstr("message 2, in which the talks differ first, is not the assistant's"));
  EXPECT_THAT(problem(user, user + "," + answer), HasSubstr("no message of the assistant"));
}

}  // namespace
}  // namespace tapestry
