// What the binary does with a model that labels words.
#include <gmock/gmock.h>

#include <memory>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

/// The model is trained once.
class TokenCommandsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TinyRunFolder>("tokens");
    ASSERT_EQ(
        folder_->train("tokens", "run", {"training.max_steps=150", "model.embedding_norm=true"}), 0)
        << folder_->messages();
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> TokenCommandsTest::folder_;

TEST_F(TokenCommandsTest, WordsGetTheirLabels) {
  const std::string out = folder_->output("classify --model run", "ba ce fo\n\n gu  di\tba \n");
  EXPECT_EQ(out, "ba/B-X ce/I-X fo/O\n\ngu/O di/B-Y ba/B-X\n");
  // Lines together, or one after the other, longer than a row of the model, too.
  std::string line, labels;
  for (int i = 0; i < 12; ++i) {
    line += "fo ba ce ";
    labels += concat(i > 0 ? " " : "", "fo/O ba/B-X ce/I-X");
  }
  const std::string both = concat("ba fo\n", line, '\n');
  const auto answers = lines_of(folder_->output("classify --model run", both));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(std::ranges::count(answers[1], '/'), 36);
  EXPECT_EQ(lines_of(folder_->output("classify --batch-size 1 --model run", both)), answers);
}

TEST_F(TokenCommandsTest, EntitiesHavePlacesAndProbabilities) {
  const Json line = Json::parse(
      folder_->output("classify --detail jsonl --model run", "fo  ba ce gu \xc3\xa4\xc3\xb6 di\n"));
  EXPECT_EQ(line["words"], (Json{"fo", "ba", "ce", "gu", "\xc3\xa4\xc3\xb6", "di"}));
  EXPECT_EQ(line["labels"].size(), 6u);
  EXPECT_EQ(line["entities"][0]["type"], "X");
  EXPECT_EQ(line["entities"][0]["text"], "ba ce");
  EXPECT_EQ(line["entities"][0]["start"], 4);
  EXPECT_EQ(line["entities"][0]["end"], 9);
  const Json probabilities = line["probabilities"];
  EXPECT_NEAR(line["entities"][0]["probability"].get<double>(),
              (probabilities[1].get<double>() + probabilities[2].get<double>()) / 2, 1e-6);
  EXPECT_EQ(line["entities"].back()["start"], 16);  // characters, not bytes
}

TEST_F(TokenCommandsTest, EvaluationIsTheValidations) {
  const Json figures =
      Json::parse(folder_->output("evaluate --model run --data valid.conll --json"));
  Json last;
  for (const Json& entry : folder_->metrics("run")) {
    if (entry.at("kind") == "valid") last = entry;
  }
  EXPECT_EQ(figures["sentences"], 20);
  EXPECT_GT(figures["f1"].get<double>(), 80);
  for (const char* name : {"f1", "precision", "recall", "accuracy"}) {
    EXPECT_TRUE(last.contains(name)) << name;
  }
  EXPECT_EQ(figures["classes"][0]["name"], "X");
  EXPECT_EQ(figures["classes"][1]["name"], "Y");
  EXPECT_FALSE(figures.contains("confusion"));
  const std::string text = folder_->output("evaluate --model run --data valid");
  EXPECT_THAT(text, HasSubstr("f1 "));
  EXPECT_THAT(text, HasSubstr("sentences 20"));
}

TEST_F(TokenCommandsTest, OtherQuestionsAreRefused) {
  auto outcome = folder_->run("classify --top-k 2 --model run", "ba\n");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--top-k is for classes of whole texts"));
  folder_->write("odd.conll", "ba B-Z\nce O\n\n");
  outcome = folder_->run("evaluate --model run --data odd.conll");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err,
              HasSubstr("odd.conll:1 must have one of the labels B-X, B-Y, I-X, O, got "));
}

// To a folder of theirs and back: the same labels, and a card.
TEST_F(TokenCommandsTest, AModelGoesHomeWithACard) {
  folder_->output("export --model run --output home --architecture bert");
  const Json config = Json::parse(read_file(folder_->path("home/config.json")));
  EXPECT_EQ(config["architectures"], Json::array({"BertForTokenClassification"}));
  EXPECT_EQ(config["id2label"]["0"], "B-X");
  EXPECT_FALSE(config.contains("problem_type"));
  const std::string card = read_file(folder_->path("home/README.md"));
  for (const char* part :
       {"---\nlibrary_name: transformers\npipeline_tag: token-classification\n",
        "- tapestry\n- bert\n", "model-index:\n- name: \"run\"\n", "    - type: f1\n",
        "name: \"valid.conll\"", "It learned from train.conll (200 read, ", "| f1 | ",
        "AutoModelForTokenClassification.from_pretrained(\"FOLDER\")", "of commit ",
        "conll: train.conll"}) {
    EXPECT_THAT(card, HasSubstr(part));
  }
  EXPECT_THAT(card, testing::Not(HasSubstr(folder_->path("train.conll"))));
  folder_->write("home/README.md", "# Theirs\n");
  folder_->output("import home --output back");
  const std::string lines = "ba ce fo\ngu di\n";
  EXPECT_EQ(folder_->output("classify --model back", lines),
            folder_->output("classify --model run", lines));
  folder_->output("export --model back --output again");
  EXPECT_EQ(read_file(folder_->path("again/README.base.md")), "# Theirs\n");
  EXPECT_THAT(read_file(folder_->path("again/README.md")),
              HasSubstr("imported from home).\nThe card of what it came from is README.base.md."));
  folder_->output("import again --output third");
  folder_->output("export --model third --output fourth");
  EXPECT_EQ(read_file(folder_->path("fourth/README.base.md")), "# Theirs\n");
}

}  // namespace
}  // namespace tapestry
