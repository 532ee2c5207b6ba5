// What the binary does with texts that have several classes, or a number.
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

TEST(LabelCommandsTest, TextsHaveSeveralClasses) {
  const TinyRunFolder folder("several");
  ASSERT_EQ(folder.train("several", "run", {"training.max_steps=400", "model.embedding_norm=true"}),
            0)
      << folder.messages();
  const std::string lines = "ba ce\nfo gu\n\nmu ha\n";
  const auto names = [&](const std::string& options) {
    std::vector<std::string> found;
    for (const std::string& line :
         lines_of(folder.output(concat("classify --detail jsonl --model run ", options), lines))) {
      std::string all;
      if (!line.empty()) {
        const Json parsed = Json::parse(line);
        for (const Json& one : parsed["classes"]) {
          all += one["label"].get<std::string>() + ' ';
        }
      }
      found.push_back(all);
    }
    return found;
  };
  const auto found = names("");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_THAT(found[0], testing::AllOf(HasSubstr("ba"), HasSubstr("ce")));
  EXPECT_EQ(found[1], "");
  EXPECT_EQ(found[3], "mu ");
  EXPECT_EQ(names("--threshold 0")[1].size(), 9u);  // three names
  EXPECT_EQ(names("--threshold 1")[0], "");
  EXPECT_EQ(folder.run("classify --top-k 2 --model run", lines).code, 2);
  const Json figures = Json::parse(folder.output("evaluate --model run --data valid --json"));
  EXPECT_GT(figures["micro_f1"].get<double>(), 90);
  EXPECT_EQ(figures["texts"], 20);
  EXPECT_EQ(figures["classes"].size(), 3u);
  // Classes may be lists, as `datasets` writes them.
  std::string records;
  for (const std::string& line : lines_of(read_file(folder.path("valid.several")))) {
    Json record = {{"label", Json::array()}, {"text", line.substr(line.find('\t') + 1)}};
    for (const std::string name : {"ba", "ce", "mu"}) {
      const size_t at = line.find(name);
      if (at < line.find('\t')) record["label"].push_back(name);
    }
    records += record.dump() + '\n';
  }
  folder.write("valid.jsonl", records);
  EXPECT_THAT(records, HasSubstr("\"label\":[]"));
  EXPECT_THAT(records, HasSubstr("\"label\":[\"ba\",\"ce\"]"));
  EXPECT_EQ(folder.output("evaluate --model run --data jsonl=valid.jsonl --json"),
            folder.output("evaluate --model run --data valid --json"));
  // By hand, from what the command answers.
  double right = 0, given = 0, truth = 0;
  for (const std::string& line : lines_of(read_file(folder.path("valid.several")))) {
    const std::string label = line.substr(0, line.find('\t'));
    const std::string out =
        folder.output("classify --model run", line.substr(line.find('\t') + 1) + '\n');
    for (const std::string name : {"ba", "ce", "mu"}) {
      const bool is = label.find(name) != label.npos, says = out.find(name + '\t') != out.npos;
      right += is && says;
      truth += is;
      given += says;
    }
  }
  EXPECT_NEAR(figures["micro_f1"].get<double>(), 200 * right / (given + truth), 1e-9);
  folder.output("export --model run --output home --architecture bert");
  const Json config = Json::parse(read_file(folder.path("home/config.json")));
  EXPECT_EQ(config["problem_type"], "multi_label_classification");
  folder.output("import home --output back");
  EXPECT_EQ(folder.output("classify --model back", lines),
            folder.output("classify --model run", lines));
}

TEST(LabelCommandsTest, TextsHaveANumber) {
  const TinyRunFolder folder("rating");
  ASSERT_EQ(folder.train("rating", "run", {"training.max_steps=300", "model.embedding_norm=true"}),
            0)
      << folder.messages();
  const auto answers =
      lines_of(folder.output("predict --model run", "ba ce\n\nba ce fo gu ha je\n"));
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_NEAR(std::stod(answers[0]), 1, 0.5);
  EXPECT_EQ(answers[1], "");
  EXPECT_NEAR(std::stod(answers[2]), 3, 0.5);
  const Json figures = Json::parse(folder.output("evaluate --model run --data valid --json"));
  EXPECT_GT(figures["pearson"].get<double>(), 0.9);
  double squares = 0;
  int64_t count = 0;
  for (const std::string& line : lines_of(read_file(folder.path("valid.rated")))) {
    const size_t tab = line.find('\t');
    const double error =
        std::stod(folder.output("predict --model run", line.substr(tab + 1) + '\n')) -
        std::stod(line.substr(0, tab));
    squares += error * error;
    ++count;
  }
  EXPECT_NEAR(figures["mse"].get<double>(), squares / static_cast<double>(count), 1e-4);
  folder.output("export --model run --output home --architecture bert");
  const Json config = Json::parse(read_file(folder.path("home/config.json")));
  EXPECT_EQ(config["problem_type"], "regression");
  EXPECT_EQ(config["id2label"].size(), 1u);
  folder.output("import home --output back");
  EXPECT_EQ(folder.output("predict --model back", "ba ce\n"),
            folder.output("predict --model run", "ba ce\n"));
  EXPECT_EQ(folder.run("classify --model run", "ba\n").code, 3);
  folder.write("words.tsv", "high\tba ce\nlow\tfo gu\n");
  const auto outcome = folder.run("evaluate --model run --data words.tsv");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("must have numbers for labels, got 'high'"));
}

TEST(LabelCommandsTest, ARatingResumesToTheSameBits) {
  const TinyRunFolder folder("rating-resumes");
  ASSERT_EQ(folder.train("rating", "whole", {"training.max_steps=12"}), 0) << folder.messages();
  ASSERT_EQ(folder.train("rating", "parts", {"training.max_steps=7"}), 0) << folder.messages();
  ASSERT_EQ(folder.train("rating", "parts", {"training.max_steps=12", "threads=2"}), 0)
      << folder.messages();
  expect_equal(folder.result("whole"), folder.result("parts"));
}

}  // namespace
}  // namespace tapestry
