// What the binary does with two texts in a row: their classes, their numbers, and documents in the
// order of their relevance to a query.
#include <gmock/gmock.h>

#include "tests/apps/commands/serve/serve_client.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::vector<std::string> kWords = {"ba", "ce", "di", "fo", "gu", "ha"};

// "yes" where the second text has the word "ba"; of `numbers` 1 and 0. The first may have it, too.
std::string pairs(int64_t count, uint64_t seed, bool numbers) {
  const PhiloxKey key{seed};
  std::string lines;
  uint64_t at = 0;
  const auto word = [&] { return kWords[philox_below(key, at++, kWords.size())]; };
  for (int64_t i = 0; i < count; ++i) {
    std::string second = word();
    if (i % 2 == 0) second = "ba";
    const bool first = philox_below(key, at++, 2) == 0;
    const std::string other = word();
    second = first ? concat(second, ' ', other) : concat(other, ' ', second);
    const bool is = second.find("ba") != second.npos;
    lines += concat(numbers ? (is ? "1" : "0") : (is ? "yes" : "no"), '\t', word(), ' ', word(),
                    '\t', second, '\n');
  }
  return lines;
}

class TwoTextsTest : public testing::Test {
 protected:
  TwoTextsTest() : folder_("two-texts") {
    for (const auto& [name, rows, seed] :
         {std::tuple("train", 600, 1), std::tuple("valid", 40, 2)}) {
      folder_.write(concat(name, ".pairs"), pairs(rows, static_cast<uint64_t>(seed), false));
      folder_.write(concat(name, ".rated"), pairs(rows, static_cast<uint64_t>(seed), true));
    }
  }
  int train(const std::string& task, const std::string& run,
            const std::vector<std::string>& more = {}) {
    std::vector<std::string> options = {"model.type_vocab_size=2",   "model.embedding_norm=true",
                                        "model.hidden_size=32",      "model.dropout=0",
                                        "model.attention_dropout=0", "tokenizer.vocab_size=30"};
    const std::string ending = task == "rating" ? "rated" : "pairs";
    for (const std::string part : {"train", "valid"}) {
      options.push_back(concat("data.", part, "={tsv: ", part, ".", ending,
                               ", label_column: 1, text_column: 2, text_pair_column: 3}"));
    }
    options.insert(options.end(), more.begin(), more.end());
    return folder_.train(task, run, options);
  }

  TinyRunFolder folder_;
};

TEST_F(TwoTextsTest, AreClassifiedTogether) {
  ASSERT_EQ(train("classification", "run", {"training.max_steps=600"}), 0) << folder_.messages();
  const Json figures = Json::parse(folder_.output("evaluate --model run --data valid --json"));
  EXPECT_GT(figures["accuracy"].get<double>(), 90);
  int64_t right = 0, rows = 0;
  for (const std::string& line : lines_of(read_file(folder_.path("valid.pairs")))) {
    const size_t tab = line.find('\t');
    const std::string answer = folder_.output("classify --model run", line.substr(tab + 1) + '\n');
    right += answer.substr(0, answer.find('\t')) == line.substr(0, tab);
    ++rows;
  }
  EXPECT_NEAR(figures["accuracy"].get<double>(),
              100 * static_cast<double>(right) / static_cast<double>(rows), 1e-9);

  // A line that is no pair is answered by an empty one, and told.
  const auto odd = folder_.run("classify --model run", "ba ce\tba\nba ce\n\nba\tce\tdi\nba\t \n");
  EXPECT_EQ(odd.code, 0);
  const auto answers = lines_of(odd.out);
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_NE(answers[0], "");
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(answers[i], "") << i;
  EXPECT_THAT(odd.err,
              HasSubstr("line 2: expected two texts with a tab between them, got 'ba ce'"));
  const auto strict = folder_.run("classify --ill-formed error --model run", "ba\tba\nba\n");
  EXPECT_EQ(strict.code, 3);
  EXPECT_EQ(lines_of(strict.out).size(), 1u) << "the line before it is answered";

  // A model of two texts, and data of one.
  EXPECT_EQ(train("classification", "other", {"data.valid={tsv: valid.tsv}"}), 2);
  EXPECT_THAT(folder_.messages(), HasSubstr("has no text_pair_column, data.train has one"));

  folder_.output("classify --model run --attention page.json", "ba ce\tba di\n");
  const Json page = Json::parse(read_file(folder_.path("page.json")));
  EXPECT_THAT(page.dump(), HasSubstr("ba"));

  folder_.output("export --model run --output home --architecture bert");
  folder_.output("import home --output back");
  const std::string line = "ba ce\tba di\n";
  EXPECT_EQ(folder_.output("classify --pairs --model back", line),
            folder_.output("classify --model run", line));
  EXPECT_NE(folder_.output("classify --model back", line), "")
      << "without --pairs a tab is a space of one text";
}

