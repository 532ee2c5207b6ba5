// What the binary does with models that answer: prompts of a causal model, and spans of a context.
#include <gmock/gmock.h>

#include <memory>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;

/// The models are trained once, when they are first asked for.
class AnswerCommandsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { folder_ = std::make_unique<TinyRunFolder>("answers"); }
  static void TearDownTestSuite() { folder_.reset(); }

  /// "--model <run>" of a trained model of this experiment.
  static std::string model(const std::string& task) {
    if (!std::filesystem::exists(folder_->path(task))) {
      EXPECT_EQ(folder_->train(task, task, {"training.max_steps=100"}), 0) << folder_->messages();
    }
    return concat("--model ", task, ' ');
  }
  static std::string generate(const std::string& options, const std::string& input = "") {
    return folder_->output(concat("generate ", model("prompts"), options), input);
  }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> AnswerCommandsTest::folder_;

// Prompts

TEST_F(AnswerCommandsTest, RecordsAreAnsweredAsInTheValidation) {
  const std::string records = read_file(folder_->path("valid.jsonl"));
  const Lines answers = lines_of(generate("--jsonl", records));
  ASSERT_EQ(answers.size(), 20u);
  double right = 0;
  Lines outcomes = lines_of(records);
  for (size_t i = 0; i < answers.size(); ++i) {
    right += answers[i] == Json::parse(outcomes[i]).at("when") ? 5 : 0;
  }
  Json last;
  for (const std::string& line : lines_of(read_file(folder_->path("prompts/metrics.jsonl")))) {
    const Json entry = Json::parse(line);
    if (entry.contains("exact_match")) last = entry;
  }
  EXPECT_EQ(last.at("exact_match"), right);
  EXPECT_GE(right, 75);
  // The template's prompt by hand, and what the words of an answer are worth.
  const Json first = Json::parse(outcomes[0]);
  const std::string prompt = concat(first.at("text").get<std::string>(), "\nwhen:");
  folder_->write("prompt", prompt);
  EXPECT_EQ(generate("--prompt \"$(cat prompt)\""), concat(prompt, ' ', answers[0], '\n'));
  const Json detail = Json::parse(generate("--jsonl --detail jsonl", concat(outcomes[0], '\n')));
  EXPECT_EQ(detail.at("prompt"), prompt);
  auto outcome = folder_->run(concat("generate --jsonl ", model("prompts")), "\n{\"txt\": 1}\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(
      outcome.err,
      "error: [data] line 2: has the field txt; 'text' is none of them; did you mean 'txt'?\n");
  // One odd record is answered like an empty line, or ends the command where that is asked for.
  const std::string odd = records + "{broken\n{\"text\": null}\n" + outcomes[0] + '\n';
  outcome = folder_->run(concat("generate --jsonl --ill-formed error ", model("prompts")), odd);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(lines_of(outcome.out), answers) << "those before a bad line";
  EXPECT_THAT(outcome.err, HasSubstr("line 21 must be a JSON object, got no JSON at byte "));
  outcome = folder_->run(concat("generate --jsonl ", model("prompts")), odd);
  EXPECT_EQ(outcome.code, 0);
  Lines with_gaps = answers;
  with_gaps.insert(with_gaps.end(), {"", "", answers[0]});
  EXPECT_EQ(lines_of(outcome.out), with_gaps);
  EXPECT_THAT(outcome.err, HasSubstr("warning: 2 lines are no record"));
  const Json figures = Json::parse(
      folder_->output(concat("evaluate --jsonl valid.jsonl --json ", model("prompts"))));
  EXPECT_EQ(figures.at("exact_match"), right);
  EXPECT_EQ(figures.at("f1"), right) << "one word each";
  EXPECT_EQ(last.at("f1"), right);
  if (right < 100) {
    EXPECT_LT(figures.at("intervals").at("f1").at(0), right);
  }
  EXPECT_EQ(figures.at("questions"), 20);
  outcome = folder_->run(concat("generate --jsonl ", model("clm")), records);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("trained on records with a prompt and an answer"));
}

