// TrainedModel answers as the commands do. (Translations and continuations: tests/install.)
#include "apps/tasks/answers/trained_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/run/signals.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class TrainedModelTest : public ::testing::Test {
 protected:
  TrainedModel trained(const std::string& task) {
    EXPECT_EQ(folder_.train(task, task, {"training.max_steps=5"}), 0) << folder_.messages();
    return TrainedModel(folder_.path(task));
  }
  /// What a filter prints for the lines, which are those of the validation and an empty one.
  std::vector<std::string> printed(const std::string& command, const std::string& task,
                                   const std::string& options = "") {
    return lines_of(folder_.output(concat(command, " --model ", task, ' ', options),
                                   join(lines_, "\n") + '\n'));
  }
  template <class F>
  static std::string error_of(F f) {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  TinyRunFolder folder_{"trained-model"};
  std::vector<std::string> lines_ = [&] {
    std::vector<std::string> lines = lines_of(read_file(folder_.path("valid.src")));
    lines.emplace_back();
    return lines;
  }();
};

TEST_F(TrainedModelTest, ClassifiesAsTheCommand) {
  for (const std::string task : {"classification", "several"}) {
    const TrainedModel model = trained(task);
    const bool several = task == "several";
    const auto found = model.classify(lines_, {.top_k = 2, .threshold = 0.1});
    const auto expected = printed(
        "classify", task, several ? "--threshold 0.1 --detail jsonl" : "--top-k 2 --detail jsonl");
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_TRUE(found.back().empty());
    for (size_t i = 0; i + 1 < found.size(); ++i) {
      const json classes = json::parse(expected[i]).at("classes");
      ASSERT_EQ(found[i].size(), classes.size());
      for (size_t at = 0; at < classes.size(); ++at) {
        EXPECT_EQ(found[i][at].label, classes[at].at("label"));
        EXPECT_EQ(found[i][at].probability, classes[at].at("probability"));
      }
    }
  }
}

TEST_F(TrainedModelTest, LabelsWordsAsTheCommand) {
  const auto found = trained("tokens").label_words(lines_);
  const auto expected = printed("classify", "tokens", "--detail jsonl");
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i + 1 < found.size(); ++i) {
    const json line = json::parse(expected[i]);
    const auto& [text, labels] = found[i];
    EXPECT_EQ(text.words, line.at("words").get<std::vector<std::string>>());
    ASSERT_EQ(labels.size(), line.at("labels").size());
    for (size_t at = 0; at < labels.size(); ++at) {
      EXPECT_EQ(labels[at].label, line.at("labels")[at]);
      EXPECT_EQ(labels[at].probability, line.at("probabilities")[at]);
    }
  }
  EXPECT_TRUE(found.back().second.empty());
}

TEST_F(TrainedModelTest, EmbedsAsTheCommand) {
  const TrainedModel model = trained("vectors");
  EXPECT_THAT(error_of([&] { model.embed(lines_); }),
              HasSubstr(concat("line ", lines_.size(), " is empty")));
  lines_.pop_back();
  const Tensor vectors = model.embed(lines_);
  EXPECT_EQ(vectors.shape(), Shape({std::ssize(lines_), 16}));
  const auto expected = printed("embed", "vectors");
  for (size_t i = 0; i < lines_.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    EXPECT_EQ(vectors.slice(row, row + 1).to_vector<float>(),
              json::parse(expected[i]).get<std::vector<float>>());
  }
}

TEST_F(TrainedModelTest, FillsHolesAsTheCommand) {
  for (std::string& line : lines_) {
    if (!line.empty()) line += " <mask>";
  }
  const auto guesses = trained("mlm").guess_words(lines_, 2);
  const auto expected = printed("fill-mask", "mlm", "--top-k 1");
  for (size_t i = 0; i + 1 < lines_.size(); ++i) {
    ASSERT_EQ(guesses[i].size(), 1u);
    ASSERT_EQ(guesses[i][0].size(), 2u);
    EXPECT_THAT(expected[i], ::testing::StartsWith(guesses[i][0][0].word + ' '));
  }
  EXPECT_TRUE(guesses.back().empty());
  for (const std::string task : {"span_corruption", "infilling"}) {
    const TrainedModel model = trained(task);
    EXPECT_EQ(model.restore(lines_, model.search()), printed("fill-mask", task));
    EXPECT_THAT(error_of([&] { model.guess_words(lines_, 1); }), HasSubstr("restores lines"));
  }
}

TEST_F(TrainedModelTest, SaysWhatAModelCannot) {
  const TrainedModel model = trained("translation");
  EXPECT_EQ(error_of([&] { model.embed(lines_); }),
            "[embed] needs a model of task embedding, got translation.");
  EXPECT_THAT(error_of([&] { model.predict({{1}}); }), HasSubstr("model of task regression, got"));
}

TEST_F(TrainedModelTest, FindsAnswersAsTheCommand) {
  const TrainedModel model = trained("questions");
  std::vector<std::string> questions, records;
  for (const std::string& line : lines_) {
    questions.push_back(line.substr(0, line.find(' ')));
    const json record = {{"context", line}, {"question", questions.back()}};
    records.push_back(line.empty() ? "" : record.dump());
  }
  const auto found = model.answer(questions, lines_, 2);
  const auto expected = lines_of(folder_.output(
      "answer --model questions --jsonl --n-best 2 --detail jsonl", join(records, "\n") + '\n'));
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_TRUE(found.back().empty());
  for (size_t i = 0; i + 1 < found.size(); ++i) {
    const json answers = json::parse(expected[i]).at("answers");
    ASSERT_EQ(found[i].size(), answers.size());
    for (size_t at = 0; at < answers.size(); ++at) {
      EXPECT_EQ(found[i][at].text, answers[at].at("text"));
      EXPECT_EQ(found[i][at].begin, answers[at].at("start"));
      EXPECT_EQ(found[i][at].end, answers[at].at("end"));
      EXPECT_EQ(found[i][at].probability, answers[at].at("probability"));
    }
  }
  questions.pop_back();
  EXPECT_THAT(error_of([&] { model.answer(questions, lines_); }),
              HasSubstr(concat("got ", lines_.size(), " and ", questions.size())));
}

TEST_F(TrainedModelTest, PredictsAsTheCommand) {
  const TrainedModel model = trained("regression");
  const auto found = model.predict({{0.25}, {-1}, {0.5}});
  const auto expected = lines_of(folder_.output("predict --model regression", "0.25\n-1\n0.5\n"));
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), 1u);
    EXPECT_EQ(fmt::format("{:.6g}", found[i][0]), expected[i]);
  }
  EXPECT_THAT(error_of([&] {
                model.predict({{1, 2}});
              }),
              HasSubstr("point 1 must have 1 numbers, got 2."));
}

TEST(SignalsFromTest, AskTheProgramThatHasHandlers) {
  EXPECT_EQ(pending_signal(), 0);
  {
    const SignalsFrom program([] { return 15; });
    EXPECT_EQ(pending_signal(), 15);
  }
  EXPECT_EQ(pending_signal(), 0);
}

TEST(ConfigSourceTest, TextIsNamedInMessages) {
  try {
    load_config(ConfigSource("config", "task: clm\ntraining:\n  batch_siz: 3\n"));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("config:3:3: unknown key 'batch_siz' in 'training'"));
  }
}

}  // namespace
}  // namespace tapestry