TEST_F(TwoTextsTest, ResumeToTheSameBits) {
  const auto steps = [](int64_t count) {
    return std::vector<std::string>{concat("training.max_steps=", count), "training.r_drop=1",
                                    "model.dropout=0.1"};
  };
  ASSERT_EQ(train("classification", "whole", steps(12)), 0) << folder_.messages();
  ASSERT_EQ(train("classification", "parts", steps(7)), 0) << folder_.messages();
  auto last = steps(12);
  last.push_back("threads=2");
  ASSERT_EQ(train("classification", "parts", last), 0) << folder_.messages();
  expect_equal(folder_.result("whole"), folder_.result("parts"));
}

// Its labels are codes of languages, but a text alone has none by such a model.
TEST_F(TwoTextsTest, NeitherDetectALanguageNorShowTheAttentionOfOneText) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "de\tba ce\tdi\nen\tfo gu\tha\n";
  folder_.write("train.pairs", lines);
  folder_.write("valid.pairs", lines);
  ASSERT_EQ(train("classification", "run", {"training.max_steps=2"}), 0) << folder_.messages();
  ServerProcess server(folder_, {"--model", concat("pairs=", folder_.path("run"))});
  const HttpAnswer detected = server.post("/detect", {{"q", "ba ce"}});
  EXPECT_EQ(detected.status, 501) << detected.body;
  const HttpAnswer shown = server.post("/attention", {{"text", "ba ce"}});
  EXPECT_EQ(shown.status, 400) << shown.body;
  EXPECT_THAT(shown.body, HasSubstr("reads two texts in a row"));
  EXPECT_EQ(server.post("/classify", {{"text", "ba ce"}, {"text_pair", "di"}}).status, 200);
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(TwoTextsTest, DocumentsAreRanked) {
  ASSERT_EQ(train("rating", "run", {"training.max_steps=600"}), 0) << folder_.messages();
  const auto numbers =
      lines_of(folder_.output("predict --model run", "ba ce\tba di\nba ba\tce fo\n"));
  ASSERT_EQ(numbers.size(), 2u);
  EXPECT_GT(std::stod(numbers[0]), std::stod(numbers[1]) + 0.5);
  EXPECT_EQ(folder_.run("predict --pairs --model run", "ba ce\tba di\n").out, numbers[0] + '\n');

  ServerProcess server(folder_, {"--model", concat("reranker=", folder_.path("run"))});
  const ServedJson asked = {{"query", "ba ce"},
                            {"documents", {"ce di", "ba fo", "gu ha"}},
                            {"top_n", 2},
                            {"return_documents", true}};
  const ServedJson answer = server.post("/v1/rerank", asked).json();
  ASSERT_EQ(answer.at("results").size(), 2u) << answer;
  EXPECT_EQ(answer.at("results")[0].at("index"), 1);
  EXPECT_EQ(answer.at("results")[0].at("document").at("text"), "ba fo");
  EXPECT_GT(answer.at("results")[0].at("relevance_score").get<double>(),
            answer.at("results")[1].at("relevance_score").get<double>());
  const ServedJson rated =
      server.post("/rate", {{"text", {"ba ce", "ba ba"}}, {"text_pair", {"ba di", "ce fo"}}})
          .json();
  EXPECT_NEAR(rated.at("numbers")[0].get<double>(), std::stod(numbers[0]), 1e-5);
  EXPECT_NEAR(rated.at("numbers")[1].get<double>(), std::stod(numbers[1]), 1e-5);
  EXPECT_THAT(server.post("/rate", {{"text", "ba"}}).body, HasSubstr("'text_pair' is missing"));
  EXPECT_THAT(server.post("/rate", {{"text", {"ba", "ce"}}, {"text_pair", "ba"}}).body,
              HasSubstr("expected a text_pair for each of 2 texts, got 1"));
  EXPECT_EQ(server.post("/v1/rerank", {{"query", ""}, {"documents", {"ba"}}}).status, 400);
  EXPECT_EQ(server.end(), 0) << server.log();
}

}  // namespace
}  // namespace tapestry