// The search, with its cache, sees the prompts as the training does. Their lengths differ.
TEST_F(AnswerCommandsTest, PromptsThatSeeThemselvesWhole) {
  ASSERT_EQ(folder_->train("prompts", "prefix", {"training.max_steps=100", "model.prefix_lm=true"}),
            0)
      << folder_->messages();
  const std::string records = read_file(folder_->path("valid.jsonl"));
  const Lines answers = lines_of(folder_->output("generate --model prefix --jsonl", records));
  ASSERT_EQ(answers.size(), 20u);
  double right = 0;
  const Lines outcomes = lines_of(records);
  for (size_t i = 0; i < answers.size(); ++i) {
    right += answers[i] == Json::parse(outcomes[i]).at("when") ? 5 : 0;
  }
  const Json figures =
      Json::parse(folder_->output("evaluate --jsonl valid.jsonl --json --model prefix"));
  EXPECT_EQ(figures.at("exact_match"), right);
  EXPECT_GE(right, 75);
}

// Questions

TEST_F(AnswerCommandsTest, AnswersAreCutOutOfTheContext) {
  const auto answer = [&](const std::string& options, const std::string& input) {
    return folder_->output(concat("answer ", model("questions"), options), input);
  };
  const Json squad = Json::parse(read_file(folder_->path("valid.json")));
  std::string tsv, jsonl;
  std::vector<std::string> contexts, references;
  for (const Json& paragraph : squad.at("data").at(0).at("paragraphs")) {
    const Json& qa = paragraph.at("qas").at(0);
    contexts.push_back(paragraph.at("context"));
    references.push_back(qa.at("answers").at(0).at("text"));
    tsv += concat(contexts.back(), '\t', qa.at("question").get<std::string>(), '\n');
    jsonl +=
        concat(Json{{"context", contexts.back()}, {"question", qa.at("question")}}.dump(), '\n');
  }
  const std::string text = answer("", tsv);
  const Lines answers = lines_of(text);
  ASSERT_EQ(answers.size(), contexts.size());
  EXPECT_EQ(answer("--jsonl --threads 2 --batch-size 3", jsonl), text);
  double right = 0;
  for (size_t i = 0; i < answers.size(); ++i) right += answers[i] == references[i] ? 5 : 0;
  // evaluate, which cuts the same spans, counts the same.
  const Json figures = Json::parse(
      folder_->output(concat("evaluate --squad valid.json --json ", model("questions"))));
  EXPECT_EQ(figures.at("exact_match"), right);
  EXPECT_GE(figures.at("f1"), right);
  EXPECT_EQ(figures.at("questions"), 20);
  // Places and probabilities of the best three; the first is what is printed without detail.
  const Lines details = lines_of(answer("--detail jsonl --n-best 3", tsv));
  for (size_t i = 0; i < details.size(); ++i) {
    const Json list = Json::parse(details[i]).at("answers");
    ASSERT_EQ(list.size(), 3u);
    EXPECT_EQ(list[0].at("text"), answers[i]);
    double before = 1, sum = 0;
    for (const Json& one : list) {
      const auto start = one.at("start").get<size_t>(), end = one.at("end").get<size_t>();
      EXPECT_EQ(contexts[i].substr(start, end - start), one.at("text"));
      const double probability = one.at("probability");
      EXPECT_LE(probability, before);
      before = probability;
      sum += probability;
    }
    EXPECT_GT(before, 0);
    EXPECT_LE(sum, 1 + 1e-9);
  }
  EXPECT_EQ(lines_of(answer("--n-best 3", tsv)).size(), 60u);
  // What it looked at: question and context as one text, in the first layer.
  EXPECT_EQ(answer("--attention looked.json", tsv), text);
  const Json pages = Json::parse(read_file(folder_->path("looked.json"))).at("pages");
  ASSERT_EQ(pages.size(), 20u);
  EXPECT_EQ(pages[0].at("title"),
            squad["data"][0]["paragraphs"][0]["qas"][0].at("question").get<std::string>());
  const size_t tokens = pages[0].at("axes")[0].at("tokens").size();
  const Json& head = pages[0].at("maps").at(0).at("heads").at(1);
  ASSERT_EQ(head.size(), tokens);
  double sum = 0;
  for (const Json& weight : head[0]) sum += weight.get<double>();
  EXPECT_NEAR(sum, 1, 1e-4);
}

TEST_F(AnswerCommandsTest, AContextMayHoldNoAnswer) {
  for (const char* part : {"train", "valid"}) {
    Json squad = Json::parse(read_file(folder_->path(concat(part, ".json"))));
    for (Json& paragraph : squad.at("data").at(0).at("paragraphs")) {
      paragraph.at("qas").at(0)["is_impossible"] = true;
    }
    folder_->write(concat(part, "-none.json"), squad.dump());
  }
  const std::vector<std::string> overrides = {"data.train.squad=train-none.json",
                                              "data.valid.squad=valid-none.json"};
  folder_->forget_messages();
  EXPECT_EQ(folder_->train("questions", "none", overrides), 3);
  EXPECT_THAT(folder_->messages(), HasSubstr("has no answer, which needs no_answer: true."));
  std::vector<std::string> allowed = overrides;
  allowed.insert(allowed.end(), {"answers.no_answer=true", "training.max_steps=30"});
  ASSERT_EQ(folder_->train("questions", "none", allowed), 0) << folder_->messages();
  const std::string line = "ba ce di\tafter ba\n";
  EXPECT_EQ(folder_->output("answer --model none", line), "\n");
  const Json first =
      Json::parse(folder_->output("answer --model none --n-best 2 --detail jsonl", line))
          .at("answers");
  EXPECT_EQ(first.at(0).at("text"), "");
  EXPECT_GT(first.at(0).at("probability"), first.at(1).at("probability"));
  EXPECT_NE(first.at(1).at("text"), "");
  const Json figures =
      Json::parse(folder_->output("evaluate --squad valid-none.json --json --model none"));
  EXPECT_EQ(figures.at("exact_match"), 100);
  EXPECT_EQ(figures.at("f1"), 100);
}

TEST_F(AnswerCommandsTest, LongContextsAreReadInWindows) {
  std::string context;
  for (int i = 0; i < 40; ++i) context += "ba ce ";
  const std::string line = concat(context, "di fo gu\tafter di\n");
  const Json list =
      Json::parse(folder_->output(
                      concat("answer ", model("questions"), "--detail jsonl --n-best 500"), line))
          .at("answers");
  // Every place of the context can be an answer, the first and the last word too.
  size_t first = 1000, last = 0;
  for (const Json& one : list) {
    first = std::min(first, one.at("start").get<size_t>());
    last = std::max(last, one.at("end").get<size_t>());
  }
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(last, context.size() + 8);
}

TEST_F(AnswerCommandsTest, AnswerSaysWhatALineLacks) {
  const std::string command = concat("answer ", model("questions"));
  EXPECT_EQ(folder_->output(command, "\nba ce di\tafter ba\n\n").front(), '\n');
  const std::string lines = "ba ce\tafter ba\nba ce\n";
  auto outcome = folder_->run(concat(command, " --ill-formed error"), lines);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err, "error: [answer] line 2 must be a context, a tab and a question.\n");
  EXPECT_EQ(outcome.out, folder_->output(command, "ba ce\tafter ba\n"));
  outcome = folder_->run(command, lines);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, folder_->output(command, "ba ce\tafter ba\n\n"));
  EXPECT_THAT(outcome.err, HasSubstr("warning: 1 line is no record and answered like an empty "
                                     "one; the first: [answer] line 2 must be a context"));
  outcome = folder_->run(concat(command, " --jsonl"), "{\"context\": \"a\"}\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err,
            "error: [data] line 1: has the field context; 'question' is none of them.\n");
  outcome = folder_->run(concat("answer ", model("clm")), "a\tb\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("expected a model of task question_answering"));
}

// The trunk of a masked model has the same names.
TEST_F(AnswerCommandsTest, AMaskedModelsTrunkLearnsToAnswer) {
  model("mlm");
  folder_->forget_messages();
  ASSERT_EQ(folder_->train("questions", "finetuned",
                           {"init_from=mlm", "training.max_steps=2", "model.type_vocab_size=0",
                            "data.overlong=truncate"}),
            0)
      << folder_->messages();
  EXPECT_THAT(folder_->messages(), HasSubstr("fresh: span_head.weight"));
}

}  // namespace
}  // namespace tapestry
